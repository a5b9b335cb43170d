// The steps from a general matrix [n, n] to its eigenvalues; real or complex. One matrix at a time: how many
// steps the QR algorithm takes depends on the numbers.
#pragma once

#include "ops/linalg.h"

namespace torch_tpu::ops::linalg {

Value element(const Value& x, const Value& i, const Value& j);  // rank 0
Value entry(const Value& x, const Value& i);                    // rank 0
Value dot(const Value& a, const Value& b);                      // of two matrices
/// x where `keep`, zero elsewhere.
Value masked(const Value& keep, const Value& x);
/// The distance from 1 to the next number.
double epsilon(DType dtype);

struct Balanced {
  Value matrix;
  Value back;  // A back = back matrix: a permutation times powers of two
};
/// As LAPACK's gebal: eigenvalues that rows or columns isolate come to the ends, the rest is scaled.
Balanced balanced(const Value& a);

/// A = Q H Q^H, with the form of H that the name says and unitary Q.
struct Decomposed {
  Value form, q;
};
/// Zeros below the first subdiagonal, by reflectors.
Decomposed hessenberg(const Value& a);
/// Upper triangular and complex; the eigenvalues are on the diagonal, in the order of LAPACK.
Decomposed schur(const Value& a);

}  // namespace torch_tpu::ops::linalg

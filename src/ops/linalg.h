// Building blocks of linear algebra on stacks of matrices [batch, rows, columns], as short loops:
// StableHLO has neither LU, QR nor singular values, and an unblocked loop compiles fast.
#pragma once

#include "ops/op.h"

namespace torch_tpu::ops::linalg {

/// The leading dimensions merged into one; and back.
Value stacked(const Value& x);
Value unstacked(const Value& x, const Dims& batch);
/// All but the last two dimensions.
Dims batch_dims(const Value& x);

Value identity(Builder& builder, DType dtype, int64_t rows, int64_t columns);
Value adjoint(const Value& x);
Value conjugate(const Value& x);
Value transposed(const Value& x);
Value product(const Value& a, const Value& b);
/// The part on and below (above) diagonal `offset`, zero elsewhere; any leading dimensions.
Value lower_part(const Value& x, int64_t offset = 0);
Value upper_part(const Value& x, int64_t offset = 0);
Value diagonal(const Value& x);
/// A real value as `dtype`, which may be complex.
Value as_dtype(const Value& real_value, DType dtype);
/// Small matrices in double precision, where their loops take the same time and lose nothing; others, and
/// doubles, as they are, but at least f32.
Value widened(const Value& x);
/// LAPACK's size of a number: |re| + |im|.
Value one_norm(const Value& x);
/// |x|^2, real.
Value squared_modulus(const Value& x);

/// Runs body(i, state) for i = 0 .. count - 1; i is a rank-0 s32.
Values repeat(int64_t count, const Values& state,
              const std::function<Values(const Value&, const Values&)>& body);
Value row_of(const Value& x, const Value& i);     // [batch, 1, columns]
Value column_of(const Value& x, const Value& j);  // [batch, rows, 1]
Value with_column(const Value& x, const Value& column, const Value& j);

/// X with op(A) X = B, or X op(A) = B. A may hold anything outside its triangle.
Value triangular_solve(const Value& a, const Value& b, bool left, bool lower, bool unit,
                       const char* transpose);

/// For each row of a mask [batch, n] the position of the first element that is set, from 1, or 0: s32
/// [batch].
Value first_set(const Value& mask);
/// Checks, when the program runs, that no matrix of `batch` has an entry other than zero in `info`
/// (integers): a LinAlgError, worded as torch does. The sentence may have a "{}" for the entry of a single
/// matrix.
void check_info(Lowering& op, const Value& info, const Dims& batch, const std::string& name,
                const std::string& sentence);

struct Cholesky {
  Value l;     // lower
  Value info;  // s32 [batch]: order of the first minor that is not positive, or 0
};
Cholesky cholesky(const Value& a);

struct Lu {
  Value lu;
  Value pivots;  // s32 [batch, min(rows, columns)], from 1
  Value info;    // s32 [batch]: position of the first zero pivot from 1, or 0
};
Lu lu_factor(const Value& a, bool pivot);
/// The row of A that row i of L U is: s32 [batch, rows].
Value permutation_of(const Value& pivots, int64_t rows);
/// A X = B, or A^H X = B.
Value lu_solve(const Value& lu, const Value& pivots, const Value& b, bool adjoint_of_a);

struct Qr {
  Value packed;  // R on and above the diagonal, reflectors below, as LAPACK's geqrf
  Value tau;     // [batch, min(rows, columns)]
};
Qr qr_factor(const Value& a);
/// The first `columns` columns of the product of the reflectors.
Value qr_basis(const Value& reflectors, const Value& tau, int64_t columns);
/// Applies that product (or its adjoint) to C from the left or right.
Value qr_apply(const Value& reflectors, const Value& tau, Value c, bool left, bool adjoint_of_q);

struct Svd {
  Value u, s, vh;
};
/// Singular values in descending order; u and vh only where wanted, square where `full`.
Svd svd(const Value& a, bool vectors, bool full);

}  // namespace torch_tpu::ops::linalg

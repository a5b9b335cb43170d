// Singular values, and eigenvalues of Hermitian matrices, by one method.
#include "ops/linalg.h"
#include "ops/promotion.h"

namespace torch_tpu::ops {
namespace linalg {

using namespace hlo;

namespace {

// Parallel one-sided Jacobi (Hestenes): rotates pairs of columns until all are orthogonal. Columns
// live as rows here, so that exchanging them moves contiguous memory. Pairing: the round-robin
// tournament of Brent and Luk (1985), which is back at its start after every sweep.
constexpr int64_t kMostSweeps = 40;

struct Pairs {
  Value top, bottom;  // [batch, half, length]
};

Pairs next_round(const Pairs& pairs, int64_t half) {
  if (half == 1) return pairs;
  const Value top = concatenate(
      {slice_dim(pairs.top, 1, 0, 1), slice_dim(pairs.bottom, 1, 0, 1), slice_dim(pairs.top, 1, 1, half - 1)},
      1);
  const Value bottom =
      concatenate({slice_dim(pairs.bottom, 1, 1, half), slice_dim(pairs.top, 1, half - 1, half)}, 1);
  return {top, bottom};
}

// One rotation of every pair; the first `rows` entries decide it. `off` grows to the largest cosine.
Pairs rotated(const Pairs& pairs, int64_t rows, Value& off) {
  const DType dtype = pairs.top.dtype();
  const Value p = slice_dim(pairs.top, 2, 0, rows);
  const Value q = slice_dim(pairs.bottom, 2, 0, rows);
  const auto sum = [](const Value& x) { return reduce_keep(x, Reduction::kSum, Dims{2}); };
  const Value a = sum(squared_modulus(p));
  const Value b = sum(squared_modulus(q));
  const Value c = sum(conjugate(p) * q);
  const Value size = abs(c);
  const Value nothing = compare(Compare::kEq, size, 0.0);
  const Value one = like(size, 1.0);
  const Value safe = select(nothing, one, size);
  const Value cosine = select(nothing, like(size, 0.0), size / sqrt(a) / sqrt(b));
  const Dims all{0, 1, 2};
  off = maximum(off, reduce(cosine, Reduction::kMax, all));
  const Value zeta = (b - a) / (2.0 * safe);
  const Value direction = select(compare(Compare::kGe, zeta, 0.0), one, -one);
  const Value tangent = select(nothing, like(size, 0.0), direction / (abs(zeta) + sqrt(1.0 + zeta * zeta)));
  const Value cs = 1.0 / sqrt(1.0 + tangent * tangent);
  const Value sn = cs * tangent;
  const Value phase = select(nothing, like(c, 1.0), c / as_dtype(safe, dtype));
  const Value turned = pairs.bottom * conjugate(phase);
  const Value cos_value = as_dtype(cs, dtype);
  const Value sin_value = as_dtype(sn, dtype);
  return {cos_value * pairs.top - sin_value * turned, sin_value * pairs.top + cos_value * turned};
}

struct Jacobi {
  Value columns;  // as rows: [batch, n, m], orthogonal, in the order of their norms
  Value norms;    // [batch, n]
  Value v;        // as rows: [batch, n, n]: A v = columns
};

// For m >= n >= 1; norms ascend or descend.
Jacobi one_sided_jacobi(const Value& a, bool ascending) {
  Builder& builder = *a.builder;
  const int64_t batch = a.dim(0);
  const int64_t m = a.dim(1);
  const int64_t n = a.dim(2);
  const DType real_dtype = real_type(a.dtype());
  const Value eye = broadcast_to(identity(builder, a.dtype(), n, n), Dims{batch, n, n});
  Value rows = concatenate({transposed(a), eye}, 2);  // [batch, n, m + n]
  if (n % 2 == 1) {
    rows = pad(rows, builder.splat(0.0, {a.dtype(), {}}), Dims{0, 0, 0}, Dims{0, 1, 0});
  }
  const int64_t half = (n + 1) / 2;
  const Value zero = builder.splat(0.0, {real_dtype, {}});
  // Stop once no pair has a cosine above rounding.
  const double limit = (real_dtype == DType::kF64 ? 2.3e-16 : 1.2e-7) * 8;
  const Values state{builder.splat(int64_t{0}, {DType::kS32, {}}), builder.splat(1.0, {real_dtype, {}}),
                     slice_dim(rows, 1, 0, half), slice_dim(rows, 1, half, 2 * half)};
  const Values result = while_loop(
      state,
      [&](const Values& x) -> Values {
        return {compare(Compare::kLt, x[0], static_cast<double>(kMostSweeps)) &
                compare(Compare::kGt, x[1], limit)};
      },
      [&](const Values& x) -> Values {
        const Values swept = repeat(std::max<int64_t>(2 * half - 1, 1), {zero, x[2], x[3]},
                                    [&](const Value&, const Values& y) -> Values {
                                      Value off = y[0];
                                      const Pairs pairs = next_round(rotated({y[1], y[2]}, m, off), half);
                                      return {off, pairs.top, pairs.bottom};
                                    });
        return {x[0] + 1.0, swept[0], swept[1], swept[2]};
      });
  rows = concatenate({result[2], result[3]}, 1);
  if (n % 2 == 1) {
    // The padding column is where the tournament put it at the start: last.
    rows = slice_dim(rows, 1, 0, n);
  }
  // Thousands of rotations let the lengths drift: the rows of v should have length one.
  const Value lengths =
      sqrt(reduce_keep(squared_modulus(slice_dim(rows, 2, m, m + n)), Reduction::kSum, Dims{2}));
  rows = rows / broadcast_to(as_dtype(lengths, a.dtype()), rows.dims());
  const Value norms = sqrt(reduce(squared_modulus(slice_dim(rows, 2, 0, m)), Reduction::kSum, Dims{2}));
  const Compare direction = ascending ? Compare::kLt : Compare::kGt;
  const Values sorted = sort({norms, builder.iota({DType::kS32, {batch, n}}, 1)}, 1, true,
                             [&](const Values& x) -> Values { return {compare(direction, x[0], x[1])}; });
  const Dims count{batch, n, 1};
  const Value pairs = concatenate({builder.iota({DType::kS32, count}, 0), reshape(sorted[1], count)}, 2);
  const Value ordered = gather(rows, pairs, {{2}, {0, 1}, {0, 1}, {1, 1, m + n}, 2});
  return {slice_dim(ordered, 2, 0, m), sorted[0], slice_dim(ordered, 2, m, m + n)};
}

}  // namespace

Svd svd(const Value& a, bool vectors, bool full) {
  Builder& builder = *a.builder;
  const int64_t batch = a.dim(0);
  const int64_t m = a.dim(1);
  const int64_t n = a.dim(2);
  const int64_t k = std::min(m, n);
  if (batch == 0 || k == 0) {
    Svd result;
    result.s = builder.splat(0.0, {real_type(a.dtype()), {batch, k}});
    if (vectors) {
      const int64_t left = full ? m : k;
      const int64_t right = full ? n : k;
      result.u = broadcast_to(identity(builder, a.dtype(), m, left), Dims{batch, m, left});
      result.vh = broadcast_to(identity(builder, a.dtype(), right, n), Dims{batch, right, n});
    }
    return result;
  }
  if (m < n) {
    const Svd other = svd(adjoint(a), vectors, full);
    return vectors ? Svd{adjoint(other.vh), other.s, adjoint(other.u)} : Svd{{}, other.s, {}};
  }
  const Jacobi jacobi = one_sided_jacobi(a, false);
  if (!vectors) return {{}, jacobi.norms, {}};
  // The left vectors: QR of orthogonal columns divides them by their norms and completes the basis
  // where norms vanish. R is real on its diagonal; its signs go to the vectors.
  const Qr qr = qr_factor(transposed(jacobi.columns));
  const Value basis = qr_basis(qr.packed, qr.tau, full ? m : k);
  const Value r = real(diagonal(qr.packed));  // [batch, n]
  Value sign = select(compare(Compare::kLt, r, 0.0), like(r, -1.0), like(r, 1.0));
  if (full && m > n) sign = pad(sign, builder.splat(1.0, {sign.dtype(), {}}), Dims{0, 0}, Dims{0, m - n});
  const Value u = basis * as_dtype(reshape(sign, Dims{batch, 1, sign.dim(1)}), a.dtype());
  return {u, jacobi.norms, conjugate(jacobi.v)};
}

// Adding a bound of its norm makes the matrix positive definite: then its singular vectors are its
// eigenvectors. The eigenvalues are the Rayleigh quotients, free of what the shift rounded away.
Values hermitian_eigen(const Value& a) {
  const int64_t batch = a.dim(0);
  const int64_t n = a.dim(1);
  const Value sums = reduce(abs(a), Reduction::kSum, Dims{2});
  const Value bound = reshape(reduce(sums, Reduction::kMax, Dims{1}), Dims{batch, 1, 1});
  const Value eye = identity(*a.builder, a.dtype(), n, n);
  const Jacobi jacobi = one_sided_jacobi(a + as_dtype(bound, a.dtype()) * eye, true);
  const Value& rows = jacobi.v;
  const Value images = dot_general(rows, a, {{0}, {0}, {2}, {2}}, a.dtype());  // row i: (A v_i)^T
  const Value quotients = reduce(real(images * conjugate(rows)), Reduction::kSum, Dims{2});
  const Value values = sort({quotients}, 1, false,
                            [](const Values& x) -> Values { return {compare(Compare::kLt, x[0], x[1])}; })[0];
  return {values, transposed(rows)};
}

}  // namespace linalg

namespace {

using namespace hlo;

Value empty(Builder& builder, DType dtype) { return builder.splat(0.0, {dtype, {0}}); }

}  // namespace

OP("aten::_linalg_svd") {
  const Value a = op.tensor(0);
  const bool vectors = op.flag(2);
  const Dims batch = linalg::batch_dims(a);
  const Value matrix = linalg::stacked(a);
  const Value is_bad = reduce(is_nan(matrix), Reduction::kOr, Dims{1, 2});
  linalg::check_info(
      op, convert(is_bad, DType::kS32), batch, "linalg.svd",
      "The algorithm failed to converge because the input matrix contained non-finite values.");
  const linalg::Svd result = linalg::svd(matrix, vectors, op.flag(1));
  const Value s = linalg::unstacked(result.s, batch);
  if (!vectors) return {empty(op.builder(), a.dtype()), s, empty(op.builder(), a.dtype())};
  return {linalg::unstacked(result.u, batch), s, linalg::unstacked(result.vh, batch)};
}

OP("aten::_linalg_eigh") {
  const Value a = op.tensor(0);
  const Dims batch = linalg::batch_dims(a);
  const bool vectors = op.flag(2);
  const std::string triangle = op.text(1).empty() ? "L" : op.text(1);
  const Value matrix = linalg::stacked(a);
  const DType real_dtype = real_type(a.dtype());
  const int64_t n = a.dim(-1);
  Value w = op.builder().splat(0.0, {real_dtype, {matrix.dim(0), n}});
  Value v = matrix;
  if (a.type.elements() > 0) {
    // The diagonal counts as real; only one triangle is read.
    const bool lower = triangle == "L" || triangle == "l";
    const Value half = lower ? linalg::lower_part(matrix, -1) : linalg::upper_part(matrix, 1);
    const Value eye = broadcast_to(linalg::identity(op.builder(), DType::kPred, n, n), matrix.dims());
    const Value diagonal = select(eye, linalg::as_dtype(real(matrix), a.dtype()), like(matrix, 0.0));
    const Value whole = half + linalg::adjoint(half) + diagonal;
    const Values pair = linalg::hermitian_eigen(whole);
    w = pair[0];
    v = pair[1];
  }
  return {linalg::unstacked(w, batch), vectors ? reshape(v, a.dims()) : empty(op.builder(), a.dtype())};
}

}  // namespace torch_tpu::ops

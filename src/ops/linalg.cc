// Linear systems, factorisations, determinants and inverses.
#include "ops/linalg.h"

#include "ops/promotion.h"
#include "ops/require.h"

namespace torch_tpu::ops {
namespace {

using namespace hlo;
using linalg::batch_dims;
using linalg::stacked;
using linalg::unstacked;

Dims with(Dims dims, std::initializer_list<int64_t> more) {
  for (const int64_t size : more) dims.push_back(size);
  return dims;
}

// Two stacks of matrices with their leading dimensions broadcast against each other.
std::pair<Value, Value> broadcast_batches(const Value& a, const Value& b) {
  const Dims batch = broadcast_dims(*a.builder, batch_dims(a), batch_dims(b));
  return {broadcast_to(a, with(batch, {a.dim(-2), a.dim(-1)})),
          broadcast_to(b, with(batch, {b.dim(-2), b.dim(-1)}))};
}

Value empty(Builder& builder, DType dtype) { return builder.splat(0.0, {dtype, {0}}); }

Value inverse_from_factor(const Value& factor, bool upper) {
  const Value l = stacked(factor);
  const Value eye = broadcast_to(linalg::identity(*l.builder, l.dtype(), l.dim(1), l.dim(1)), l.dims());
  // (L L^H)^-1 or (U^H U)^-1.
  const Value first =
      linalg::triangular_solve(l, eye, true, !upper, false, upper ? "ADJOINT" : "NO_TRANSPOSE");
  return linalg::triangular_solve(l, first, true, !upper, false, upper ? "NO_TRANSPOSE" : "ADJOINT");
}

}  // namespace

OP("aten::linalg_cholesky_ex") {
  const Value a = op.tensor(0);
  const Value lower = op.flag(1) ? linalg::adjoint(stacked(a)) : stacked(a);
  const linalg::Cholesky factor = linalg::cholesky(lower);
  const Value l = op.flag(1) ? linalg::adjoint(factor.l) : factor.l;
  return {reshape(l, a.dims()), reshape(factor.info, batch_dims(a))};
}

OP("aten::cholesky") {
  const Value a = op.tensor(0);
  const bool upper = op.flag(1);
  const auto [l, info] = linalg::cholesky(upper ? linalg::adjoint(stacked(a)) : stacked(a));
  linalg::check_info(
      op, info, batch_dims(a), "cholesky",
      "The factorization could not be completed because the input is not positive-definite (the "
      "leading minor of order {} is not positive-definite).");
  return {reshape(upper ? linalg::adjoint(l) : l, a.dims())};
}

OP("aten::cholesky_inverse") {
  const Value factor = op.tensor(0);
  const Value is_zero = compare(Compare::kEq, linalg::diagonal(stacked(factor)), 0.0);
  linalg::check_info(
      op, linalg::first_set(is_zero), batch_dims(factor), "cholesky_inverse",
      "The diagonal element {} is zero, the inversion could not be completed because the input "
      "matrix is singular.");
  return {reshape(inverse_from_factor(factor, op.flag(1)), factor.dims())};
}

OP("aten::_cholesky_solve_helper") {
  const Value b = op.tensor(0);
  const Value l = stacked(op.tensor(1));
  const bool upper = op.flag(2);
  const Value first =
      linalg::triangular_solve(l, stacked(b), true, !upper, false, upper ? "ADJOINT" : "NO_TRANSPOSE");
  const Value x = linalg::triangular_solve(l, first, true, !upper, false, upper ? "NO_TRANSPOSE" : "ADJOINT");
  return {reshape(x, b.dims())};
}

OP("aten::linalg_solve_triangular") {
  const auto [a, b] = broadcast_batches(op.tensor(0), op.tensor(1));
  const Value x =
      linalg::triangular_solve(stacked(a), stacked(b), op.flag(3), !op.flag(2), op.flag(4), "NO_TRANSPOSE");
  return {reshape(x, b.dims())};
}

OP("aten::triangular_solve") {
  const auto [b, a] = broadcast_batches(op.tensor(0), op.tensor(1));
  const Value x = linalg::triangular_solve(stacked(a), stacked(b), true, !op.flag(2), op.flag(4),
                                           op.flag(3) ? "TRANSPOSE" : "NO_TRANSPOSE");
  return {reshape(x, b.dims()), a};
}

OP("aten::linalg_qr") {
  const Value a = op.tensor(0);
  const std::string mode = op.text(1).empty() ? "reduced" : op.text(1);
  const linalg::Qr qr = linalg::qr_factor(stacked(a));
  const Dims batch = batch_dims(a);
  const int64_t k = std::min(a.dim(-2), a.dim(-1));
  const int64_t columns = mode == "complete" ? a.dim(-2) : k;
  const Value r = linalg::upper_part(mode == "complete" ? qr.packed : slice_dim(qr.packed, 1, 0, k));
  if (mode == "r") return {empty(op.builder(), a.dtype()), unstacked(r, batch)};
  return {unstacked(linalg::qr_basis(qr.packed, qr.tau, columns), batch), unstacked(r, batch)};
}

OP("aten::geqrf") {
  const Value a = op.tensor(0);
  if (a.rank() < 2) {
    op.fail("torch.geqrf: input must have at least 2 dimensions.");
  }
  const linalg::Qr qr = linalg::qr_factor(stacked(a));
  return {reshape(qr.packed, a.dims()), unstacked(qr.tau, batch_dims(a))};
}

OP("aten::linalg_householder_product") {
  const Value a = op.tensor(0);
  const Value reflectors = stacked(a);
  const Value tau = reshape(op.tensor(1), Dims{reflectors.dim(0), op.tensor(1).dim(-1)});
  return {reshape(linalg::qr_basis(reflectors, tau, a.dim(-1)), a.dims())};
}

OP("aten::ormqr") {
  const Value reflectors = stacked(op.tensor(0));
  const Value tau = reshape(op.tensor(1), Dims{reflectors.dim(0), op.tensor(1).dim(-1)});
  const Value c = op.tensor(2);
  return {reshape(linalg::qr_apply(reflectors, tau, stacked(c), op.flag(3), op.flag(4)), c.dims())};
}

OP("aten::linalg_lu_factor_ex") {
  const Value a = op.tensor(0);
  const linalg::Lu factor = linalg::lu_factor(stacked(a), op.flag(1));
  const Dims batch = batch_dims(a);
  return {reshape(factor.lu, a.dims()), unstacked(factor.pivots, batch), reshape(factor.info, batch)};
}

namespace {

// L with its unit diagonal, U, and the permutation matrix.
Value unit_lower(const Value& lu) {
  const int64_t k = std::min(lu.dim(1), lu.dim(2));
  const Value below = linalg::lower_part(slice_dim(lu, 2, 0, k), -1);
  return below + broadcast_to(linalg::identity(*lu.builder, lu.dtype(), lu.dim(1), k), below.dims());
}

Value upper_of(const Value& lu) {
  return linalg::upper_part(slice_dim(lu, 1, 0, std::min(lu.dim(1), lu.dim(2))));
}

Value permutation_matrix(const Value& pivots, int64_t rows, DType dtype) {
  const Value order = linalg::permutation_of(pivots, rows);
  const Dims dims{order.dim(0), rows, rows};
  const Value column = broadcast_in_dim(order, dims, Dims{0, 2});
  return convert(compare(Compare::kEq, pivots.builder->iota({DType::kS32, dims}, 1), column), dtype);
}

}  // namespace

OP("aten::linalg_lu") {
  const Value a = op.tensor(0);
  const linalg::Lu factor = linalg::lu_factor(stacked(a), op.flag(1));
  const Dims batch = batch_dims(a);
  const Value p = op.flag(1) ? unstacked(permutation_matrix(factor.pivots, a.dim(-2), a.dtype()), batch)
                             : empty(op.builder(), a.dtype());
  return {p, unstacked(unit_lower(factor.lu), batch), unstacked(upper_of(factor.lu), batch)};
}

OP("aten::lu_unpack") {
  const Value lu = op.tensor(0);
  const Value pivots = op.tensor(1);
  const Dims batch = batch_dims(lu);
  Values results(3, empty(op.builder(), lu.dtype()));
  if (op.flag(3)) {
    check_range(op, pivots, 1, lu.dim(-2) + 1, Code::kInvalidArgument,
                "pivots passed to lu_unpack must be between 1 and LU.size(-2) inclusive."
                "Did you properly pass the result of lu_factor?");
    const Value flat = reshape(pivots, Dims{element_count(batch), pivots.dim(-1)});
    results[0] = unstacked(permutation_matrix(flat, lu.dim(-2), lu.dtype()), batch);
  }
  if (op.flag(2)) {
    results[1] = unstacked(unit_lower(stacked(lu)), batch);
    results[2] = unstacked(upper_of(stacked(lu)), batch);
  }
  return results;
}

OP("aten::linalg_lu_solve") {
  const bool left = op.flag(3);
  const Value given = op.tensor(1);
  check_range(op, given, 1, op.tensor(0).dim(-2) + 1, Code::kInvalidArgument,
              "Pivots given to lu_solve must all be smaller or equal to LU.size(-2). "
              "Did you properly pass the result of lu_factor?");
  const auto [lu, b] = broadcast_batches(op.tensor(0), op.tensor(2));
  Dims pivot_dims = batch_dims(lu);
  pivot_dims.push_back(given.dim(-1));
  const Value pivots =
      reshape(broadcast_to(given, pivot_dims), Dims{element_count(batch_dims(lu)), given.dim(-1)});
  if (left) return {reshape(linalg::lu_solve(stacked(lu), pivots, stacked(b), op.flag(4)), b.dims())};
  // X A = B is A^H X^H = B^H.
  const Value x = linalg::lu_solve(stacked(lu), pivots, linalg::adjoint(stacked(b)), !op.flag(4));
  return {reshape(linalg::adjoint(x), b.dims())};
}

namespace {

struct Determinant {
  linalg::Lu factor;
  Value diagonal, parity;  // parity: 1 or -1, in the matrix's dtype
};

// As ATen, a real matrix is factored in its transposed (column-major) form; the gradients of
// _linalg_det, _linalg_slogdet and _linalg_solve_ex rely on that.
Value factored_form(const Value& a) { return is_complex(a.dtype()) ? a : linalg::transposed(a); }

Determinant determinant_of(const Value& a) {
  const linalg::Lu factor = linalg::lu_factor(factored_form(stacked(a)), true);
  const Value numbers = a.builder->iota(factor.pivots.type, 1) + 1.0;
  const Value swaps =
      reduce(convert(compare(Compare::kNe, factor.pivots, numbers), DType::kS32), Reduction::kSum, Dims{1});
  const Value sign = 1.0 - 2.0 * convert(remainder(swaps, like(swaps, 2.0)), real_type(a.dtype()));
  return {factor, linalg::diagonal(factor.lu), linalg::as_dtype(sign, a.dtype())};
}

}  // namespace

OP("aten::_linalg_det") {
  const Value a = op.tensor(0);
  const Dims batch = batch_dims(a);
  const Determinant d = determinant_of(a);
  const Value result = reduce(d.diagonal, Reduction::kProduct, Dims{1}) * d.parity;
  return {reshape(result, batch), reshape(d.factor.lu, a.dims()), unstacked(d.factor.pivots, batch)};
}

OP("aten::_linalg_slogdet") {
  const Value a = op.tensor(0);
  const Dims batch = batch_dims(a);
  const Determinant d = determinant_of(a);
  const Value size = abs(d.diagonal);
  const Value sign = reduce(unary("sign", d.diagonal), Reduction::kProduct, Dims{1}) * d.parity;
  const Value logarithm = reduce(log(size), Reduction::kSum, Dims{1});
  return {reshape(sign, batch), reshape(logarithm, batch), reshape(d.factor.lu, a.dims()),
          unstacked(d.factor.pivots, batch)};
}

OP("aten::linalg_inv_ex") {
  const Value a = op.tensor(0);
  const Value matrix = stacked(a);
  const linalg::Lu factor = linalg::lu_factor(matrix, true);
  const Value eye =
      broadcast_to(linalg::identity(op.builder(), a.dtype(), a.dim(-1), a.dim(-1)), matrix.dims());
  return {reshape(linalg::lu_solve(factor.lu, factor.pivots, eye, false), a.dims()),
          reshape(factor.info, batch_dims(a))};
}

OP("aten::_linalg_solve_ex") {
  const Value a = op.tensor(0);
  const Value b = op.tensor(1);
  const bool left = op.flag(2);
  // A stack of vectors, as numpy.linalg.solve understands it.
  Dims vector_dims = a.dims();
  vector_dims.pop_back();
  const bool vectors = b.rank() == 1 || (a.rank() - 1 == b.rank() && b.dims() == vector_dims);
  Dims with_column = b.dims();
  if (vectors) with_column.push_back(1);
  const auto [wide_a, wide_b] = broadcast_batches(a, reshape(b, with_column));
  // The factors keep the batch of A: X is what broadcasts.
  const Dims batch = batch_dims(a);
  const linalg::Lu factor = linalg::lu_factor(stacked(a), true);
  const Dims wide_batch = batch_dims(wide_a);
  const Value lu =
      stacked(broadcast_to(reshape(factor.lu, a.dims()), with(wide_batch, {a.dim(-2), a.dim(-1)})));
  const Value pivots = reshape(broadcast_to(unstacked(factor.pivots, batch), with(wide_batch, {a.dim(-1)})),
                               Dims{lu.dim(0), a.dim(-1)});
  Value x;
  if (left) {
    x = linalg::lu_solve(lu, pivots, stacked(wide_b), false);
  } else {
    x = linalg::adjoint(linalg::lu_solve(lu, pivots, linalg::adjoint(stacked(wide_b)), true));
  }
  Dims result = wide_b.dims();
  if (vectors) result.pop_back();
  return {reshape(x, result), reshape(factor.lu, a.dims()), unstacked(factor.pivots, batch),
          reshape(factor.info, batch)};
}

}  // namespace torch_tpu::ops

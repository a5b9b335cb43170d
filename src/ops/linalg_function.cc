// The matrix exponential, least squares and the cross product.
#include <cmath>

#include "ops/linalg.h"
#include "ops/promotion.h"

namespace torch_tpu::ops {
namespace {

using namespace hlo;

Value empty(Builder& builder, DType dtype) { return builder.splat(0.0, {dtype, {0}}); }

Value times(const Value& x, double factor) {
  return is_complex(x.dtype()) ? complex(real(x) * factor, imag(x) * factor) : x * factor;
}

// The Taylor polynomial of degree 15 in powers of A^4 (Paterson and Stockmeyer).
Value taylor(const Value& a) {
  const int64_t n = a.dim(1);
  const Value eye = broadcast_to(linalg::identity(*a.builder, a.dtype(), n, n), a.dims());
  const Value a2 = linalg::product(a, a);
  const Value a3 = linalg::product(a2, a);
  const Value a4 = linalg::product(a2, a2);
  const Value powers[4] = {eye, a, a2, a3};
  Value sum;
  for (int block = 3; block >= 0; --block) {
    Value part;
    for (int i = 0; i < 4; ++i) {
      const Value term = times(powers[i], 1.0 / std::tgamma(4 * block + i + 1));
      part = part ? part + term : term;
    }
    sum = sum ? linalg::product(sum, a4) + part : part;
  }
  return sum;
}

}  // namespace

// Scaling and squaring: each matrix is halved until its norm is at most 1/2, where the polynomial has the
// precision of doubles. Rounding errors double with each squaring, so small matrices are squared in double
// precision.
OP("aten::linalg_matrix_exp") {
  const Value a = op.tensor(0);
  if (a.type.elements() == 0) return {a};
  const Value matrix = linalg::widened(linalg::stacked(a));
  const int64_t batch = matrix.dim(0);
  const Value columns = reduce(abs(matrix), Reduction::kSum, Dims{1});
  const Value norm = convert(reduce(columns, Reduction::kMax, Dims{1}), DType::kF32);
  const Value exponent = ceil(log(maximum(norm, like(norm, 1e-30))) * (1.0 / std::log(2.0))) + 1.0;
  const Value halvings = convert(maximum(exponent, like(exponent, 0.0)), DType::kS32);
  const auto half_power = [](const Value& count) {  // 2^-count, exactly
    const Value exponent = 127.0 - count;
    return bitcast(binary("shift_left", exponent, like(exponent, 23.0)), {DType::kF32, count.dims()});
  };
  const Value first = binary("shift_right_arithmetic", halvings, like(halvings, 1.0));
  const auto per_matrix = [&](const Value& x) {
    return reshape(linalg::as_dtype(convert(x, real_type(matrix.dtype())), matrix.dtype()),
                   Dims{batch, 1, 1});
  };
  const Value small = matrix * per_matrix(half_power(first)) * per_matrix(half_power(halvings - first));
  const Value most = minimum(reduce(halvings, Reduction::kMax, Dims{0}),
                             op.builder().splat(int64_t{250}, {DType::kS32, {}}));
  const Values result = while_loop(
      {like(most, 0.0), most, halvings, taylor(small)},
      [](const Values& x) -> Values { return {compare(Compare::kLt, x[0], x[1])}; },
      [&](const Values& x) -> Values {
        const Value active = reshape(compare(Compare::kLt, x[0], x[2]), Dims{batch, 1, 1});
        return {x[0] + 1.0, x[1], x[2], select(active, linalg::product(x[3], x[3]), x[3])};
      });
  return {convert(reshape(result[3], a.dims()), a.dtype())};
}

namespace {

struct LeastSquares {
  Value solution;         // [batch, n, columns]
  Value rank;             // s64 [batch]
  Value singular_values;  // real [batch, min(m, n)]
};

// The solution of least norm among those of least error, through singular values above `cutoff` times the
// largest.
LeastSquares least_squares(const Value& a, const Value& b, const Value& cutoff) {
  const linalg::Svd svd = linalg::svd(a, true, false);
  const int64_t batch = a.dim(0);
  const int64_t k = std::min(a.dim(1), a.dim(2));
  const Value largest = slice_dim(svd.s, 1, 0, 1);
  const Value kept = compare(Compare::kGt, svd.s, largest * cutoff);
  const Value inverse = select(kept, 1.0 / select(kept, svd.s, like(svd.s, 1.0)), like(svd.s, 0.0));
  const Value coordinates = linalg::product(linalg::adjoint(svd.u), b);
  const Value scaled = coordinates * reshape(linalg::as_dtype(inverse, a.dtype()), Dims{batch, k, 1});
  return {linalg::product(linalg::adjoint(svd.vh), scaled),
          reduce(convert(kept, DType::kS64), Reduction::kSum, Dims{1}), svd.s};
}

// The same for matrices of full rank, by reflectors.
Value full_rank_least_squares(Lowering& op, const Value& a, const Value& b) {
  const int64_t m = a.dim(1);
  const int64_t n = a.dim(2);
  const int64_t k = std::min(m, n);
  const linalg::Qr qr = linalg::qr_factor(m >= n ? a : linalg::adjoint(a));
  const Value r = slice_dim(qr.packed, 1, 0, k);
  const Value place = op.builder().iota({DType::kS32, {a.dim(0), k}}, 1) + 1.0;
  op.check(compare(Compare::kEq, linalg::diagonal(r), 0.0), place, Code::kInvalidArgument,
           "torch.linalg.lstsq: The least squares solution could not be computed because the input matrix "
           "does not "
           "have full rank (error code: {}).");
  if (m >= n) {
    const Value coordinates = linalg::qr_apply(qr.packed, qr.tau, b, true, true);
    return linalg::triangular_solve(r, slice_dim(coordinates, 1, 0, n), true, false, false, "NO_TRANSPOSE");
  }
  const Value coordinates = linalg::triangular_solve(r, b, true, false, false, "ADJOINT");
  const Value none = op.builder().splat(0.0, {a.dtype(), {}});
  return linalg::qr_apply(qr.packed, qr.tau, pad(coordinates, none, Dims{0, 0, 0}, Dims{0, n - m, 0}), true,
                          false);
}

}  // namespace

OP("aten::linalg_lstsq") {
  const Value a = op.tensor(0);
  const Value given = op.tensor(1);
  if (a.rank() < 2) {
    op.fail("torch.linalg.lstsq: input must have at least 2 dimensions.");
  }
  if (given.rank() < 1) {
    op.fail("torch.linalg.lstsq: other must have at least 1 dimension.");
  }
  const std::string driver = op.text(3).empty() ? "gelsy" : op.text(3);
  Dims vector_dims = a.dims();
  vector_dims.pop_back();
  const bool vectors = given.rank() == 1 || (a.rank() - 1 == given.rank() && given.dims() == vector_dims);
  Dims matrix_dims = given.dims();
  if (vectors) matrix_dims.push_back(1);
  const Value b = reshape(given, matrix_dims);
  const int64_t m = a.dim(-2);
  const int64_t n = a.dim(-1);
  if (b.dim(-2) != m) {
    op.fail(vectors ? "torch.linalg.lstsq: input.size(-2) should match other.size(-1)"
                    : "torch.linalg.lstsq: input.size(-2) should match other.size(-2)");
  }
  const Dims batch = broadcast_dims(op.builder(), linalg::batch_dims(a), linalg::batch_dims(b));
  const auto widened = [&](const Value& x) {
    Dims dims = batch;
    dims.push_back(x.dim(-2));
    dims.push_back(x.dim(-1));
    return linalg::stacked(broadcast_to(x, dims));
  };
  const Value matrix = widened(a);
  const Value right = widened(b);
  const int64_t k = std::min(m, n);
  const DType real_dtype = real_type(a.dtype());
  Builder& builder = op.builder();
  LeastSquares result{builder.splat(0.0, {a.dtype(), {matrix.dim(0), n, right.dim(2)}}),
                      builder.splat(int64_t{0}, {DType::kS64, {matrix.dim(0)}}),
                      builder.splat(0.0, {real_dtype, {matrix.dim(0), k}})};
  if (k > 0 && matrix.dim(0) > 0 && driver == "gels") {
    result.solution = full_rank_least_squares(op, matrix, right);
  } else if (k > 0 && matrix.dim(0) > 0) {
    const double eps = real_dtype == DType::kF64 ? 2.2204460492503131e-16 : 1.1920929e-07;
    result =
        least_squares(matrix, right,
                      op.has(2) ? op.scalar(2, real_dtype)
                                : builder.splat(eps * static_cast<double>(std::max(m, n)), {real_dtype, {}}));
  }
  Value residuals = empty(builder, real_dtype);
  if (m > n && driver != "gelsy") {
    const Value error = linalg::squared_modulus(right - linalg::product(matrix, result.solution));
    residuals = linalg::unstacked(reduce(error, Reduction::kSum, Dims{1}), batch);
  }
  Dims solution_dims = batch;
  solution_dims.push_back(n);
  if (!vectors) solution_dims.push_back(right.dim(2));
  const bool has_values = driver == "gelsd" || driver == "gelss";
  return {reshape(result.solution, solution_dims), residuals,
          driver == "gels" ? empty(builder, DType::kS64) : reshape(result.rank, batch),
          has_values ? linalg::unstacked(result.singular_values, batch) : empty(builder, real_dtype)};
}

OP("aten::linalg_cross", .distinct = true) {
  const Value left = op.tensor(0);
  const Value right = op.tensor(1);
  const Dims dims = broadcast_dims(op.builder(), left.dims(), right.dims());
  const int64_t dim = op.dim(2, static_cast<int64_t>(dims.size()));
  const Value a = to_compute(broadcast_to(left, dims));
  const Value b = to_compute(broadcast_to(right, dims));
  const auto component = [&](const Value& x, int64_t i) { return slice_dim(x, dim, i % 3, i % 3 + 1); };
  Values parts;
  for (int64_t i = 0; i < 3; ++i) {
    parts.push_back(component(a, i + 1) * component(b, i + 2) - component(a, i + 2) * component(b, i + 1));
  }
  return {convert(concatenate(parts, dim), left.dtype())};
}

}  // namespace torch_tpu::ops

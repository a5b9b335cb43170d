// Pairwise distances (cdist, pdist) and their gradients.
#include <cmath>

#include "ops/op.h"
#include "ops/promotion.h"

namespace torch_tpu::ops {
namespace {

using hlo::Compare;
using hlo::Reduction;

/// Sizes above which torch computes Euclidean distances by matrix multiplication.
constexpr int64_t kMatmulRows = 25;

Dims with_tail(Dims batch, std::initializer_list<int64_t> tail) {
  for (const int64_t size : tail) batch.push_back(size);
  return batch;
}

Dims batch_of(const Value& x) { return Dims(x.dims().begin(), x.dims().end() - 2); }

/// The p-norm over the last dimension.
Value norm_last(const Value& difference, double p) {
  const Dims last{difference.rank() - 1};
  const Value magnitude = hlo::abs(difference);
  if (p == 0) {
    const Value differs = hlo::convert(hlo::compare(Compare::kNe, difference, 0.0), difference.dtype());
    return hlo::reduce(differs, Reduction::kSum, last);
  }
  if (std::isinf(p)) {
    // Not the neutral -inf of a maximum: no columns mean a distance of zero.
    const Value zero = difference.builder->splat(0.0, {difference.dtype(), {}});
    return hlo::reduce({magnitude}, {zero}, last, hlo::combiner(Reduction::kMax))[0];
  }
  if (p == 1) return hlo::reduce(magnitude, Reduction::kSum, last);
  if (p == 2) return hlo::sqrt(hlo::reduce(difference * difference, Reduction::kSum, last));
  const Value sum = hlo::reduce(hlo::power(magnitude, hlo::like(magnitude, p)), Reduction::kSum, last);
  return hlo::power(sum, hlo::like(sum, 1.0 / p));
}

/// x1[..., i, :] - x2[..., j, :] as [..., i, j, :].
Value differences(const Value& x1, const Value& x2) {
  const Dims batch = batch_of(x1);
  const Value rows = hlo::reshape(x1, with_tail(batch, {x1.dim(-2), 1, x1.dim(-1)}));
  const Value columns = hlo::reshape(x2, with_tail(batch, {1, x2.dim(-2), x2.dim(-1)}));
  return rows - columns;
}

/// Batched dot over lhs's last dimension and the given one of rhs.
Value batched_dot(const Value& lhs, const Value& rhs, int64_t rhs_contract) {
  hlo::DotDims dims;
  for (int64_t i = 0; i < lhs.rank() - 2; ++i) {
    dims.lhs_batch.push_back(i);
    dims.rhs_batch.push_back(i);
  }
  dims.lhs_contract = {lhs.rank() - 1};
  dims.rhs_contract = {rhs_contract};
  return hlo::dot_general(lhs, rhs, dims, lhs.dtype());
}

/// sqrt(|a|^2 + |b|^2 - 2ab) as the product of (-2a, |a|^2, 1) and (b, 1, |b|^2): torch's _euclidean_dist,
/// whose rounding errors decide the distances of close points.
Value euclidean_by_matmul(const Value& x1, const Value& x2) {
  const int64_t last = x1.rank() - 1;
  const auto squares = [&](const Value& x) { return hlo::reduce_keep(x * x, Reduction::kSum, Dims{last}); };
  const Value squares1 = squares(x1);
  const Value squares2 = squares(x2);
  const Value left = hlo::concatenate({x1 * -2.0, squares1, hlo::like(squares1, 1.0)}, last);
  const Value right = hlo::concatenate({x2, hlo::like(squares2, 1.0), squares2}, last);
  const Value square = batched_dot(left, right, last);
  return hlo::sqrt(hlo::maximum(square, hlo::like(square, 0.0)));
}

/// Both operands with the same batch dimensions, in the computation dtype.
std::pair<Value, Value> batched(Lowering& op, int first, int second) {
  const Value x1 = to_compute(op.tensor(first));
  const Value x2 = to_compute(op.tensor(second));
  const Dims batch = hlo::broadcast_dims(op.builder(), batch_of(x1), batch_of(x2));
  return {hlo::broadcast_to(x1, with_tail(batch, {x1.dim(-2), x1.dim(-1)})),
          hlo::broadcast_to(x2, with_tail(batch, {x2.dim(-2), x2.dim(-1)}))};
}

bool by_matmul(int64_t rows, int64_t columns) { return rows > kMatmulRows || columns > kMatmulRows; }

/// The gradient of distances [..., i, j] by x1: the formulas of ATen's DistanceOpsKernel.
Value distance_gradient(const Value& grad, const Value& x1, const Value& x2, double p,
                        const Value& distance) {
  if (p == 0) return hlo::like(x1, 0.0);
  const Value zero = hlo::like(distance, 0.0);
  const Value apart = hlo::compare(Compare::kNe, distance, zero);
  if (p == 2 && by_matmul(x1.dim(-2), x2.dim(-2))) {
    const Value weight = hlo::select(apart, grad / distance, zero);
    const Value total = hlo::reduce_keep(weight, Reduction::kSum, Dims{weight.rank() - 1});
    return x1 * total - batched_dot(weight, x2, x2.rank() - 2);
  }
  const Value difference = differences(x1, x2);
  const auto per_pair = [&](const Value& x) { return hlo::reshape(x, with_tail(x.dims(), {1})); };
  const auto powered = [](const Value& x, double exponent) { return hlo::power(x, hlo::like(x, exponent)); };
  const Value none = hlo::like(difference, 0.0);
  Value slope;
  if (p == 1) {
    slope = hlo::sign(difference) * per_pair(grad);
  } else if (std::isinf(p)) {
    const Value widest = hlo::compare(Compare::kEq, hlo::abs(difference), per_pair(distance));
    slope = hlo::select(widest, hlo::sign(difference) * per_pair(grad), none);
  } else if (p == 2) {
    slope = difference * per_pair(hlo::select(apart, grad / distance, zero));
  } else {
    const Value scale = hlo::select(apart, grad / powered(distance, p - 1), zero);
    const Value magnitude = hlo::abs(difference);
    slope = hlo::sign(difference) * powered(magnitude, p - 1) * per_pair(scale);
    // sign(0) * 0^(p - 1) is NaN below 1, and so is 0 * inf for distances of zero.
    slope = hlo::select(hlo::compare(Compare::kNe, difference, none) & per_pair(apart), slope, none);
  }
  return hlo::reduce(slope, Reduction::kSum, Dims{slope.rank() - 2});
}

/// Row and column of the k-th pair i < j of n rows, both s32[n * (n - 1) / 2]: ATen's closed form.
std::pair<Value, Value> pair_positions(Builder& builder, int64_t n) {
  const int64_t pairs = n * (n - 1) / 2;
  const Value k = builder.iota({DType::kF64, {pairs}}, 0);
  const double half = static_cast<double>(n) - 0.5;
  const Value root = hlo::sqrt(half * half - 1.0 - k * 2.0);
  const Value i = hlo::floor(half - root);
  const Value j = k - i * static_cast<double>(n) + i * (i + 1.0) * 0.5 + i + 1.0;
  return {hlo::convert(i, DType::kS32), hlo::convert(j, DType::kS32)};
}

Value rows(const Value& x, const Value& index) {
  return hlo::gather(x, hlo::reshape(index, Dims{index.dim(0), 1}),
                     {.offset_dims = {1},
                      .collapsed_slice_dims = {0},
                      .start_index_map = {0},
                      .slice_sizes = {1, x.dim(1)},
                      .index_vector_dim = 1});
}

/// The symmetric [n, n] matrix with zeros on its diagonal, from the values of the pairs.
Value symmetric(const Value& pairs, int64_t n) {
  Builder& builder = *pairs.builder;
  const Type type{DType::kS32, {n, n}};
  const Value row = builder.iota(type, 0);
  const Value column = builder.iota(type, 1);
  const Value i = hlo::minimum(row, column);
  const Value j = hlo::maximum(row, column);
  // n * i - i * (i + 1) / 2 + j - i - 1
  const Value product = i * (i + 1.0);
  const Value half = hlo::binary("shift_right_arithmetic", product, hlo::like(product, 1.0));
  const Value k = i * static_cast<double>(n) - half + j - i - 1.0;
  const Value all = hlo::gather(pairs, hlo::reshape(k, Dims{n, n, 1}),
                                {.offset_dims = {},
                                 .collapsed_slice_dims = {0},
                                 .start_index_map = {0},
                                 .slice_sizes = {1},
                                 .index_vector_dim = 2});
  return hlo::select(hlo::compare(Compare::kEq, row, column), hlo::like(all, 0.0), all);
}

}  // namespace

OP("aten::_cdist_forward", .structural = {2}) {
  const auto [x1, x2] = batched(op, 0, 1);
  const double p = op.constant(2);
  const int64_t mode = op.integer_or(3, 0);
  const bool matmul = p == 2 && (mode == 1 || (mode == 0 && by_matmul(x1.dim(-2), x2.dim(-2))));
  const Value distance = matmul ? euclidean_by_matmul(x1, x2) : norm_last(differences(x1, x2), p);
  return {hlo::convert(distance, op.tensor(0).dtype())};
}

OP("aten::_euclidean_dist") {
  const auto [x1, x2] = batched(op, 0, 1);
  return {hlo::convert(euclidean_by_matmul(x1, x2), op.tensor(0).dtype())};
}

OP("aten::_cdist_backward", .structural = {3}) {
  // As in torch, an empty operand gives zeros without the broadcast batch dimensions.
  if (op.tensor(1).type.elements() == 0 || op.tensor(2).type.elements() == 0)
    return {hlo::like(op.tensor(1), 0.0)};
  const auto [x1, x2] = batched(op, 1, 2);
  const Value grad = hlo::convert(op.tensor(0), x1.dtype());
  const Value distance = hlo::convert(op.tensor(4), x1.dtype());
  return {hlo::convert(distance_gradient(grad, x1, x2, op.constant(3), distance), op.tensor(1).dtype())};
}

OP("aten::_pdist_forward", .structural = {1}) {
  const Value x = to_compute(op.tensor(0));
  const int64_t n = x.dim(0);
  if (n < 2) return {op.builder().splat(0.0, {op.tensor(0).dtype(), {0}})};
  const auto [i, j] = pair_positions(op.builder(), n);
  return {hlo::convert(norm_last(rows(x, i) - rows(x, j), op.constant(1)), op.tensor(0).dtype())};
}

OP("aten::_pdist_backward", .structural = {2}) {
  const Value x = to_compute(op.tensor(1));
  const int64_t n = x.dim(0);
  if (n < 2) return {hlo::like(op.tensor(1), 0.0)};
  const Value grad = symmetric(hlo::convert(op.tensor(0), x.dtype()), n);
  const Value distance = symmetric(hlo::convert(op.tensor(3), x.dtype()), n);
  return {hlo::convert(distance_gradient(grad, x, x, op.constant(2), distance), op.tensor(1).dtype())};
}

}  // namespace torch_tpu::ops

// Softmax and log-softmax with their gradients, and the masked forms of attention.
#include <limits>

#include "ops/op.h"
#include "ops/promotion.h"
#include "ops/require.h"

namespace torch_tpu::ops {
namespace {

using hlo::Compare;
using hlo::Reduction;

/// The maximum along `dim` that may lose NaN, which XLA:CPU reduces much faster: NaN still reaches
/// every element of its slice through the sum of exponentials.
Value shift_of(const Value& x, int64_t dim) {
  const Value init = hlo::neutral(*x.builder, Reduction::kMax, x.dtype());
  const Value largest = hlo::reduce({x}, {init}, Dims{dim},
                                    [](const Values& v) -> Values { return {hlo::maximum(v[0], v[1])}; })[0];
  Dims kept = x.dims();
  kept[dim] = 1;
  return hlo::reshape(largest, kept);
}

Value sum_keep(const Value& x, int64_t dim) { return hlo::reduce_keep(x, Reduction::kSum, Dims{dim}); }

Value softmax(const Value& x, int64_t dim) {
  const Value exponentials = hlo::exp(x - shift_of(x, dim));
  return exponentials / sum_keep(exponentials, dim);
}

Value log_softmax(const Value& x, int64_t dim) {
  const Value shifted = x - shift_of(x, dim);
  return shifted - hlo::log(sum_keep(hlo::exp(shifted), dim));
}

/// Applies `function(values, dim)` in the computation dtype; a 0-d tensor counts as one element.
template <typename Function>
Value along(Lowering& op, Values values, int dim_arg, DType result, const Function& function) {
  const Dims dims = values[0].dims();
  for (Value& value : values) {
    value = to_compute(value);
    if (dims.empty()) value = hlo::reshape(value, Dims{1});
  }
  const int64_t dim = op.has(dim_arg) ? op.dim(dim_arg, dims.size()) : values[0].rank() - 1;
  return hlo::convert(hlo::reshape(function(values, dim), dims), result);
}

DType forward_dtype(Lowering& op) {
  require_floating(op, op.tensor(0), "softmax");
  return op.flag(2) ? DType::kF32 : op.tensor(0).dtype();
}

/// The mask of _masked_softmax, true where an element is left out, with the shape of x. Type 0 is a
/// [L, L] mask of the last two dimensions, 1 a [B, L] mask of the keys.
Value attention_mask(const Value& mask, const Value& x, int64_t type) {
  if (x.rank() == 4 && mask.rank() == 2 && type == 1) {
    return hlo::broadcast_in_dim(mask, x.dims(), Dims{0, 3});
  }
  return hlo::broadcast_to(mask, x.dims());
}

}  // namespace

OP("aten::_softmax") {
  return {along(op, {op.tensor(0)}, 1, forward_dtype(op),
                [](const Values& v, int64_t dim) { return softmax(v[0], dim); })};
}

OP("aten::_log_softmax") {
  return {along(op, {op.tensor(0)}, 1, forward_dtype(op),
                [](const Values& v, int64_t dim) { return log_softmax(v[0], dim); })};
}

OP("aten::_softmax_backward_data") {
  return {along(op, {op.tensor(0), op.tensor(1)}, 2, *op.dtype(3), [](const Values& v, int64_t dim) {
    const Value weighted = v[0] * v[1];
    return weighted - v[1] * sum_keep(weighted, dim);
  })};
}

OP("aten::_log_softmax_backward_data") {
  return {along(op, {op.tensor(0), op.tensor(1)}, 2, *op.dtype(3),
                [](const Values& v, int64_t dim) { return v[0] - hlo::exp(v[1]) * sum_keep(v[0], dim); })};
}

// A slice of nothing but -inf becomes zeros.
OP("aten::_safe_softmax") {
  const Value x = op.tensor(0);
  const DType dtype = op.dtype(2).value_or(x.dtype());
  return {along(op, {hlo::convert(x, dtype)}, 1, dtype, [](const Values& v, int64_t dim) {
    const Value shift = shift_of(v[0], dim);
    const Value exponentials = hlo::exp(v[0] - shift);
    const Value result = exponentials / sum_keep(exponentials, dim);
    // The maximum may have lost a NaN, but then the row is not all -inf.
    const Value hidden = hlo::compare(Compare::kEq, v[0], -std::numeric_limits<double>::infinity());
    const Value empty = hlo::reduce_keep(hidden, Reduction::kAnd, Dims{dim});
    return hlo::select(empty, hlo::like(result, 0.0), result);
  })};
}

OP("aten::_masked_softmax") {
  const Value x = op.tensor(0);
  const Value mask = attention_mask(hlo::convert(op.tensor(1), DType::kPred), x, op.integer_or(3, 2));
  return {along(op, {x, mask}, 2, x.dtype(), [](const Values& v, int64_t dim) {
    const Value nothing = hlo::like(v[0], -std::numeric_limits<double>::infinity());
    return softmax(hlo::select(v[1], nothing, v[0]), dim);
  })};
}

OP("aten::_masked_softmax_backward") {
  const Value grad = op.tensor(0);
  const Value output = op.tensor(1);
  const Value mask = attention_mask(hlo::convert(op.tensor(2), DType::kPred), output, 2);
  return {along(op, {grad, output, mask}, 3, grad.dtype(), [](const Values& v, int64_t dim) {
    const Value weighted = v[0] * hlo::select(v[2], hlo::like(v[1], 0.0), v[1]);
    const Value result = weighted - v[1] * sum_keep(weighted, dim);
    return hlo::select(v[2], hlo::like(result, 0.0), result);
  })};
}

}  // namespace torch_tpu::ops

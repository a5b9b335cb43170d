// Pointwise losses with their gradients.
#include "ops/loss.h"

#include "ops/op.h"
#include "ops/promotion.h"
#include "ops/require.h"

namespace torch_tpu::ops {

using hlo::Compare;

Value reduce_loss(const Value& loss, int64_t reduction, DType dtype) {
  if (reduction == kNone) return hlo::convert(loss, dtype);
  Dims dims;
  for (int64_t i = 0; i < loss.rank(); ++i) dims.push_back(i);
  const Value sum = hlo::reduce(loss, hlo::Reduction::kSum, dims);
  return hlo::convert(reduction == kMean ? sum / static_cast<double>(loss.type.elements()) : sum, dtype);
}

Value loss_gradient(const Value& grad, int64_t reduction, int64_t elements) {
  return reduction == kMean ? grad / static_cast<double>(elements) : grad;
}

namespace {

/// The operands of a two-operand loss, broadcast and in the computation dtype.
struct Pair {
  Value input, target;
  DType dtype;
};

Pair loss_pair(Lowering& op, int input, int target) {
  const auto [a, b] = promote(op, op.tensor(input), op.tensor(target));
  require_floating(op, a, std::string_view(op.call().op->name).substr(6));  // without "aten::"
  const Dims dims = hlo::broadcast_dims(op.builder(), a.dims(), b.dims());
  return {hlo::broadcast_to(to_compute(a), dims), hlo::broadcast_to(to_compute(b), dims), a.dtype()};
}

/// The gradient of the loss by its elements, and the pair it is a loss of, from the arguments
/// (grad_output, input, target, ..., reduction at `reduction`).
struct Backward {
  Value grad;
  Pair pair;
};

Backward loss_backward(Lowering& op, int reduction) {
  const Pair pair = loss_pair(op, 1, 2);
  const Value grad = hlo::convert(op.tensor(0), pair.input.dtype());
  return {loss_gradient(grad, op.integer(reduction), pair.input.type.elements()), pair};
}

Value weighted(const Value& x, const Value& weight) {
  return weight ? x * hlo::convert(weight, x.dtype()) : x;
}

Value clipped(const Value& x, const Value& bound) {
  return hlo::select(hlo::compare(Compare::kLe, x, -bound), -bound,
                     hlo::select(hlo::compare(Compare::kGe, x, bound), bound, x));
}

/// log(1 + exp(x)) without overflow.
Value softplus(const Value& x) {
  return hlo::maximum(x, hlo::like(x, 0.0)) + hlo::log1p(hlo::exp(-hlo::abs(x)));
}

}  // namespace

OP("aten::mse_loss") {
  const Pair pair = loss_pair(op, 0, 1);
  const Value difference = pair.input - pair.target;
  return {reduce_loss(difference * difference, op.integer(2), pair.dtype)};
}
OP("aten::mse_loss_backward") {
  const auto [grad, pair] = loss_backward(op, 3);
  return {hlo::convert((pair.input - pair.target) * (grad * 2.0), pair.dtype)};
}

OP("aten::smooth_l1_loss") {
  const Pair pair = loss_pair(op, 0, 1);
  const Value beta = op.scalar(3, pair.input.dtype());
  const Value distance = hlo::abs(pair.input - pair.target);
  const Value loss = hlo::select(hlo::compare(Compare::kLt, distance, beta), distance * distance * 0.5 / beta,
                                 distance - beta * 0.5);
  return {reduce_loss(loss, op.integer(2), pair.dtype)};
}
OP("aten::smooth_l1_loss_backward") {
  const auto [grad, pair] = loss_backward(op, 3);
  const Value difference = pair.input - pair.target;
  const Value beta = op.scalar(4, difference.dtype());
  const Value inside = hlo::compare(Compare::kLt, hlo::abs(difference), beta);
  return {hlo::convert(grad * hlo::select(inside, difference / beta, hlo::sign(difference)), pair.dtype)};
}

OP("aten::huber_loss") {
  const Pair pair = loss_pair(op, 0, 1);
  const Value delta = op.scalar(3, pair.input.dtype());
  const Value distance = hlo::abs(pair.input - pair.target);
  const Value loss = hlo::select(hlo::compare(Compare::kLe, distance, delta), distance * distance * 0.5,
                                 delta * (distance - delta * 0.5));
  return {reduce_loss(loss, op.integer(2), pair.dtype)};
}
OP("aten::huber_loss_backward") {
  const auto [grad, pair] = loss_backward(op, 3);
  const Value difference = pair.input - pair.target;
  return {hlo::convert(grad * clipped(difference, op.scalar(4, difference.dtype())), pair.dtype)};
}

// The logarithms are bounded below by -100, as in torch.
OP("aten::binary_cross_entropy") {
  const Pair pair = loss_pair(op, 0, 1);
  check_unit_interval(op, pair.input, "all elements of input should be between 0 and 1");
  check_unit_interval(op, pair.target, "all elements of target should be between 0 and 1");
  const auto bounded = [](const Value& x) { return hlo::maximum(x, hlo::like(x, -100.0)); };
  const Value loss =
      (pair.target - 1.0) * bounded(hlo::log1p(-pair.input)) - pair.target * bounded(hlo::log(pair.input));
  return {reduce_loss(weighted(loss, op.optional_tensor(2)), op.integer(3), pair.dtype)};
}
OP("aten::binary_cross_entropy_backward") {
  const auto [grad, pair] = loss_backward(op, 4);
  const Value spread = (1.0 - pair.input) * pair.input;
  const Value slope = (pair.input - pair.target) / hlo::maximum(spread, hlo::like(spread, 1e-12));
  return {hlo::convert(weighted(grad * slope, op.optional_tensor(3)), pair.dtype)};
}

OP("aten::binary_cross_entropy_with_logits") {
  const Pair pair = loss_pair(op, 0, 1);
  // -log(sigmoid(x))
  Value loss = softplus(-pair.input);
  if (const Value positive = op.optional_tensor(3)) {
    loss = ((hlo::convert(positive, loss.dtype()) - 1.0) * pair.target + 1.0) * loss;
  }
  loss = (1.0 - pair.target) * pair.input + loss;
  return {reduce_loss(weighted(loss, op.optional_tensor(2)), op.integer(4), pair.dtype)};
}

}  // namespace torch_tpu::ops

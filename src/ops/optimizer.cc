// The fused optimizers and the gradient scaler of automatic mixed precision.
//
// These ops update lists of tensors in place. Each returns the new value of every tensor it may
// write, in the order of its lists, flattened; what does not change is returned as it came.
#include "ops/op.h"
#include "ops/promotion.h"

namespace torch_tpu::ops {
namespace {

using hlo::Compare;
using hlo::Reduction;

Value scalar_of(const Value& x) { return hlo::reshape(x, Dims{}); }

/// What every fused optimizer does with a gradient before its own formula.
struct Step {
  Value grad_scale, found_inf;  // empty where not given
  Value weight_decay;           // f64
  bool maximize = false;

  /// The gradient without its scale, in the computation dtype.
  Value unscaled(const Value& grad) const {
    const Value wide = to_compute(grad);
    return grad_scale ? wide / hlo::convert(grad_scale, wide.dtype()) : wide;
  }
  Value direction(const Value& grad) const { return maximize ? -grad : grad; }
  /// `updated`, unless the scaler found an infinity.
  Value keep(const Value& old, const Value& updated) const {
    const Value result = hlo::convert(updated, old.dtype());
    return found_inf ? hlo::select(hlo::compare(Compare::kEq, found_inf, 1.0), old, result) : result;
  }
  Value stored_gradient(const Value& grad) const { return grad_scale ? keep(grad, unscaled(grad)) : grad; }
};

Step step(Lowering& op, int weight_decay, int maximize, int grad_scale) {
  Step step;
  if (op.has(grad_scale)) step.grad_scale = scalar_of(op.tensor(grad_scale));
  if (op.has(grad_scale + 1)) step.found_inf = scalar_of(op.tensor(grad_scale + 1));
  step.weight_decay = op.scalar(weight_decay, DType::kF64);
  step.maximize = op.flag(maximize);
  return step;
}

/// A number or a one-element tensor as rank-0 f64.
Value rate(Lowering& op, int i) { return hlo::convert(scalar_of(op.tensor(i)), DType::kF64); }

/// All step counts as one f64 vector: their powers are taken at once and in double precision, for
/// 1 - 0.999^1 has no digits to lose.
Value step_counts(const Values& counts) {
  Values parts;
  for (const Value& count : counts) parts.push_back(hlo::reshape(hlo::convert(count, DType::kF64), Dims{1}));
  return hlo::concatenate(parts, 0);
}

Value entry(const Value& vector, size_t i, DType dtype) {
  const int64_t start = static_cast<int64_t>(i);
  return hlo::convert(scalar_of(hlo::slice_dim(vector, 0, start, start + 1)), dtype);
}

/// Kingma and Ba, "Adam" (2015), with AMSGrad; `decoupled` is Loshchilov and Hutter's AdamW.
Values adam(Lowering& op, bool decoupled) {
  const Values parameters = op.tensors(0);
  const Values gradients = op.tensors(1);
  const Values averages = op.tensors(2);
  const Values squares = op.tensors(3);
  const Values maxima = op.tensors(4);
  if (parameters.empty()) return {};
  const Value lr = rate(op, 6);
  const Value beta1 = op.scalar(7, DType::kF64);
  const Value beta2 = op.scalar(8, DType::kF64);
  const Value eps = op.scalar(10, DType::kF64);
  const bool amsgrad = op.flag(11);
  const Step s = step(op, 9, 12, 13);
  const Value counts = step_counts(op.tensors(5));
  const Value step_sizes = lr / (1.0 - hlo::power(hlo::broadcast_to(beta1, counts.dims()), counts));
  const Value corrections = hlo::sqrt(1.0 - hlo::power(hlo::broadcast_to(beta2, counts.dims()), counts));
  const Value one_less_beta1 = 1.0 - beta1;
  const Value one_less_beta2 = 1.0 - beta2;
  const Value shrink = 1.0 - lr * s.weight_decay;
  Values new_parameters, new_gradients, new_averages, new_squares, new_maxima;
  for (size_t i = 0; i < parameters.size(); ++i) {
    Value parameter = to_compute(parameters[i]);
    const DType dtype = parameter.dtype();
    const auto number = [dtype](const Value& x) { return hlo::convert(x, dtype); };
    Value grad = hlo::convert(s.direction(s.unscaled(gradients[i])), dtype);
    if (decoupled) {
      parameter = parameter * number(shrink);
    } else {
      grad = grad + parameter * number(s.weight_decay);
    }
    const Value old_average = hlo::convert(averages[i], dtype);
    const Value average = old_average + (grad - old_average) * number(one_less_beta1);
    const Value square =
        hlo::convert(squares[i], dtype) * number(beta2) + grad * grad * number(one_less_beta2);
    Value spread = square;
    if (amsgrad) {
      spread = hlo::maximum(hlo::convert(maxima[i], dtype), square);
      new_maxima.push_back(s.keep(maxima[i], spread));
    }
    const Value denominator = hlo::sqrt(spread) / entry(corrections, i, dtype) + number(eps);
    const Value updated = parameter - entry(step_sizes, i, dtype) * average / denominator;
    new_parameters.push_back(s.keep(parameters[i], updated));
    new_gradients.push_back(s.stored_gradient(gradients[i]));
    new_averages.push_back(s.keep(averages[i], average));
    new_squares.push_back(s.keep(squares[i], square));
  }
  if (!amsgrad) new_maxima = maxima;
  Values results = new_parameters;
  for (const Values* list : {&new_gradients, &new_averages, &new_squares, &new_maxima}) {
    results.insert(results.end(), list->begin(), list->end());
  }
  return results;
}

Values sgd(Lowering& op) {
  const Values parameters = op.tensors(0);
  const Values gradients = op.tensors(1);
  const Values momenta = op.tensors(2);
  if (parameters.empty()) return {};
  const Value momentum = op.scalar(4, DType::kF64);
  const Value lr = rate(op, 5);
  const Value dampening = op.scalar(6, DType::kF64);
  const bool nesterov = op.flag(7);
  const bool first = op.flag(9);
  const Step s = step(op, 3, 8, 10);
  Values new_parameters, new_gradients, new_momenta;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Value parameter = to_compute(parameters[i]);
    const DType dtype = parameter.dtype();
    const auto number = [dtype](const Value& x) { return hlo::convert(x, dtype); };
    Value grad = hlo::convert(s.direction(s.unscaled(gradients[i])), dtype);
    grad = grad + parameter * number(s.weight_decay);
    if (!momenta.empty()) {
      Value buffer = grad;
      if (!first) {
        buffer = hlo::convert(momenta[i], dtype) * number(momentum) + grad * number(1.0 - dampening);
      }
      new_momenta.push_back(s.keep(momenta[i], buffer));
      grad = nesterov ? grad + buffer * number(momentum) : buffer;
    }
    new_parameters.push_back(s.keep(parameters[i], parameter - grad * number(lr)));
    new_gradients.push_back(s.stored_gradient(gradients[i]));
  }
  Values results = new_parameters;
  results.insert(results.end(), new_gradients.begin(), new_gradients.end());
  results.insert(results.end(), new_momenta.begin(), new_momenta.end());
  return results;
}

Values adagrad(Lowering& op, bool with_steps) {
  const Values parameters = op.tensors(0);
  const Values gradients = op.tensors(1);
  const Values sums = op.tensors(2);
  const Values steps = op.tensors(3);
  if (parameters.empty()) return {};
  const Value lr = rate(op, 4);
  const Value decay = op.scalar(5, DType::kF64);
  const Value eps = op.scalar(7, DType::kF64);
  const Step s = step(op, 6, 8, 9);
  const Value rates = lr / (1.0 + (step_counts(steps) - 1.0) * decay);
  Values new_parameters, new_gradients, new_sums;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Value parameter = to_compute(parameters[i]);
    const DType dtype = parameter.dtype();
    const auto number = [dtype](const Value& x) { return hlo::convert(x, dtype); };
    Value grad = hlo::convert(s.direction(s.unscaled(gradients[i])), dtype);
    grad = grad + parameter * number(s.weight_decay);
    const Value sum = hlo::convert(sums[i], dtype) + grad * grad;
    const Value updated = parameter - entry(rates, i, dtype) * grad / (hlo::sqrt(sum) + number(eps));
    new_parameters.push_back(s.keep(parameters[i], updated));
    new_gradients.push_back(s.stored_gradient(gradients[i]));
    new_sums.push_back(s.keep(sums[i], sum));
  }
  Values results = new_parameters;
  results.insert(results.end(), new_gradients.begin(), new_gradients.end());
  results.insert(results.end(), new_sums.begin(), new_sums.end());
  if (with_steps) results.insert(results.end(), steps.begin(), steps.end());
  return results;
}

}  // namespace

OP("aten::_fused_adam") { return adam(op, false); }
OP("aten::_fused_adam.tensor_lr") { return adam(op, false); }
OP("aten::_fused_adamw") { return adam(op, true); }
OP("aten::_fused_adamw.tensor_lr") { return adam(op, true); }
OP("aten::_fused_sgd") { return sgd(op); }
OP("aten::_fused_sgd.tensor_lr") { return sgd(op); }
OP("aten::_fused_adagrad") { return adagrad(op, true); }
OP("aten::_fused_adagrad.tensor_lr") { return adagrad(op, false); }

// The gradients times inv_scale, and found_inf set to 1 if any of them is not finite.
OP("aten::_amp_foreach_non_finite_check_and_unscale") {
  const Value found = op.tensor(1);
  const Value scale = scalar_of(op.tensor(2));
  Value all_finite;
  Values results;
  for (const Value& grad : op.tensors(0)) {
    const Value wide = to_compute(grad);
    results.push_back(hlo::convert(wide * hlo::convert(scale, wide.dtype()), grad.dtype()));
    Dims dims;
    for (int64_t i = 0; i < grad.rank(); ++i) dims.push_back(i);
    const Value finite = hlo::reduce(hlo::is_finite(wide), Reduction::kAnd, dims);
    all_finite = all_finite ? all_finite & finite : finite;
  }
  results.push_back(all_finite ? hlo::select(all_finite, found, hlo::like(found, 1.0)) : found);
  return results;
}

// The scale backs off at an infinity and grows after growth_interval steps without one.
OP("aten::_amp_update_scale") {
  const Value scale = op.tensor(0);
  const Value tracker = op.tensor(1);
  const Value found = hlo::reshape(hlo::compare(Compare::kNe, op.tensor(2), 0.0), scale.dims());
  const Value steps = tracker + 1.0;
  const Value due = hlo::compare(Compare::kEq, steps, static_cast<double>(op.integer(5)));
  const Value grown = scale * op.scalar(3, scale.dtype());
  const Value growing = hlo::reshape(due, scale.dims()) & hlo::is_finite(grown);
  const Value smaller = scale * op.scalar(4, scale.dtype());
  const Value zero = hlo::like(tracker, 0.0);
  const Value new_scale = hlo::select(found, smaller, hlo::select(growing, grown, scale));
  const Value new_tracker = hlo::select(hlo::reshape(found, tracker.dims()) | due, zero, steps);
  return {new_scale, new_tracker};
}

}  // namespace torch_tpu::ops

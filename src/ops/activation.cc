// Activation functions and their derivatives.
#include <cmath>
#include <numbers>

#include "ops/pointwise.h"

namespace torch_tpu::ops {
namespace {

using hlo::convert;
using hlo::like;
using hlo::maximum;
using hlo::minimum;
using hlo::select;

/// The arguments of one activation: tensors in the compute dtype of their common dtype.
struct Inputs {
  Lowering& op;
  DType dtype;
  Values tensors;

  Inputs(Lowering& op, std::initializer_list<int> positions) : op(op) {
    Values arguments;
    for (const int i : positions) arguments.push_back(op.tensor(i));
    dtype = result_type(op, arguments);
    for (const Value& argument : arguments) tensors.push_back(convert(argument, compute_dtype(dtype)));
  }
  const Value& operator[](size_t i) const { return tensors[i]; }
  /// The Scalar argument `i` in the compute dtype.
  Value scalar(int i) const { return op.scalar(i, compute_dtype(dtype)); }
  Values result(const Value& x) const { return {convert(x, dtype)}; }
};

Value zero(const Value& x) { return like(x, 0.0); }
Value at_least(const Value& x, const Value& bound) { return hlo::compare(hlo::Compare::kGe, x, bound); }
Value at_most(const Value& x, const Value& bound) { return hlo::compare(hlo::Compare::kLe, x, bound); }
Value positive(const Value& x) { return greater(x, 0.0); }

/// min(max(x + 3, 0), 6)
Value hard_gate(const Value& x) { return minimum(maximum(x + 3.0, zero(x)), like(x, 6.0)); }

constexpr double kGeluKappa = 0.044715;
constexpr double kGeluBeta = 0.7978845608028654;        // sqrt(2 / pi)
constexpr double kInverseSqrt2Pi = 0.3989422804014327;  // 1 / sqrt(2 pi)

bool is_tanh_gelu(Lowering& op, int i) {
  const std::string form = op.has(i) ? op.text(i) : "none";
  if (form != "none" && form != "tanh") op.fail("approximate argument must be either none or tanh.");
  return form == "tanh";
}

Value gaussian_cdf(const Value& x) { return 0.5 * (1.0 + hlo::erf(x * std::numbers::sqrt2 * 0.5)); }

Value gelu_slope(const Value& x, bool tanh_form) {
  if (!tanh_form) return gaussian_cdf(x) + x * hlo::exp(x * x * -0.5) * kInverseSqrt2Pi;
  const Value square = x * x;
  const Value bent = hlo::tanh(kGeluBeta * (x + kGeluKappa * square * x));
  const Value inner = kGeluBeta * (1.0 + 3.0 * kGeluKappa * square);
  return 0.5 * (1.0 + bent) + 0.5 * x * (1.0 - bent * bent) * inner;
}

std::pair<Value, Value> halves(const Value& x, int64_t dim) {
  const int64_t size = x.dim(dim);
  return {hlo::slice_dim(x, dim, 0, size / 2), hlo::slice_dim(x, dim, size / 2, size)};
}

}  // namespace

OP("aten::relu") {
  const Value x = op.tensor(0);
  return {maximum(x, zero(x))};
}

OP("aten::threshold") {
  const Value x = op.tensor(0);
  return {select(at_most(x, op.scalar(1, x.dtype())), op.scalar(2, x.dtype()), x)};
}
OP("aten::threshold_backward") {
  const auto [grad, x] = promote(op, op.tensor(0), op.tensor(1));
  return {select(at_most(x, op.scalar(2, x.dtype())), zero(grad), grad)};
}

OP("aten::gelu") {
  const Inputs in(op, {0});
  const Value& x = in[0];
  if (!is_tanh_gelu(op, 1)) return in.result(x * gaussian_cdf(x));
  return in.result(0.5 * x * (1.0 + hlo::tanh(kGeluBeta * (x + kGeluKappa * x * x * x))));
}
OP("aten::gelu_backward") {
  const Inputs in(op, {0, 1});
  return in.result(in[0] * gelu_slope(in[1], is_tanh_gelu(op, 2)));
}

OP("aten::silu") {
  const Inputs in(op, {0});
  return in.result(in[0] * hlo::logistic(in[0]));
}
OP("aten::silu_backward") {
  const Inputs in(op, {0, 1});
  const Value gate = hlo::logistic(in[1]);
  return in.result(in[0] * gate * (1.0 + in[1] * (1.0 - gate)));
}

OP("aten::mish") {
  const Inputs in(op, {0});
  return in.result(in[0] * hlo::tanh(hlo::log1p(hlo::exp(in[0]))));
}
OP("aten::mish_backward") {
  const Inputs in(op, {0, 1});
  const Value gate = hlo::logistic(in[1]);
  const Value bent = hlo::tanh(hlo::log1p(hlo::exp(in[1])));
  return in.result(in[0] * (bent + in[1] * gate * (1.0 - bent * bent)));
}

OP("aten::sigmoid_backward") {
  const Inputs in(op, {0, 1});
  return in.result(in[0] * conjugate((1.0 - in[1]) * in[1]));
}
OP("aten::tanh_backward") {
  const Inputs in(op, {0, 1});
  return in.result(in[0] * conjugate(1.0 - in[1] * in[1]));
}

OP("aten::elu") {
  const Inputs in(op, {0});
  const Value& x = in[0];
  const Value scale = in.scalar(2);
  return in.result(select(positive(x), x * scale, hlo::expm1(x * in.scalar(3)) * (in.scalar(1) * scale)));
}
OP("aten::elu_backward") {
  const Inputs in(op, {0, 5});
  const Value &grad = in[0], &x = in[1];
  const Value scale = in.scalar(2);
  const Value depth = in.scalar(1) * scale;
  const Value input_scale = in.scalar(3);
  const Value slope = op.flag(4) ? x + depth : depth * hlo::exp(x * input_scale);
  return in.result(select(positive(x), grad * scale, grad * input_scale * slope));
}

OP("aten::leaky_relu") {
  const Inputs in(op, {0});
  return in.result(select(positive(in[0]), in[0], in[0] * in.scalar(1)));
}
OP("aten::leaky_relu_backward") {
  const Inputs in(op, {0, 1});
  return in.result(select(positive(in[1]), in[0], in[0] * in.scalar(2)));
}

OP("aten::_prelu_kernel") {
  const Inputs in(op, {0, 1});
  return in.result(select(positive(in[0]), in[0], in[1] * in[0]));
}
OP("aten::_prelu_kernel_backward") {
  const Inputs in(op, {0, 1, 2});
  const Value mask = positive(in[1]);
  const Value product = in[1] * in[0];
  return {convert(select(mask, in[0], in[2] * in[0]), in.dtype),
          convert(select(mask, zero(product), product), in.dtype)};
}

OP("aten::hardtanh") {
  const Value x = op.tensor(0);
  return {minimum(maximum(x, op.scalar(1, x.dtype())), op.scalar(2, x.dtype()))};
}
OP("aten::hardtanh_backward") {
  const Inputs in(op, {0, 1});
  const Value flat = at_most(in[1], in.scalar(2)) | at_least(in[1], in.scalar(3));
  return in.result(select(flat, zero(in[0]), in[0]));
}

OP("aten::hardsigmoid") {
  const Inputs in(op, {0});
  return in.result(hard_gate(in[0]) / 6.0);
}
OP("aten::hardsigmoid_backward") {
  const Inputs in(op, {0, 1});
  const Value inside = greater(in[1], -3.0) & less(in[1], 3.0);
  return in.result(select(inside, in[0] / 6.0, zero(in[0])));
}

OP("aten::hardswish") {
  const Inputs in(op, {0});
  return in.result(in[0] * hard_gate(in[0]) / 6.0);
}
OP("aten::hardswish_backward") {
  const Inputs in(op, {0, 1});
  const Value &grad = in[0], &x = in[1];
  const Value inner = grad * (x / 3.0 + 0.5);
  return in.result(select(at_most(x, like(x, -3.0)), zero(grad), select(less(x, 3.0), inner, grad)));
}

OP("aten::softplus") {
  const Inputs in(op, {0});
  const Value beta = in.scalar(1);
  const Value scaled = in[0] * beta;
  return in.result(select(greater(scaled, in.scalar(2)), in[0], hlo::log1p(hlo::exp(scaled)) / beta));
}
OP("aten::softplus_backward") {
  const Inputs in(op, {0, 1});
  const Value scaled = in[1] * in.scalar(2);
  const Value z = hlo::exp(scaled);
  return in.result(select(greater(scaled, in.scalar(3)), in[0], in[0] * z / (z + 1.0)));
}

OP("aten::softshrink") {
  const Inputs in(op, {0});
  const Value& x = in[0];
  const Value bound = in.scalar(1);
  // x * 0 keeps NaN.
  return in.result(select(greater(x, bound), x - bound, select(less(x, -bound), x + bound, x * 0.0)));
}

#define SHRINK_BACKWARD(name)                                           \
  OP(name) {                                                            \
    const Inputs in(op, {0, 1});                                        \
    const Value bound = in.scalar(2);                                   \
    const Value flat = at_least(in[1], -bound) & at_most(in[1], bound); \
    return in.result(select(flat, zero(in[0]), in[0]));                 \
  }
SHRINK_BACKWARD("aten::softshrink_backward")
SHRINK_BACKWARD("aten::hardshrink_backward")

OP("aten::hardshrink") {
  const Inputs in(op, {0});
  const Value bound = in.scalar(1);
  return in.result(select(at_least(in[0], -bound) & at_most(in[0], bound), zero(in[0]), in[0]));
}

OP("aten::log_sigmoid_forward") {
  const Inputs in(op, {0});
  const Value buffer = hlo::exp(-hlo::abs(in[0]));
  return {convert(minimum(in[0], zero(in[0])) - hlo::log1p(buffer), in.dtype), convert(buffer, in.dtype)};
}
OP("aten::log_sigmoid_backward") {
  // The buffer of the forward pass spares an exponential at the price of a memory read; not here.
  const Inputs in(op, {0, 1});
  return in.result(in[0] * hlo::logistic(-in[1]));
}

OP("aten::logit") {
  const Value x = to_inexact(op, op.tensor(0));
  Value wide = to_compute(x);
  if (op.has(1)) {
    const Value low = op.scalar(1, wide.dtype());
    const Value high = 1.0 - low;
    wide = select(less(wide, low), low, select(greater(wide, high), high, wide));
  }
  return {convert(hlo::log(wide / (1.0 - wide)), x.dtype())};
}
OP("aten::logit_backward") {
  const Inputs in(op, {0, 1});
  const Value &grad = in[0], &x = in[1];
  const Value inner = grad / (x * (1.0 - x));
  if (!op.has(2)) {
    return in.result(select(less(x, 0.0) | greater(x, 1.0), like(inner, NAN), inner));
  }
  const Value low = in.scalar(2);
  return in.result(select(less(x, low) | greater(x, 1.0 - low), zero(inner), inner));
}

OP("aten::glu") {
  const Inputs in(op, {0});
  const auto [a, b] = halves(in[0], op.dim(1, in[0].rank()));
  return in.result(a * hlo::logistic(b));
}
OP("aten::glu_backward") {
  const Inputs in(op, {0, 1});
  const int64_t dim = op.dim(2, in[1].rank());
  const auto [a, b] = halves(in[1], dim);
  const Value gate = hlo::logistic(b);
  const Value first = in[0] * gate;
  return in.result(hlo::concatenate({first, first * a * (1.0 - gate)}, dim));
}
OP("aten::glu_jvp") {
  const Inputs in(op, {0, 1, 2});
  const int64_t dim = op.dim(3, in[1].rank());
  const auto [a, b] = halves(in[1], dim);
  const auto [da, db] = halves(in[2], dim);
  const Value gate = hlo::logistic(b);
  return in.result(da * gate + db * in[0] * (1.0 - gate));
}
OP("aten::glu_backward_jvp") {
  // The derivatives of grad * s and grad * a * s * (1 - s) with s = sigmoid(b); grad_x isn't needed.
  const Inputs in(op, {1, 2, 3, 4});
  const Value &grad = in[0], &dgrad = in[2];
  const int64_t dim = op.dim(5, in[1].rank());
  const auto [a, b] = halves(in[1], dim);
  const auto [da, db] = halves(in[3], dim);
  const Value gate = hlo::logistic(b);
  const Value slope = gate * (1.0 - gate);
  const Value first = dgrad * gate + grad * slope * db;
  const Value second = slope * (dgrad * a + grad * (da + a * (1.0 - 2.0 * gate) * db));
  return in.result(hlo::concatenate({first, second}, dim));
}

}  // namespace torch_tpu::ops

// Layer, group and weight normalization with their gradients, and renorm.
#include "ops/normalization.h"

#include <cmath>
#include <limits>

#include "ops/promotion.h"
#include "ops/require.h"

namespace torch_tpu::ops {
namespace {

using hlo::Compare;
using hlo::Reduction;

Dims range(int64_t begin, int64_t end) {
  Dims dims;
  for (int64_t i = begin; i < end; ++i) dims.push_back(i);
  return dims;
}

Value sum_keep(const Value& x, const Dims& dims) { return hlo::reduce_keep(x, Reduction::kSum, dims); }

double count(const Value& x, const Dims& dims) {
  double count = 1;
  for (const int64_t dim : dims) count *= static_cast<double>(x.dim(dim));
  return count;
}

struct Normalized {
  Value x;  // (x - mean) * rstd
  Value mean, rstd;
};

/// Two passes over the data: one-pass variances cancel for a large mean.
Normalized normalize(const Value& x, const Dims& dims, const Value& eps) {
  const double size = count(x, dims);
  const Value mean = sum_keep(x, dims) / size;
  const Value centered = x - mean;
  const Value variance = sum_keep(centered * centered, dims) / size;
  const Value rstd = hlo::rsqrt(variance + eps);
  return {centered * rstd, mean, rstd};
}

/// weight and bias applied where present, both broadcast to x.
Value affine(Value x, const Value& weight, const Value& bias) {
  if (weight) x = x * hlo::convert(weight, x.dtype());
  if (bias) x = x + hlo::convert(bias, x.dtype());
  return x;
}

/// The gradient through (x - mean) * rstd, where mean and rstd depend on x.
Value normalized_gradient(const Value& grad, const Value& normalized, const Value& rstd, const Dims& dims) {
  const double size = count(grad, dims);
  const Value mean_grad = sum_keep(grad, dims) / size;
  const Value mean_product = sum_keep(grad * normalized, dims) / size;
  return (grad - mean_grad - normalized * mean_product) * rstd;
}

/// A per-channel tensor as [1, groups, channels / groups, 1].
Value per_channel(const Value& x, DType dtype, int64_t groups) {
  if (x.builder == nullptr) return x;
  return hlo::convert(hlo::reshape(x, Dims{1, groups, x.type.elements() / groups, 1}), dtype);
}

/// All dimensions but `dim`; for dim -1 all of them (one norm for the whole tensor).
Dims all_but(const Value& x, int64_t dim) {
  Dims dims;
  for (int64_t i = 0; i < x.rank(); ++i) {
    if (i != dim) dims.push_back(i);
  }
  return dims;
}

}  // namespace

DType statistics_dtype(const Lowering& op, const Value& input, const Values& parameters) {
  const DType dtype = input.dtype();
  DType first = dtype;
  bool found = false;
  for (const Value& parameter : parameters) {
    if (parameter.builder == nullptr) continue;
    if (!found) first = parameter.dtype();
    found = true;
    if (first == dtype || parameter.dtype() == DType::kF32) continue;
    op.fail("mixed dtype (CPU): expect parameter to have scalar type of Float");
  }
  if (first == dtype) return dtype;
  if (dtype != DType::kBF16 && dtype != DType::kF16) {
    op.fail("mixed dtype (CPU): expect input to have scalar type of BFloat16");
  }
  return DType::kF32;
}

OP("aten::native_layer_norm", .meta_results = 1) {
  const Value input = op.tensor(0);
  require_floating(op, input, "layer_norm");
  const Value x = to_compute(input);
  const Dims dims = range(x.rank() - static_cast<int64_t>(op.integers(1).size()), x.rank());
  const Value weight = op.optional_tensor(2);
  const Value bias = op.optional_tensor(3);
  const DType statistics = statistics_dtype(op, input, {weight, bias});
  const Normalized n = normalize(x, dims, op.scalar(4, x.dtype()));
  return {hlo::convert(affine(n.x, weight, bias), input.dtype()), hlo::convert(n.mean, statistics),
          hlo::convert(n.rstd, statistics)};
}

OP("aten::native_layer_norm_backward") {
  const Value input = op.tensor(1);
  const Value x = to_compute(input);
  const Value grad = hlo::convert(op.tensor(0), x.dtype());
  const int64_t axis = x.rank() - static_cast<int64_t>(op.integers(2).size());
  const Value mean = hlo::convert(op.tensor(3), x.dtype());
  const Value rstd = hlo::convert(op.tensor(4), x.dtype());
  const Value weight = op.optional_tensor(5);
  const Value bias = op.optional_tensor(6);
  const std::vector<bool> mask = op.flags(7);
  const Value normalized = (x - mean) * rstd;
  const Dims outer = range(0, axis);
  Values results(3);
  if (mask[0]) {
    const Value scaled = affine(grad, weight, {});
    const Dims inner = range(axis, x.rank());
    results[0] = hlo::convert(normalized_gradient(scaled, normalized, rstd, inner), input.dtype());
  }
  if (mask[1] && weight) {
    results[1] = hlo::convert(hlo::reduce(grad * normalized, Reduction::kSum, outer), weight.dtype());
  }
  if (mask[2] && bias) results[2] = hlo::convert(hlo::reduce(grad, Reduction::kSum, outer), bias.dtype());
  return results;
}

OP("aten::native_group_norm", .meta_results = 1) {
  const Value input = op.tensor(0);
  require_floating(op, input, "group_norm");
  const int64_t batch = op.integer(3);
  const int64_t channels = op.integer(4);
  const int64_t groups = op.integer(6);
  const Dims split{batch, groups, channels / groups, op.integer(5)};
  const Value x = hlo::reshape(to_compute(input), split);
  const Normalized n = normalize(x, {2, 3}, op.scalar(7, x.dtype()));
  const Value weight = op.optional_tensor(1);
  const Value bias = op.optional_tensor(2);
  const DType statistics = statistics_dtype(op, input, {weight, bias});
  const Value result =
      affine(n.x, per_channel(weight, x.dtype(), groups), per_channel(bias, x.dtype(), groups));
  const auto statistic = [&](const Value& value) {
    return hlo::convert(hlo::reshape(value, Dims{batch, groups}), statistics);
  };
  return {hlo::convert(hlo::reshape(result, input.dims()), input.dtype()), statistic(n.mean),
          statistic(n.rstd)};
}

OP("aten::native_group_norm_backward") {
  const Value input = op.tensor(1);
  const int64_t batch = op.integer(5);
  const int64_t channels = op.integer(6);
  const int64_t groups = op.integer(8);
  const Dims split{batch, groups, channels / groups, op.integer(7)};
  const Value x = hlo::reshape(to_compute(input), split);
  const Value grad = hlo::reshape(hlo::convert(op.tensor(0), x.dtype()), split);
  const auto statistic = [&](const Value& value) {
    return hlo::convert(hlo::reshape(value, Dims{batch, groups, 1, 1}), x.dtype());
  };
  const Value rstd = statistic(op.tensor(3));
  const Value normalized = (x - statistic(op.tensor(2))) * rstd;
  const Value weight = op.optional_tensor(4);
  const std::vector<bool> mask = op.flags(9);
  const auto channel_sum = [&](const Value& value) {
    const Value sum = hlo::reshape(hlo::reduce(value, Reduction::kSum, Dims{0, 3}), Dims{channels});
    return hlo::convert(sum, weight ? weight.dtype() : input.dtype());
  };
  Values results(3);
  if (mask[0]) {
    const Value scaled = affine(grad, per_channel(weight, x.dtype(), groups), {});
    const Value result = normalized_gradient(scaled, normalized, rstd, {2, 3});
    results[0] = hlo::convert(hlo::reshape(result, input.dims()), input.dtype());
  }
  if (mask[1]) results[1] = channel_sum(grad * normalized);
  if (mask[2]) results[2] = channel_sum(grad);
  return results;
}

// x / sqrt(mean of x^2 + eps), times the weight. The second result stays as wide as it is computed.
OP("aten::_fused_rms_norm") {
  const Value input = op.tensor(0);
  const Value x = to_compute(input);
  const Dims dims = range(x.rank() - static_cast<int64_t>(op.integers(1).size()), x.rank());
  const bool is_double = hlo::real_type(x.dtype()) == DType::kF64;
  const double least =
      is_double ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon();
  const Value eps = op.has(3) ? op.scalar(3, x.dtype()) : op.builder().splat(least, {x.dtype(), {}});
  const Value rstd = hlo::rsqrt(sum_keep(x * x, dims) / count(x, dims) + eps);
  return {hlo::convert(affine(x * rstd, op.optional_tensor(2), {}), input.dtype()), rstd};
}

OP("aten::_fused_rms_norm_backward") {
  const Value input = op.tensor(1);
  const Value x = to_compute(input);
  const Value grad = hlo::convert(op.tensor(0), x.dtype());
  const int64_t axis = x.rank() - static_cast<int64_t>(op.integers(2).size());
  const Dims inner = range(axis, x.rank());
  const Value rstd = hlo::convert(op.tensor(3), x.dtype());
  const Value weight = op.optional_tensor(4);
  const std::vector<bool> mask = op.flags(5);
  const Value normalized = x * rstd;
  Values results(2);
  if (mask[0]) {
    const Value scaled = affine(grad, weight, {});
    const Value mean_product = sum_keep(scaled * normalized, inner) / count(x, inner);
    results[0] = hlo::convert((scaled - normalized * mean_product) * rstd, input.dtype());
  }
  if (mask[1] && weight) {
    results[1] = hlo::convert(hlo::reduce(grad * normalized, Reduction::kSum, range(0, axis)), input.dtype());
  }
  return results;
}

// w = v * g / |v|, the norm taken over all dimensions but `dim`.
OP("aten::_weight_norm_interface") {
  const Value v = op.tensor(0);
  const Value wide = to_compute(v);
  const Value norms = hlo::sqrt(sum_keep(wide * wide, all_but(v, op.dim(2, v.rank()))));
  const Value g = hlo::convert(op.tensor(1), wide.dtype());
  return {hlo::convert(wide * (g / norms), v.dtype()), norms};
}

OP("aten::_weight_norm_interface_backward") {
  const Value v = op.tensor(1);
  const Value wide = to_compute(v);
  const DType dtype = wide.dtype();
  const Value grad = hlo::convert(op.tensor(0), dtype);
  const Value g = hlo::convert(op.tensor(2), dtype);
  const Value norms = hlo::convert(op.tensor(3), dtype);
  const Value product = sum_keep(grad * wide, all_but(v, op.dim(4, v.rank())));
  const Value grad_v = (g / norms) * (grad - wide * (product / (norms * norms)));
  return {hlo::convert(grad_v, v.dtype()), hlo::convert(product / norms, op.tensor(2).dtype())};
}

// Slices along `dim` whose p-norm exceeds maxnorm are scaled down to it.
OP("aten::renorm", .structural = {1}) {
  const Value x = op.tensor(0);
  const Value wide = to_compute(x);
  const Dims dims = all_but(x, op.dim(2, x.rank()));
  const double p = op.constant(1);
  const Value magnitude = hlo::abs(wide);
  Value norm;
  if (std::isinf(p)) {
    norm = hlo::reduce_keep(magnitude, Reduction::kMax, dims);
  } else if (p == 1) {
    norm = sum_keep(magnitude, dims);
  } else if (p == 2) {
    norm = hlo::sqrt(sum_keep(magnitude * magnitude, dims));
  } else {
    norm = sum_keep(hlo::power(magnitude, hlo::like(magnitude, p)), dims);
    norm = hlo::power(norm, hlo::like(norm, 1.0 / p));
  }
  const Value limit = op.scalar(3, norm.dtype());
  // The 1e-7 is torch's (renorm kernels of ATen).
  const Value factor =
      hlo::select(hlo::compare(Compare::kGt, norm, limit), limit / (norm + 1e-7), hlo::like(norm, 1.0));
  return {hlo::convert(wide * hlo::convert(factor, wide.dtype()), x.dtype())};
}

}  // namespace torch_tpu::ops

// Batch normalization: the forms that own running statistics, the pieces of the synchronized form,
// and the gradients.
//
// Ops that update running_mean and running_var in place (.writes) return the new statistics after
// their results; an empty Value leaves the argument as it is.
#include "ops/normalization.h"
#include "ops/promotion.h"
#include "ops/require.h"

namespace torch_tpu::ops {
namespace {

using hlo::Reduction;

Dims all_but_channel(const Value& x) {
  Dims dims;
  for (int64_t i = 0; i < x.rank(); ++i) {
    if (i != 1) dims.push_back(i);
  }
  return dims;
}

/// Elements of one channel.
double channel_size(const Value& x) {
  double size = 1;
  for (const int64_t dim : all_but_channel(x)) size *= static_cast<double>(x.dim(dim));
  return size;
}

Value channel_sum(const Value& x) { return hlo::reduce(x, Reduction::kSum, all_but_channel(x)); }

/// A [C] tensor with the rank of x and dtype of the computation.
Value per_channel(const Value& statistic, const Value& x) {
  Dims dims(x.dims().size(), 1);
  dims[1] = x.dim(1);
  return hlo::reshape(hlo::convert(statistic, x.dtype()), dims);
}

struct Statistics {
  Value mean;
  Value deviations;  // the sum of squared deviations from the mean
};

/// Two passes: one-pass variances cancel for a large mean.
Statistics statistics(const Value& x) {
  const Value mean = channel_sum(x) / channel_size(x);
  const Value centered = x - per_channel(mean, x);
  return {mean, channel_sum(centered * centered)};
}

Value apply(const Value& x, const Value& mean, const Value& invstd, const Value& weight, const Value& bias) {
  Value result = (x - per_channel(mean, x)) * per_channel(invstd, x);
  if (weight) result = result * per_channel(weight, x);
  if (bias) result = result + per_channel(bias, x);
  return result;
}

/// (1 - momentum) * running + momentum * current, in the dtype of `running`; empty without it.
Value update(const Value& running, const Value& current, const Value& momentum) {
  if (running.builder == nullptr) return {};
  const Value old = hlo::convert(running, current.dtype());
  return hlo::convert(old + momentum * (current - old), running.dtype());
}

struct Arguments {
  Value weight, bias, running_mean, running_var;
  bool training = true;
  int momentum = 0, eps = 0;  // positions
};

/// Output, mean and inverse deviation (empty in evaluation), then `extra` (a result between them and the
/// statistics), then the new running statistics: empty unless training and present.
Values batch_norm(Lowering& op, const Arguments& a, const Values& extra = {}) {
  const Value input = op.tensor(0);
  require_floating(op, input, "batch_norm");
  const DType saved = statistics_dtype(op, input, {a.weight, a.bias, a.running_mean, a.running_var});
  const Value x = to_compute(input);
  const DType dtype = x.dtype();
  const Value eps = op.scalar(a.eps, dtype);
  Values results(3);
  Value mean, variance, new_mean, new_variance;
  if (a.training) {
    const Statistics s = statistics(x);
    const Value momentum = op.scalar(a.momentum, dtype);
    mean = s.mean;
    variance = s.deviations / channel_size(x);
    new_mean = update(a.running_mean, mean, momentum);
    new_variance = update(a.running_var, s.deviations / (channel_size(x) - 1), momentum);
  } else {
    mean = hlo::convert(a.running_mean, dtype);
    variance = hlo::convert(a.running_var, dtype);
  }
  const Value invstd = hlo::rsqrt(variance + eps);
  results[0] = hlo::convert(apply(x, mean, invstd, a.weight, a.bias), input.dtype());
  const Value none = op.builder().splat(0.0, {saved, {0}});
  results[1] = a.training ? hlo::convert(mean, saved) : none;
  results[2] = a.training ? hlo::convert(invstd, saved) : none;
  results.insert(results.end(), extra.begin(), extra.end());
  results.push_back(new_mean);
  results.push_back(new_variance);
  return results;
}

Arguments arguments(Lowering& op, bool training, int momentum) {
  return {op.optional_tensor(1),
          op.optional_tensor(2),
          op.optional_tensor(3),
          op.optional_tensor(4),
          training,
          momentum,
          momentum + 1};
}

/// The buffer that cuDNN would keep for its gradient: empty here.
Value reserve(Lowering& op) { return op.builder().splat(int64_t{0}, {DType::kU8, {0}}); }

/// The gradients by input, weight and bias. The arguments of both backward ops are the same up to
/// output_mask.
Values batch_norm_backward(Lowering& op) {
  const Value input = op.tensor(1);
  const Value x = to_compute(input);
  const DType dtype = x.dtype();
  const Value grad = hlo::convert(op.tensor(0), dtype);
  const Value weight = op.optional_tensor(2);
  const bool training = op.flag(7);
  const std::vector<bool> mask = op.flags(9);
  const Value mean = hlo::convert(op.tensor(training ? 5 : 3), dtype);
  const Value invstd = training ? hlo::convert(op.tensor(6), dtype)
                                : hlo::rsqrt(hlo::convert(op.tensor(4), dtype) + op.scalar(8, dtype));
  const Value centered = x - per_channel(mean, x);
  const Value sum = channel_sum(grad);
  const Value product = channel_sum(grad * centered);
  const DType parameter = weight ? weight.dtype() : input.dtype();
  Values results(3);
  if (mask[0]) {
    Value through = grad;
    if (training) {
      const double size = channel_size(x);
      through =
          grad - centered * per_channel(product / size * invstd * invstd, x) - per_channel(sum / size, x);
    }
    const Value scale = weight ? invstd * hlo::convert(weight, dtype) : invstd;
    results[0] = hlo::convert(through * per_channel(scale, x), input.dtype());
  }
  if (mask[1]) results[1] = hlo::convert(product * invstd, parameter);
  if (mask[2]) results[2] = hlo::convert(sum, parameter);
  return results;
}

/// Means and inverse deviations of several replicas ([replicas, C]) joined by the replicas' element
/// counts, with the updated running statistics behind them.
Values gather_statistics(Lowering& op, const Value& counts) {
  const Value mean = to_compute(op.tensor(1));
  const Value invstd = hlo::convert(op.tensor(2), mean.dtype());
  const Value eps = op.scalar(6, mean.dtype());
  const Value n = hlo::reshape(hlo::convert(counts, mean.dtype()), Dims{mean.dim(0), 1});
  const Value total = hlo::reduce(n, Reduction::kSum, Dims{0, 1});
  const Value joint = hlo::reduce(mean * n, Reduction::kSum, Dims{0}) / total;
  const Value variance = 1.0 / (invstd * invstd) - eps;
  const Value offset = mean - hlo::reshape(joint, Dims{1, mean.dim(1)});
  const Value deviations = hlo::reduce((variance + offset * offset) * n, Reduction::kSum, Dims{0});
  const Value momentum = op.scalar(5, mean.dtype());
  return {joint, hlo::rsqrt(deviations / total + eps), update(op.optional_tensor(3), joint, momentum),
          update(op.optional_tensor(4), deviations / (total - 1.0), momentum)};
}

}  // namespace

OP("aten::native_batch_norm", .writes = {3, 4}, .meta_results = 1) {
  return batch_norm(op, arguments(op, op.flag(5), 6));
}
OP("aten::_native_batch_norm_legit", .writes = {3, 4}, .meta_results = 1) {
  return batch_norm(op, arguments(op, op.flag(5), 6));
}
OP("aten::_batch_norm_with_update", .writes = {3, 4}, .meta_results = 1) {
  return batch_norm(op, arguments(op, true, 5), {reserve(op)});
}

// The forms without side effect.
OP("aten::_native_batch_norm_legit_functional", .meta_results = 1) {
  Values results = batch_norm(op, arguments(op, op.flag(5), 6));
  if (!op.flag(5)) {
    results[3] = op.tensor(3);
    results[4] = op.tensor(4);
  }
  return results;
}
OP("aten::_batch_norm_with_update_functional", .meta_results = 1) {
  return batch_norm(op, arguments(op, true, 5), {reserve(op)});
}
OP("aten::_native_batch_norm_legit.no_stats", .meta_results = 1) {
  const Values results = batch_norm(op, {op.optional_tensor(1), op.optional_tensor(2), {}, {}, true, 4, 5});
  return {results[0], results[1], results[2]};
}
OP("aten::_native_batch_norm_legit_no_training", .meta_results = 1) {
  const Values results = batch_norm(op, arguments(op, false, 5));
  return {results[0], results[1], results[2]};
}
OP("aten::_batch_norm_no_update", .meta_results = 1) {
  const Values results = batch_norm(op, arguments(op, false, 5));
  return {results[0], results[1], results[2], reserve(op)};
}

OP("aten::native_batch_norm_backward") { return batch_norm_backward(op); }
OP("aten::batch_norm_backward") { return batch_norm_backward(op); }

// The pieces of torch.nn.SyncBatchNorm.
OP("aten::batch_norm_stats") {
  const Value x = to_compute(op.tensor(0));
  const Statistics s = statistics(x);
  return {s.mean, hlo::rsqrt(s.deviations / channel_size(x) + op.scalar(1, x.dtype()))};
}
OP("aten::batch_norm_update_stats", .writes = {1, 2}) {
  const Value x = to_compute(op.tensor(0));
  const Statistics s = statistics(x);
  const Value momentum = op.scalar(3, x.dtype());
  return {s.mean, s.deviations / channel_size(x), update(op.optional_tensor(1), s.mean, momentum),
          update(op.optional_tensor(2), s.deviations / (channel_size(x) - 1), momentum)};
}
OP("aten::batch_norm_elemt") {
  const Value input = op.tensor(0);
  const Value result =
      apply(to_compute(input), op.tensor(3), op.tensor(4), op.optional_tensor(1), op.optional_tensor(2));
  return {hlo::convert(result, input.dtype())};
}
OP("aten::batch_norm_gather_stats", .writes = {3, 4}) {
  const Value count = op.builder().splat(op.integer(7), {DType::kS64, {op.tensor(1).dim(0)}});
  return gather_statistics(op, count);
}
OP("aten::batch_norm_gather_stats_with_counts", .writes = {3, 4}) {
  return gather_statistics(op, op.tensor(7));
}
OP("aten::batch_norm_backward_reduce") {
  const Value x = to_compute(op.tensor(1));
  const Value grad = hlo::convert(op.tensor(0), x.dtype());
  const Value invstd = hlo::convert(op.tensor(3), x.dtype());
  const Value weight = op.optional_tensor(4);
  const DType parameter = weight ? weight.dtype() : x.dtype();
  const Value sum = channel_sum(grad);
  const Value product = channel_sum(grad * (x - per_channel(op.tensor(2), x)));
  Values results(4);
  if (op.flag(5)) {
    results[0] = sum;
    results[1] = product;
  }
  if (op.flag(6)) results[2] = hlo::convert(product * invstd, parameter);
  if (op.flag(7)) results[3] = hlo::convert(sum, parameter);
  return results;
}
OP("aten::batch_norm_backward_elemt") {
  const Value input = op.tensor(1);
  const Value x = to_compute(input);
  const Value grad = hlo::convert(op.tensor(0), x.dtype());
  const Value invstd = hlo::convert(op.tensor(3), x.dtype());
  const Value weight = op.optional_tensor(4);
  const Value counts = hlo::convert(op.tensor(7), x.dtype());
  Dims dims;
  for (int64_t i = 0; i < counts.rank(); ++i) dims.push_back(i);
  const Value size = hlo::reduce(counts, Reduction::kSum, dims);
  const Value mean_grad = hlo::convert(op.tensor(5), x.dtype()) / size;
  const Value projection = hlo::convert(op.tensor(6), x.dtype()) / size * invstd * invstd;
  const Value scale = weight ? invstd * hlo::convert(weight, x.dtype()) : invstd;
  const Value centered = x - per_channel(op.tensor(2), x);
  const Value result =
      (grad - per_channel(mean_grad, x) - centered * per_channel(projection, x)) * per_channel(scale, x);
  return {hlo::convert(result, input.dtype())};
}

}  // namespace torch_tpu::ops

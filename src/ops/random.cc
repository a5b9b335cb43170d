// Random numbers: distributions made from the counter-based bits of Lowering::random_bits.
#include "ops/random.h"

#include <cmath>
#include <limits>
#include <numbers>

#include "ops/indexing.h"
#include "ops/pointwise.h"
#include "ops/require.h"

namespace torch_tpu::ops {

using hlo::convert;
using hlo::like;
using hlo::reshape;
using hlo::select;

Value random_words(Lowering& op, const Dims& dims) {
  return reshape(op.random_bits(hlo::element_count(dims)), dims);
}

namespace {

Value shift_right(const Value& x, int bits) { return hlo::binary("shift_right_logical", x, like(x, bits)); }

/// The upper `bits` bits of a word as a signed integer: converts to float faster than unsigned.
Value upper_bits(const Value& word, int bits) { return convert(shift_right(word, 32 - bits), DType::kS32); }

/// 53 random bits as f64 integers.
Value wide_bits(Lowering& op, const Dims& dims) {
  const Value high = convert(upper_bits(random_words(op, dims), 26), DType::kF64);
  const Value low = convert(upper_bits(random_words(op, dims), 27), DType::kF64);
  return high * 0x1p27 + low;
}

}  // namespace

Value unit_uniform(Lowering& op, DType dtype, const Dims& dims) {
  if (dtype == DType::kF64) return wide_bits(op, dims) * 0x1p-53;
  return convert(upper_bits(random_words(op, dims), 24), DType::kF32) * 0x1p-24;
}

Value positive_uniform(Lowering& op, DType dtype, const Dims& dims) {
  if (dtype == DType::kF64) return (wide_bits(op, dims) + 0.5) * 0x1p-53;
  return (convert(upper_bits(random_words(op, dims), 31), DType::kF32) + 0.5) * 0x1p-31;
}

Value standard_exponential(Lowering& op, DType dtype, const Dims& dims) {
  const Value sample = -hlo::log(positive_uniform(op, dtype, dims));
  return hlo::maximum(sample, like(sample, dtype == DType::kF64 ? 0x1p-53 : 0x1p-24));
}

namespace {

/// Standard normal numbers by the method of Box and Muller (1958), two from each pair of uniforms.
Value standard_normal(Lowering& op, DType dtype, const Dims& dims) {
  const int64_t count = hlo::element_count(dims);
  const Dims half{(count + 1) / 2};
  const Value radius = hlo::sqrt(-2.0 * hlo::log(positive_uniform(op, dtype, half)));
  const Value angle =
      unit_uniform(op, dtype == DType::kF64 ? dtype : DType::kF32, half) * (2.0 * std::numbers::pi);
  const Value both = hlo::concatenate({radius * hlo::cos(angle), radius * hlo::sin(angle)}, 0);
  return reshape(hlo::slice_dim(both, 0, 0, count), dims);
}

/// mean + std * N(0, 1) in `dtype`; mean and std broadcast to `dims`.
Value normal(Lowering& op, DType dtype, const Dims& dims, const Value& mean, const Value& std) {
  const DType compute = compute_dtype(hlo::real_type(dtype));
  if (!hlo::is_complex(dtype)) {
    const Value sample = standard_normal(op, compute, dims);
    return convert(convert(mean, compute) + convert(std, compute) * sample, dtype);
  }
  const Value part = convert(std, compute) * std::numbers::sqrt2 * 0.5;
  const Value re = part * standard_normal(op, compute, dims);
  const Value im = part * standard_normal(op, compute, dims);
  return hlo::complex(re, im) + convert(mean, dtype);
}

void check_deviations(Lowering& op, const Value& std) {
  if (hlo::is_complex(std.dtype())) op.fail("normal expects standard deviation to be non-complex");
  op.check(!hlo::compare(hlo::Compare::kGe, std, 0.0), Code::kInvalidArgument,
           "normal expects all elements of std >= 0.0");
}

/// True with the probability of a rank-0 f64.
Value coin(Lowering& op, const Dims& dims, const Value& probability) {
  const Value bits = random_words(op, dims);
  const Value threshold = hlo::minimum(probability * 0x1p32, like(probability, 0xffffffffp0));
  return less(bits, convert(threshold, DType::kU32)) | hlo::compare(hlo::Compare::kGe, probability, 1.0);
}

/// True with the probability of each element.
Value coins(Lowering& op, const Dims& dims, const Value& probabilities) {
  require_floating(op, probabilities, "bernoulli_tensor_cpu_p_");
  check_unit_interval(op, probabilities, "Expected p_in >= 0 && p_in <= 1 to be true, but got false.");
  const DType dtype = probabilities.dtype() == DType::kF64 ? DType::kF64 : DType::kF32;
  return less(unit_uniform(op, dtype, dims), hlo::broadcast_to(convert(probabilities, dtype), dims));
}

double largest_finite(DType dtype) {
  if (dtype == DType::kF64) return std::numeric_limits<double>::max();
  if (dtype == DType::kF16) return 65504.0;
  return dtype == DType::kBF16 ? 0x1.fep127 : std::numeric_limits<float>::max();
}

// --- what torch refuses of the numbers --------------------------------------------------------------

Status accept_interval(const Numbers& numbers) {
  const double limit = largest_finite(hlo::real_type(numbers.dtype));
  const double from = numbers.real(1);
  const double to = numbers.real(2);
  const std::string name(cpp_name(hlo::real_type(numbers.dtype)));
  if (!(std::abs(from) <= limit)) return invalid_argument("from is out of bounds for " + name);
  if (!(std::abs(to) <= limit)) return invalid_argument("to is out of bounds for " + name);
  if (from > to) {
    return invalid_argument("uniform_ expects to return a [from, to) range, but found from=" +
                            numbers.text(1) + " > to=" + numbers.text(2));
  }
  if (to - from <= limit) return {};
  const std::string type(scalar_type_name(hlo::real_type(numbers.dtype)));
  return invalid_argument("uniform_ expects to-from <= std::numeric_limits<" + type +
                          ">::max(), but found to=" + numbers.text(2) + " and from=" + numbers.text(1) +
                          " which result in to-from to exceed the limit");
}

template <int position>
Status accept_deviation(const Numbers& numbers) {
  if (numbers.real(position) >= 0.0) return {};
  return invalid_argument("normal expects std >= 0.0, but found std " + numbers.text(position));
}

Status require_positive(const Numbers& numbers, int position, const std::string& kernel,
                        const std::string& name) {
  if (numbers.real(position) > 0.0) return {};
  return invalid_argument(kernel + " expects " + name + " > 0.0, but found " + name + "=" +
                          numbers.text(position));
}
Status accept_log_normal(const Numbers& numbers) {
  return require_positive(numbers, 2, "log_normal_", "std");
}
Status accept_exponential(const Numbers& numbers) {
  return require_positive(numbers, 1, "exponential_", "lambda");
}
Status accept_cauchy(const Numbers& numbers) { return require_positive(numbers, 2, "cauchy_", "sigma"); }

Status accept_geometric(const Numbers& numbers) {
  if (0 < numbers.real(1) && numbers.real(1) < 1) return {};
  return invalid_argument("geometric_ expects p to be in (0, 1), but got p=" + numbers.text(1));
}

Status accept_probability(const Numbers& numbers) {
  if (0 <= numbers.real(1) && numbers.real(1) <= 1) return {};
  return invalid_argument("bernoulli_ expects p to be in [0, 1], but got p=" + numbers.text(1));
}

/// The activation and the noise that belongs to it.
Values randomized_relu(Lowering& op) {
  const Value x = op.tensor(0);
  if (op.tensor(1).dims() != x.dims()) op.fail("noise tensor shape must match self tensor shape");
  const DType compute = compute_dtype(x.dtype());
  const Value wide = convert(x, compute);
  const Value low = op.scalar(2, compute);
  const Value high = op.scalar(3, compute);
  const Value negative = hlo::compare(hlo::Compare::kLe, wide, 0.0);
  if (!op.flag(4)) {
    return {convert(select(negative, wide * ((low + high) * 0.5), wide), x.dtype()), op.tensor(1)};
  }
  const Value drawn = unit_uniform(op, compute, x.dims()) * (high - low) + low;
  const Value noise = select(negative, drawn, like(wide, 1.0));
  return {convert(wide * noise, x.dtype()), convert(noise, op.tensor(1).dtype())};
}

}  // namespace

OP("aten::uniform", .accept = accept_interval, .random = true) {
  const Value x = op.tensor(0);
  const auto draw = [&](DType dtype) {
    // More bits than a narrow dtype has: its numbers are dense near zero.
    const Value unit = unit_uniform(op, compute_dtype(dtype), x.dims());
    const Value from = op.scalar(1, unit.dtype());
    const Value to = op.scalar(2, unit.dtype());
    const Value sample = convert(unit * (to - from) + from, dtype);
    // Rounding can reach the excluded end.
    const Value excluded = hlo::compare(hlo::Compare::kGe, sample, convert(to, dtype));
    return select(excluded, convert(from, dtype), sample);
  };
  if (!hlo::is_complex(x.dtype())) {
    require_floating(op, x, "check_uniform_bounds");
    return {draw(x.dtype())};
  }
  const DType part = hlo::real_type(x.dtype());
  const Value re = draw(part);
  return {hlo::complex(re, draw(part))};
}

OP("aten::normal_functional", .accept = accept_deviation<2>, .random = true) {
  const Value x = op.tensor(0);
  const DType compute = compute_dtype(hlo::real_type(x.dtype()));
  return {normal(op, x.dtype(), x.dims(), op.scalar(1, compute), op.scalar(2, compute))};
}
OP("aten::normal.Tensor_float", .accept = accept_deviation<1>, .random = true) {
  const Value mean = op.tensor(0);
  return {normal(op, mean.dtype(), mean.dims(), mean, op.scalar(1))};
}
OP("aten::normal.float_Tensor", .random = true) {
  const Value std = op.tensor(1);
  check_deviations(op, std);
  return {normal(op, std.dtype(), std.dims(), op.scalar(0), std)};
}
OP("aten::normal.Tensor_Tensor", .random = true) {
  const Value mean = op.tensor(0);
  const Value std = op.tensor(1);
  check_deviations(op, std);
  return {normal(op, mean.dtype(), hlo::broadcast_dims(op.builder(), mean.dims(), std.dims()), mean, std)};
}

OP("aten::log_normal", .accept = accept_log_normal, .random = true) {
  const Value x = op.tensor(0);
  const Value sample = standard_normal(op, compute_dtype(x.dtype()), x.dims());
  return {convert(hlo::exp(op.scalar(1, sample.dtype()) + op.scalar(2, sample.dtype()) * sample), x.dtype())};
}

OP("aten::exponential", .accept = accept_exponential, .random = true) {
  const Value x = op.tensor(0);
  const Value sample = standard_exponential(op, compute_dtype(x.dtype()), x.dims());
  return {convert(sample / op.scalar(1, sample.dtype()), x.dtype())};
}

OP("aten::geometric", .accept = accept_geometric, .random = true) {
  const Value x = op.tensor(0);
  const DType compute = hlo::is_float(x.dtype()) ? compute_dtype(x.dtype()) : DType::kF32;
  const Value sample = standard_exponential(op, compute, x.dims());
  const Value rate = -hlo::log1p(-op.scalar(1, compute));
  return {convert(hlo::maximum(hlo::ceil(sample / rate), like(sample, 1.0)), x.dtype())};
}

OP("aten::cauchy", .accept = accept_cauchy, .random = true) {
  const Value x = op.tensor(0);
  const Value unit = positive_uniform(op, compute_dtype(x.dtype()), x.dims());
  const Value slope = hlo::unary("chlo.tan", (unit - 0.5) * std::numbers::pi);
  return {convert(op.scalar(1, unit.dtype()) + op.scalar(2, unit.dtype()) * slope, x.dtype())};
}

OP("aten::bernoulli", .random = true) {
  const Value x = op.tensor(0);
  require_ordered(op, x, "bernoulli_tensor_cpu_self_");
  return {convert(coins(op, x.dims(), x), x.dtype())};
}
OP("aten::bernoulli.p", .accept = accept_probability, .random = true) {
  const Value x = op.tensor(0);
  require_ordered(op, x, "bernoulli_scalar_cpu_");
  return {convert(coin(op, x.dims(), op.scalar(1, DType::kF64)), x.dtype())};
}
OP("aten::bernoulli.Tensor", .random = true) {
  const Value x = op.tensor(0);
  require_ordered(op, x, "bernoulli_tensor_cpu_self_");
  return {convert(coins(op, x.dims(), op.tensor(1)), x.dtype())};
}

OP("aten::native_dropout", .accept = accept_probability, .random = true) {
  const Value x = op.tensor(0);
  if (op.has(2) && !op.flag(2)) return {x, op.builder().splat(1.0, {DType::kPred, x.dims()})};
  const Value keep = 1.0 - op.scalar(1, DType::kF64);
  const Value mask = coin(op, x.dims(), keep);
  const DType compute = compute_dtype(x.dtype());
  const Value none = equal(keep, 0.0);
  const Value scale = convert(select(none, keep, 1.0 / keep), compute);
  return {convert(convert(x, compute) * (convert(mask, compute) * scale), x.dtype()), mask};
}
OP("aten::native_dropout_backward") {
  const Value grad = to_inexact(op, op.tensor(0));
  const DType compute = compute_dtype(grad.dtype());
  const Value factor = convert(op.tensor(1), compute) * op.scalar(2, compute);
  return {convert(convert(grad, compute) * factor, grad.dtype())};
}

OP("aten::rrelu_with_noise_functional", .random = true) { return randomized_relu(op); }
OP("aten::rrelu_with_noise", .random = true, .writes = {1}) { return randomized_relu(op); }

}  // namespace torch_tpu::ops

// Random numbers: distributions made from the counter-based bits of Lowering::random_bits.
#include "ops/random.h"

#include <cmath>
#include <numbers>

#include "ops/pointwise.h"

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
  const int bits = hlo::width_bits(dtype) + 1;
  return convert(upper_bits(random_words(op, dims), bits), DType::kF32) * std::ldexp(1.0, -bits);
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

/// True with the probability of a rank-0 f64.
Value coin(Lowering& op, const Dims& dims, const Value& probability) {
  const Value bits = random_words(op, dims);
  const Value threshold = hlo::minimum(probability * 0x1p32, like(probability, 0xffffffffp0));
  return less(bits, convert(threshold, DType::kU32)) | hlo::compare(hlo::Compare::kGe, probability, 1.0);
}

/// True with the probability of each element.
Value coins(Lowering& op, const Dims& dims, const Value& probabilities) {
  const DType dtype = probabilities.dtype() == DType::kF64 ? DType::kF64 : DType::kF32;
  return less(unit_uniform(op, dtype, dims), convert(probabilities, dtype));
}

/// Uniform whole numbers in [from, from + range) of `dtype`; a range of zero means all 64 bits.
Value whole_numbers(Lowering& op, const Type& type, int64_t from, uint64_t range) {
  Value number;
  if (range > 0 && range <= uint64_t{1} << 32) {
    // The upper half of a 64-bit product is cheaper than a remainder and as fair.
    const Value wide = convert(random_words(op, type.dims), DType::kU64);
    number = shift_right(wide * op.builder().splat(static_cast<int64_t>(range), {DType::kU64, {}}), 32);
  } else {
    const Value high = convert(random_words(op, type.dims), DType::kU64);
    const Value low = convert(random_words(op, type.dims), DType::kU64);
    number = hlo::binary("shift_left", high, like(high, 32)) | low;
    if (range > 0) {
      number = hlo::remainder(number, op.builder().splat(static_cast<int64_t>(range), {DType::kU64, {}}));
    }
  }
  const Value shifted = convert(number, DType::kS64) + op.builder().splat(from, {DType::kS64, {}});
  return convert(shifted, type.dtype);
}

/// The largest whole number up to which all are exact.
int64_t last_whole_number(DType dtype) {
  if (hlo::is_float(dtype)) return int64_t{1} << (hlo::width_bits(dtype) + 1);
  if (dtype == DType::kPred) return 1;
  const int64_t bits = hlo::byte_size(dtype) * 8 - (hlo::is_unsigned(dtype) ? 0 : 1);
  return bits >= 63 ? INT64_MAX : (int64_t{1} << bits) - 1;
}

Value random_between(Lowering& op, int64_t from, int64_t to) {
  if (from >= to) {
    op.fail("random_ expects 'from' to be less than 'to', but got from=" + std::to_string(from) +
            " >= to=" + std::to_string(to));
  }
  return whole_numbers(op, op.tensor(0).type, from, static_cast<uint64_t>(to) - static_cast<uint64_t>(from));
}

/// The activation and the noise that belongs to it.
Values randomized_relu(Lowering& op) {
  const Value x = op.tensor(0);
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

OP("aten::uniform", .random = true) {
  const Value x = op.tensor(0);
  const auto draw = [&](DType dtype) {
    const Value unit = unit_uniform(op, dtype, x.dims());
    const Value from = op.scalar(1, unit.dtype());
    const Value to = op.scalar(2, unit.dtype());
    const Value sample = convert(unit * (to - from) + from, dtype);
    // Rounding can reach the excluded end.
    const Value excluded = hlo::compare(hlo::Compare::kGe, sample, convert(to, dtype));
    return select(excluded, convert(from, dtype), sample);
  };
  if (!hlo::is_complex(x.dtype())) return {draw(x.dtype())};
  const DType part = hlo::real_type(x.dtype());
  const Value re = draw(part);
  return {hlo::complex(re, draw(part))};
}

OP("aten::normal_functional", .random = true) {
  const Value x = op.tensor(0);
  const DType compute = compute_dtype(hlo::real_type(x.dtype()));
  return {normal(op, x.dtype(), x.dims(), op.scalar(1, compute), op.scalar(2, compute))};
}
OP("aten::normal.Tensor_float", .random = true) {
  const Value mean = op.tensor(0);
  return {normal(op, mean.dtype(), mean.dims(), mean, op.scalar(1))};
}
OP("aten::normal.float_Tensor", .random = true) {
  const Value std = op.tensor(1);
  return {normal(op, std.dtype(), std.dims(), op.scalar(0), std)};
}
OP("aten::normal.Tensor_Tensor", .random = true) {
  const Value mean = op.tensor(0);
  const Value std = op.tensor(1);
  return {normal(op, mean.dtype(), hlo::broadcast_dims(op.builder(), mean.dims(), std.dims()), mean, std)};
}

OP("aten::log_normal", .random = true) {
  const Value x = op.tensor(0);
  const Value sample = standard_normal(op, compute_dtype(x.dtype()), x.dims());
  return {convert(hlo::exp(op.scalar(1, sample.dtype()) + op.scalar(2, sample.dtype()) * sample), x.dtype())};
}

OP("aten::exponential", .random = true) {
  const Value x = op.tensor(0);
  const Value sample = standard_exponential(op, compute_dtype(x.dtype()), x.dims());
  return {convert(sample / op.scalar(1, sample.dtype()), x.dtype())};
}

OP("aten::geometric", .random = true) {
  const Value x = op.tensor(0);
  const DType compute = hlo::is_float(x.dtype()) ? compute_dtype(x.dtype()) : DType::kF32;
  const Value sample = standard_exponential(op, compute, x.dims());
  const Value rate = -hlo::log1p(-op.scalar(1, compute));
  return {convert(hlo::maximum(hlo::ceil(sample / rate), like(sample, 1.0)), x.dtype())};
}

OP("aten::cauchy", .random = true) {
  const Value x = op.tensor(0);
  const Value unit = positive_uniform(op, compute_dtype(x.dtype()), x.dims());
  const Value slope = hlo::unary("chlo.tan", (unit - 0.5) * std::numbers::pi);
  return {convert(op.scalar(1, unit.dtype()) + op.scalar(2, unit.dtype()) * slope, x.dtype())};
}

OP("aten::bernoulli", .random = true) {
  const Value x = op.tensor(0);
  return {convert(coins(op, x.dims(), x), x.dtype())};
}
OP("aten::bernoulli.p", .random = true) {
  const Value x = op.tensor(0);
  return {convert(coin(op, x.dims(), op.scalar(1, DType::kF64)), x.dtype())};
}
OP("aten::bernoulli.Tensor", .random = true) {
  const Value x = op.tensor(0);
  return {convert(coins(op, x.dims(), op.tensor(1)), x.dtype())};
}

OP("aten::random.from", .random = true) {
  const int64_t from = op.integer(1);
  if (op.has(2)) return {random_between(op, from, op.integer(2))};
  // Everything from `from` on, the last number included; a range of 2^64 wraps to zero.
  const Value x = op.tensor(0);
  const uint64_t range =
      static_cast<uint64_t>(last_whole_number(x.dtype())) - static_cast<uint64_t>(from) + 1;
  return {whole_numbers(op, x.type, from, range)};
}
OP("aten::random.to", .random = true) { return {random_between(op, 0, op.integer(1))}; }
OP("aten::random", .random = true) {
  const Value x = op.tensor(0);
  return {whole_numbers(op, x.type, 0, static_cast<uint64_t>(last_whole_number(x.dtype())) + 1)};
}

OP("aten::native_dropout", .random = true) {
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

OP("aten::randperm.generator_out", .random = true) {
  // Random keys with the index in their low bits: one sort of one array.
  const int64_t n = op.integer(0);
  const DType dtype = op.dtype(2).value();
  const Type type{DType::kS64, {n}};
  if (n < 2) return {convert(op.builder().iota(type, 0), dtype)};
  int index_bits = 1;
  while ((int64_t{1} << index_bits) < n) ++index_bits;
  const Value high = convert(random_words(op, type.dims), DType::kS64);
  const Value low = convert(random_words(op, type.dims), DType::kS64);
  const Value random = hlo::binary("shift_left", high, like(high, 32)) | low;
  const int64_t mask = (int64_t{1} << index_bits) - 1;
  const Value keys = (random & op.builder().splat(~mask, type)) | op.builder().iota(type, 0);
  const Value sorted =
      hlo::sort({keys}, 0, false, [](const Values& x) -> Values { return {less(x[0], x[1])}; })[0];
  return {convert(sorted & op.builder().splat(mask, type), dtype)};
}

}  // namespace torch_tpu::ops

// Comparisons, extrema, choices between values and fills.
#include <cmath>

#include "ops/pointwise.h"

namespace torch_tpu::ops {
namespace {

using hlo::Compare;
using hlo::convert;
using hlo::is_nan;
using hlo::like;
using hlo::select;

Value compared(const Lowering& op, Compare direction, const Value& a, const Value& b) {
  const auto [x, y] = promote(op, a, b);
  return hlo::compare(direction, x, y);
}

bool has_nan(const Value& x) { return hlo::is_inexact(x.dtype()); }

/// The larger (smaller) one; NaN loses against a number.
Value number_maximum(const Value& a, const Value& b) {
  if (!has_nan(a)) return hlo::maximum(a, b);
  return select(is_nan(a), b, select(is_nan(b), a, hlo::maximum(a, b)));
}
Value number_minimum(const Value& a, const Value& b) {
  if (!has_nan(a)) return hlo::minimum(a, b);
  return select(is_nan(a), b, select(is_nan(b), a, hlo::minimum(a, b)));
}

/// min(max(x, low), high) in the common dtype; either bound may be missing.
Value clamped(const Lowering& op, const Value& x, const Value& low, const Value& high) {
  Values all{x};
  if (low) all.push_back(low);
  if (high) all.push_back(high);
  const DType dtype = result_type(op, all);
  Value result = convert(x, dtype);
  if (low) result = hlo::maximum(result, convert(low, dtype));
  if (high) result = hlo::minimum(result, convert(high, dtype));
  return result;
}

Value optional_scalar(const Lowering& op, int i) { return op.has(i) ? op.scalar(i) : Value{}; }

Value infinite(const Value& x) {
  if (!hlo::is_inexact(x.dtype())) return x.builder->splat(0.0, {DType::kPred, x.dims()});
  if (hlo::is_complex(x.dtype())) return infinite(hlo::real(x)) | infinite(hlo::imag(x));
  return equal(hlo::abs(x), INFINITY);
}

/// x == number, which no integer is.
Value is_extreme(const Value& x, double number) {
  if (!hlo::is_float(x.dtype())) return x.builder->splat(0.0, {DType::kPred, x.dims()});
  return equal(x, number);
}

Value filled(const Value& like, const Value& value) {
  Value result = hlo::broadcast_to(convert(value, like.dtype()), like.dims());
  // A rank-0 fill may be the number itself, which is a tensor from here on.
  result.wrapped = false;
  return result;
}

// ATen fills the small floats by way of float32, where a number too large is an infinity.
Status accept_fill(const Numbers& numbers) {
  const bool small = hlo::is_float(numbers.dtype) && hlo::byte_size(numbers.dtype) < 4;
  return require_convertible(numbers.values[1], small ? DType::kF32 : numbers.dtype);
}

// A fractional bound makes the result of integers a float.
Status accept_bounds(const Numbers& numbers) {
  for (const Number& number : numbers.values) {
    const bool fraction = std::holds_alternative<double>(number) && !hlo::is_inexact(numbers.dtype);
    if (fraction || numbers.dtype == DType::kPred) return {};
  }
  for (const Number& number : numbers.values) RETURN_IF_ERROR(require_convertible(number, numbers.dtype));
  return {};
}

Value masked_fill(const Lowering& op, const Value& value) {
  const Value x = op.tensor(0);
  return select(convert(op.tensor(1), DType::kPred), convert(value, x.dtype()), x);
}

Value largest_finite(const Value& x) {
  switch (x.dtype()) {
    case DType::kF16:
      return like(x, 65504.0);
    case DType::kBF16:
      return like(x, 0x1.fep127);
    case DType::kF32:
      return like(x, 0x1.fffffep127);
    default:
      return like(x, 0x1.fffffffffffffp1023);
  }
}

Value nan_to_num(const Lowering& op, const Value& x) {
  if (hlo::is_complex(x.dtype()))
    return hlo::complex(nan_to_num(op, hlo::real(x)), nan_to_num(op, hlo::imag(x)));
  if (!hlo::is_float(x.dtype())) return x;
  const Value largest = largest_finite(x);
  const Value nan = op.has(1) ? op.scalar(1, x.dtype()) : like(x, 0.0);
  const Value high = op.has(2) ? op.scalar(2, x.dtype()) : largest;
  const Value low = op.has(3) ? op.scalar(3, x.dtype()) : -largest;
  return select(is_nan(x), nan, select(equal(x, INFINITY), high, select(equal(x, -INFINITY), low, x)));
}

}  // namespace

#define COMPARISON(name, direction)                                                                      \
  OP("aten::" name ".Tensor") { return {compared(op, Compare::direction, op.tensor(0), op.tensor(1))}; } \
  OP("aten::" name ".Scalar") { return {compared(op, Compare::direction, op.tensor(0), op.scalar(1))}; }

COMPARISON("eq", kEq)
COMPARISON("ne", kNe)
COMPARISON("lt", kLt)
COMPARISON("le", kLe)
COMPARISON("gt", kGt)
COMPARISON("ge", kGe)

OP("aten::maximum") {
  const auto [a, b] = promote(op, op.tensor(0), op.tensor(1));
  return {hlo::maximum(a, b)};
}
OP("aten::minimum") {
  const auto [a, b] = promote(op, op.tensor(0), op.tensor(1));
  return {hlo::minimum(a, b)};
}
OP("aten::fmax") {
  const auto [a, b] = promote(op, op.tensor(0), op.tensor(1));
  return {number_maximum(a, b)};
}
OP("aten::fmin") {
  const auto [a, b] = promote(op, op.tensor(0), op.tensor(1));
  return {number_minimum(a, b)};
}

OP("aten::clamp", .accept = accept_bounds) {
  return {clamped(op, op.tensor(0), optional_scalar(op, 1), optional_scalar(op, 2))};
}
OP("aten::clamp.Tensor") { return {clamped(op, op.tensor(0), op.optional_tensor(1), op.optional_tensor(2))}; }
OP("aten::clamp_min", .accept = accept_bounds) { return {clamped(op, op.tensor(0), op.scalar(1), {})}; }
OP("aten::clamp_min.Tensor") { return {clamped(op, op.tensor(0), op.tensor(1), {})}; }
OP("aten::clamp_max", .accept = accept_bounds) { return {clamped(op, op.tensor(0), {}, op.scalar(1))}; }
OP("aten::clamp_max.Tensor") { return {clamped(op, op.tensor(0), {}, op.tensor(1))}; }

OP("aten::isnan") { return {is_nan(op.tensor(0))}; }
OP("aten::isinf") { return {infinite(op.tensor(0))}; }
OP("aten::isposinf") { return {is_extreme(op.tensor(0), INFINITY)}; }
OP("aten::isneginf") { return {is_extreme(op.tensor(0), -INFINITY)}; }

OP("aten::where.self") {
  const Value condition = convert(op.tensor(0), DType::kPred);
  const auto [a, b] = promote(op, op.tensor(1), op.tensor(2));
  return {select(condition, a, b)};
}

OP("aten::heaviside") {
  const auto [x, values] = promote(op, op.tensor(0), op.tensor(1));
  return {select(equal(x, 0.0), values, convert(greater(x, 0.0), x.dtype()))};
}

OP("aten::nan_to_num") { return {nan_to_num(op, op.tensor(0))}; }

OP("aten::fill.Scalar", .accept = accept_fill, .fills = true) { return {filled(op.tensor(0), op.scalar(1))}; }
OP("aten::fill.Tensor", .fills = true) { return {filled(op.tensor(0), op.tensor(1))}; }
OP("aten::zero", .fills = true) { return {like(op.tensor(0), 0.0)}; }
OP("aten::masked_fill.Scalar", .accept = accept_convertible<2>) { return {masked_fill(op, op.scalar(2))}; }
OP("aten::masked_fill.Tensor") { return {masked_fill(op, op.tensor(2))}; }

}  // namespace torch_tpu::ops

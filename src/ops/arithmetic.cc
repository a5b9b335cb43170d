// Sums, products, quotients, powers and their fused forms.
#include "ops/indexing.h"
#include "ops/pointwise.h"
#include "ops/require.h"

namespace torch_tpu::ops {
namespace {

using hlo::convert;
using hlo::like;
using hlo::select;

/// alpha * x, where alpha is the Scalar argument `i` of the call.
Value scaled(const Lowering& op, int i, const Value& x) {
  return is_number(op, i, 1.0) ? x : op.scalar(i, x.dtype()) * x;
}

/// a + sign * alpha * b in the common dtype of a and b.
Value sum(const Lowering& op, const Value& a, const Value& b, int alpha, bool subtract = false) {
  return common_binary(op, a, b, [&](const Value& x, const Value& y) {
    return subtract ? x - scaled(op, alpha, y) : x + scaled(op, alpha, y);
  });
}

Value product(const Lowering& op, const Value& a, const Value& b) {
  return common_binary(op, a, b, [](const Value& x, const Value& y) { return x * y; });
}

Value quotient(const Lowering& op, const Value& a, const Value& b) {
  return inexact_binary(op, a, b, [](const Value& x, const Value& y) { return exact_quotient(x, y); });
}

Value differ_in_sign(const Value& a, const Value& b) { return less(a, 0.0) ^ less(b, 0.0); }

/// The remainder with the sign of the divisor.
Value floor_remainder(const Value& a, const Value& b) {
  const Value rest = hlo::remainder(a, b);
  if (hlo::is_unsigned(a.dtype()) || a.dtype() == DType::kPred) return rest;
  const Value adjust = not_equal(rest, 0.0) & differ_in_sign(rest, b);
  return select(adjust, rest + b, rest);
}

Value floor_quotient(const Value& a, const Value& b) {
  if (hlo::is_integer(a.dtype())) {
    const Value whole = a / b;
    if (hlo::is_unsigned(a.dtype())) return whole;
    const Value adjust = not_equal(whole * b, a) & differ_in_sign(a, b);
    return select(adjust, whole - 1.0, whole);
  }
  // c10::div_floor_floating: exact where a / b rounds across an integer.
  const Value ratio = exact_quotient(a, b);
  const Value rest = hlo::remainder(a, b);
  const Value exact = exact_quotient(a - rest, b);
  const Value whole = select(not_equal(rest, 0.0) & differ_in_sign(rest, b), exact - 1.0, exact);
  const Value low = hlo::floor(whole);
  const Value nearest = select(greater(whole - low, 0.5), low + 1.0, low);
  // A zero takes the sign of the ratio.
  const Value zero = select(less(ratio, 0.0), like(ratio, -0.0), like(ratio, 0.0));
  return select(equal(b, 0.0), ratio, select(equal(whole, 0.0), zero, nearest));
}

/// The operands of an integer division, of which the second may not be zero.
void check_division(Lowering& op, const Value& x, const Value& y) {
  if (x.type.elements() > 0) check_divisor(op, y);
}

Value rounded_quotient(Lowering& op, const Value& a, const Value& b, const std::string& mode) {
  if (mode.empty()) return quotient(op, a, b);
  if (mode != "trunc" && mode != "floor") {
    op.fail("div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '" + mode + "'");
  }
  const DType dtype = result_type(op, {a, b});
  return common_binary(op, a, b, [&](const Value& x, const Value& y) {
    check_division(op, x, y);
    if (mode == "floor") return floor_quotient(x, y);
    // torch truncates the rounded quotient.
    return hlo::is_integer(x.dtype()) ? x / y : truncate(rounded(exact_quotient(x, y), dtype));
  });
}

void require_numbers(const Lowering& op, const Value& x, const char* kernel) {
  if (x.dtype() == DType::kPred)
    op.fail(Code::kUnimplemented, '"' + std::string(kernel) + "\" not implemented for 'Bool'");
}

Value modulo(Lowering& op, const Value& a, const Value& b) {
  return common_binary(op, a, b, [&](const Value& x, const Value& y) {
    require_numbers(op, x, "remainder_cpu");
    check_division(op, x, y);
    return floor_remainder(x, y);
  });
}

Value truncated_modulo(Lowering& op, const Value& a, const Value& b) {
  return common_binary(op, a, b, [&](const Value& x, const Value& y) {
    require_numbers(op, x, "fmod_cpu");
    check_division(op, x, y);
    return hlo::remainder(x, y);
  });
}

/// x ** n for the exponents that have a short form; an empty value for the others.
Value short_power(const Value& x, double n) {
  const bool inexact = hlo::is_inexact(x.dtype());
  if (n == 0.0) return like(x, 1.0);
  if (n == 1.0) return x;
  if (n == 2.0) return x * x;
  if (n == 3.0) return x * x * x;
  if (!inexact) return {};
  if (n == 0.5) return hlo::sqrt(x);
  if (n == -0.5) return hlo::rsqrt(x);
  if (n == -1.0) return 1.0 / x;
  if (n == -2.0) return 1.0 / (x * x);
  return {};
}

/// The operands broadcast against each other: loops carry them whole.
std::pair<Value, Value> aligned(const Value& a, const Value& b) {
  const Dims dims = hlo::broadcast_dims(*a.builder, a.dims(), b.dims());
  return {hlo::broadcast_to(a, dims), hlo::broadcast_to(b, dims)};
}

Value any(const Value& mask) {
  Dims all;
  for (int64_t i = 0; i < mask.rank(); ++i) all.push_back(i);
  return hlo::reduce(mask, hlo::Reduction::kOr, all);
}

/// XLA:CPU reads the lower six bits of an integer exponent only; the rest goes through a loop of squarings
/// that usually has no round.
Value integer_power(const Value& a, const Value& b) {
  const auto [base, exponent] = aligned(a, b);
  const Value negative = less(exponent, 0.0);
  const Value low = hlo::power(base, select(negative, exponent, exponent & like(exponent, 63.0)));
  if (hlo::byte_size(a.dtype()) == 1 && !hlo::is_unsigned(a.dtype())) {
    // Exponents of int8 end at 127: one more bit.
    const Value root = hlo::power(base, like(base, 32.0));
    return select(greater(exponent, 63.0), low * root * root, low);
  }
  const Value root = hlo::power(base, like(base, 32.0));
  const Value high = hlo::binary("shift_right_logical", exponent, like(exponent, 6.0));
  const Values end = hlo::while_loop(
      {like(base, 1.0), root * root, select(negative, like(exponent, 0.0), high)},
      [](const Values& state) -> Values { return {any(not_equal(state[2], 0.0))}; },
      [](const Values& state) -> Values {
        const Value one = like(state[2], 1.0);
        const Value odd = not_equal(state[2] & one, 0.0);
        return {select(odd, state[0] * state[1], state[0]), state[1] * state[1],
                hlo::binary("shift_right_logical", state[2], one)};
      });
  return low * end[0];
}

Value raised(const Value& a, const Value& b) {
  if (a.dtype() == DType::kPred) return a | !b;
  if (hlo::is_integer(a.dtype())) return integer_power(a, b);
  if (!hlo::is_complex(a.dtype())) return hlo::power(a, b);
  // The polar form of the general case gives NaN for a base of zero, and rounds the logarithm of the result.
  const Value vanishes = equal(a, 0.0) & greater(hlo::real(b), 0.0);
  const Value wide = hlo::power(convert(a, DType::kC128), convert(b, DType::kC128));
  const Value power = select(vanishes, like(a, 0.0), convert(wide, a.dtype()));
  return select(equal(b, 0.0), like(b, 1.0), power);
}

Value lerp(const Value& start, const Value& end, const Value& weight) {
  // Both forms are exact at their own end of the interval; torch switches in the middle.
  const Value difference = end - start;
  const Value near_start = less(hlo::abs(weight), 0.5);
  return select(near_start, start + weight * difference, end - difference * (1.0 - weight));
}

Value greatest_common_divisor(const Value& a, const Value& b) {
  const auto [x, y] = aligned(hlo::abs(a), hlo::abs(b));
  const Values end = hlo::while_loop(
      {x, y}, [](const Values& state) -> Values { return {any(not_equal(state[1], 0.0))}; },
      [](const Values& state) -> Values {
        const Value done = equal(state[1], 0.0);
        const Value divisor = select(done, like(state[1], 1.0), state[1]);
        return {select(done, state[0], state[1]), select(done, state[1], hlo::remainder(state[0], divisor))};
      });
  return hlo::abs(end[0]);
}

Value least_common_multiple(const Value& a, const Value& b) {
  // C multiplies small integers as int, before the modulus and the wrap.
  const DType wide = hlo::byte_size(a.dtype()) < 4 ? DType::kS32 : a.dtype();
  const Value x = convert(a, wide), y = convert(b, wide);
  const Value divisor = greatest_common_divisor(x, y);
  const Value zero = equal(divisor, 0.0);
  const Value multiple = hlo::abs(x / select(zero, like(divisor, 1.0), divisor) * y);
  return convert(select(zero, like(divisor, 0.0), multiple), a.dtype());
}

}  // namespace

OP("aten::add.Tensor", .special = {1.0}) { return {sum(op, op.tensor(0), op.tensor(1), 2)}; }
OP("aten::add.Scalar", .special = {1.0}) { return {sum(op, op.tensor(0), op.scalar(1), 2)}; }
OP("aten::sub.Tensor", .special = {1.0}) { return {sum(op, op.tensor(0), op.tensor(1), 2, true)}; }
OP("aten::sub.Scalar", .special = {1.0}) { return {sum(op, op.tensor(0), op.scalar(1), 2, true)}; }
OP("aten::rsub.Tensor", .special = {1.0}) { return {sum(op, op.tensor(1), op.tensor(0), 2, true)}; }
OP("aten::rsub.Scalar", .special = {1.0}) { return {sum(op, op.scalar(1), op.tensor(0), 2, true)}; }

OP("aten::_add_relu.Tensor", .special = {1.0}) {
  const Value total = sum(op, op.tensor(0), op.tensor(1), 2);
  return {hlo::maximum(total, like(total, 0.0))};
}
OP("aten::_add_relu.Scalar", .special = {1.0}) {
  const Value total = sum(op, op.tensor(0), op.scalar(1), 2);
  return {hlo::maximum(total, like(total, 0.0))};
}

OP("aten::mul.Tensor") { return {product(op, op.tensor(0), op.tensor(1))}; }
OP("aten::mul.Scalar") { return {product(op, op.tensor(0), op.scalar(1))}; }
OP("aten::div.Tensor") { return {quotient(op, op.tensor(0), op.tensor(1))}; }
OP("aten::div.Scalar") { return {quotient(op, op.tensor(0), op.scalar(1))}; }
OP("aten::div.Tensor_mode") { return {rounded_quotient(op, op.tensor(0), op.tensor(1), op.text(2))}; }
OP("aten::div.Scalar_mode") { return {rounded_quotient(op, op.tensor(0), op.scalar(1), op.text(2))}; }
OP("aten::floor_divide") { return {rounded_quotient(op, op.tensor(0), op.tensor(1), "floor")}; }
OP("aten::floor_divide.Scalar") { return {rounded_quotient(op, op.tensor(0), op.scalar(1), "floor")}; }

OP("aten::remainder.Tensor") { return {modulo(op, op.tensor(0), op.tensor(1))}; }
OP("aten::remainder.Scalar") { return {modulo(op, op.tensor(0), op.scalar(1))}; }
OP("aten::remainder.Scalar_Tensor") { return {modulo(op, op.scalar(0), op.tensor(1))}; }
OP("aten::fmod.Tensor") { return {truncated_modulo(op, op.tensor(0), op.tensor(1))}; }
OP("aten::fmod.Scalar") { return {truncated_modulo(op, op.tensor(0), op.scalar(1))}; }

OP("aten::neg") {
  const Value x = op.tensor(0);
  return {-x};
}

OP("aten::reciprocal") {
  return {inexact_unary(op, op.tensor(0), [](const Value& x) { return exact_quotient(like(x, 1.0), x); })};
}

OP("aten::pow.Tensor_Tensor") { return {common_binary(op, op.tensor(0), op.tensor(1), raised)}; }
OP("aten::pow.Scalar") { return {common_binary(op, op.scalar(0), op.tensor(1), raised)}; }
OP("aten::pow.Tensor_Scalar", .special = {0.0, 1.0, 2.0, 3.0, 0.5, -0.5, -1.0, -2.0}) {
  if (!hlo::is_inexact(op.tensor(0).dtype()) && !hlo::is_inexact(op.scalar(1).dtype())) {
    op.check(less(op.scalar(1, DType::kS64), 0.0), Code::kInvalidArgument,
             "Integers to negative integer powers are not allowed.");
  }
  return {common_binary(op, op.tensor(0), op.scalar(1), [&](const Value& x, const Value& n) {
    if (const auto number = op.number(1); number && x.dtype() != DType::kPred) {
      if (const Value power = short_power(x, *number)) return power;
    }
    return raised(x, n);
  })};
}

OP("aten::addcmul", .special = {1.0}) {
  const Values inputs{op.tensor(0), op.tensor(1), op.tensor(2)};
  const DType dtype = result_type(op, inputs);
  const Value factor = scaled(op, 3, operand(inputs[1], dtype));
  return {convert(operand(inputs[0], dtype) + factor * operand(inputs[2], dtype), dtype)};
}

OP("aten::addcdiv", .special = {1.0}) {
  const Values inputs{op.tensor(0), op.tensor(1), op.tensor(2)};
  const DType dtype = result_type(op, inputs);
  const Value factor = scaled(op, 3, operand(inputs[1], dtype));
  return {convert(operand(inputs[0], dtype) + exact_quotient(factor, operand(inputs[2], dtype)), dtype)};
}

OP("aten::lerp.Tensor") {
  const DType dtype = result_type(op, {op.tensor(0), op.tensor(1)});
  return {convert(
      lerp(operand(op.tensor(0), dtype), operand(op.tensor(1), dtype), operand(op.tensor(2), dtype)), dtype)};
}

OP("aten::lerp.Scalar") {
  const DType dtype = result_type(op, {op.tensor(0), op.tensor(1)});
  const Value weight = op.scalar(2, compute_dtype(dtype));
  return {convert(lerp(operand(op.tensor(0), dtype), operand(op.tensor(1), dtype), weight), dtype)};
}

OP("aten::gcd") { return {common_binary(op, op.tensor(0), op.tensor(1), greatest_common_divisor)}; }

OP("aten::lcm") { return {common_binary(op, op.tensor(0), op.tensor(1), least_common_multiple)}; }

OP("aten::abs") { return {modulus(op.tensor(0))}; }

}  // namespace torch_tpu::ops

// Unary maths: exponentials, logarithms, trigonometry, rounding, signs and parts of numbers.
#include "ops/pointwise.h"

#include <cmath>
#include <numbers>

namespace torch_tpu::ops {
namespace {

using hlo::convert;
using hlo::like;
using hlo::select;
using std::numbers::inv_pi;
using std::numbers::ln10;
using std::numbers::ln2;
using std::numbers::pi;

bool is_whole(const Value& x) { return !hlo::is_inexact(x.dtype()); }

/// Rounding leaves integers alone.
template <class Function>
Values rounding(const Lowering& op, Function function) {
  const Value x = op.tensor(0);
  return {is_whole(x) ? x : function(x)};
}

Value round_half_even(const Value& x) { return hlo::unary("round_nearest_even", x); }

/// torch's sign: NaN has none.
Value signum(const Value& x) {
  if (x.dtype() == DType::kPred) return x;
  if (hlo::is_unsigned(x.dtype())) return convert(not_equal(x, 0.0), x.dtype());
  if (hlo::is_integer(x.dtype())) return hlo::sign(x);
  return select(hlo::is_nan(x), like(x, 0.0), hlo::sign(x));
}

Value sign_bit(const Value& x) {
  if (hlo::is_unsigned(x.dtype()) || x.dtype() == DType::kPred)
    return x.builder->splat(0.0, {DType::kPred, x.dims()});
  if (hlo::is_integer(x.dtype())) return less(x, 0.0);
  const int64_t bytes = hlo::byte_size(x.dtype());
  const DType bits = bytes == 8   ? DType::kS64
                     : bytes == 4 ? DType::kS32
                     : bytes == 2 ? DType::kS16
                                  : DType::kS8;
  return less(hlo::bitcast(x, {bits, x.dims()}), 0.0);
}

/// |magnitude| with the sign of `sign`.
Value copy_sign(const Value& magnitude, const Value& sign) {
  const Value absolute = hlo::abs(magnitude);
  return select(sign_bit(sign), -absolute, absolute);
}

bool is_complex(const Value& x) { return hlo::is_complex(x.dtype()); }

/// x * factor; both parts of a complex number by themselves, so that infinities stay clean.
Value scaled(const Value& x, double factor) {
  if (!is_complex(x)) return x * factor;
  return hlo::complex(hlo::real(x) * factor, hlo::imag(x) * factor);
}

/// The complex result with the signs of other numbers on its parts: XLA's expansions lose signs of zeros,
/// which choose the side of a branch cut.
Value with_signs(const Value& result, const Value& re_sign, const Value& im_sign) {
  return hlo::complex(copy_sign(hlo::real(result), re_sign), copy_sign(hlo::imag(result), im_sign));
}

Value exponential(const Value& x) {
  if (!is_complex(x)) return hlo::exp(x);
  // exp(-inf) vanishes at any angle.
  return select(equal(hlo::real(x), -INFINITY), like(x, 0.0), hlo::exp(x));
}
Value exponential_of_two(const Value& x) {
  return is_complex(x) ? exponential(scaled(x, ln2)) : hlo::power(like(x, 2.0), x);
}

/// A finite x as fraction * 2^exponent with the fraction in [1/2, 1); the exponent is an integer.
struct Parts {
  Value fraction, exponent;
};

Parts parts(const Value& x) {
  const bool is_double = x.dtype() == DType::kF64;
  const Type bits{is_double ? DType::kS64 : DType::kS32, x.dims()};
  const int mantissa = is_double ? 52 : 23;
  const int bias = is_double ? 1022 : 126;
  const int64_t field = is_double ? 0x7FF : 0xFF;
  const Value word = hlo::bitcast(x, bits);
  const Value shifted = hlo::binary("shift_right_logical", word, like(word, mantissa));
  const Value exponent = (shifted & x.builder->splat(field, bits)) - static_cast<double>(bias);
  const Value keep = x.builder->splat(~(field << mantissa), bits);
  const Value half = x.builder->splat(static_cast<int64_t>(bias) << mantissa, bits);
  return {hlo::bitcast((word & keep) | half, x.type), exponent};
}

/// log(x) * scale, where log(2) * scale is `unit`: exact for powers of two if the unit is short, because the
/// exponent is taken by itself.
Value scaled_log(const Value& x, double scale, long double unit) {
  if (is_complex(x)) return scaled(hlo::log(x), scale);
  const Parts p = parts(x);
  const Value low = less(p.fraction, std::numbers::sqrt2 / 2);
  const Value fraction = select(low, p.fraction * 2.0, p.fraction);
  const Value exponent = convert(p.exponent, x.dtype()) - convert(low, x.dtype());
  // The product with the leading bits of the unit is exact.
  const double leading = std::ldexp(1.0, x.dtype() == DType::kF64 ? 40 : 14);
  const auto high = static_cast<double>(std::floor(unit * leading) / leading);
  const Value value =
      exponent * high + (exponent * static_cast<double>(unit - high) + hlo::log(fraction) * scale);
  return select(hlo::is_finite(x) & greater(x, 0.0), value, hlo::log(x));
}

Value square_root(const Value& x) {
  if (!is_complex(x)) return hlo::sqrt(x);
  const Value root = hlo::sqrt(x);
  return hlo::complex(hlo::real(root), copy_sign(hlo::imag(root), hlo::imag(x)));
}
Value reciprocal_root(const Value& x) { return is_complex(x) ? 1.0 / square_root(x) : hlo::rsqrt(x); }

/// exp(|x|) / 2 from the root, which does not overflow before the half does.
Value half_exponential(const Value& root) { return (root * 0.5) * root; }

Value sinh(const Value& x) {
  if (is_complex(x)) return hlo::unary("chlo.sinh", x);
  const Value size = hlo::abs(x);
  const Value root = hlo::exp(size * 0.5);
  const Value large = half_exponential(root) - 0.5 / root / root;
  const Value grown = hlo::expm1(size);
  const Value value = select(less(size, 1.0), 0.5 * (grown + grown / (grown + 1.0)), large);
  return copy_sign(value, x);
}
Value cosh(const Value& x) {
  if (is_complex(x)) return hlo::unary("chlo.cosh", x);
  const Value root = hlo::exp(hlo::abs(x) * 0.5);
  return half_exponential(root) + 0.5 / root / root;
}
Value tan(const Value& x) { return hlo::unary("chlo.tan", x); }

/// Zero times infinity is zero here: sin(0) * cosh(inf).
Value zero_or_product(const Value& a, const Value& b) { return select(equal(a, 0.0), a, a * b); }

Value sine(const Value& x) {
  if (!is_complex(x)) return hlo::sin(x);
  const Value a = hlo::real(x), b = hlo::imag(x);
  return hlo::complex(zero_or_product(hlo::sin(a), cosh(b)), hlo::cos(a) * sinh(b));
}
Value cosine(const Value& x) {
  if (!is_complex(x)) return hlo::cos(x);
  const Value a = hlo::real(x), b = hlo::imag(x);
  return hlo::complex(hlo::cos(a) * cosh(b), -zero_or_product(hlo::sin(a), sinh(b)));
}
Value normalized_sine(const Value& x) {
  const Value angle = scaled(x, pi);
  return select(equal(x, 0.0), like(x, 1.0), sine(angle) / angle);
}

Value asin(const Value& x) {
  const Value result = hlo::unary("chlo.asin", x);
  return is_complex(x) ? with_signs(result, hlo::real(x), hlo::imag(x)) : result;
}
Value acos(const Value& x) {
  const Value result = hlo::unary("chlo.acos", x);
  if (!is_complex(x)) return result;
  return hlo::complex(hlo::real(result), copy_sign(hlo::imag(result), -hlo::imag(x)));
}
Value asinh(const Value& x) {
  const Value result = hlo::unary("chlo.asinh", x);
  return is_complex(x) ? with_signs(result, hlo::real(x), hlo::imag(x)) : result;
}
Value acosh(const Value& x) {
  const Value result = hlo::unary("chlo.acosh", x);
  if (!is_complex(x)) return result;
  return hlo::complex(hlo::real(result), copy_sign(hlo::imag(result), hlo::imag(x)));
}
Value atanh(const Value& x) {
  const Value result = hlo::unary("chlo.atanh", x);
  return is_complex(x) ? with_signs(result, hlo::real(x), hlo::imag(x)) : result;
}

/// atan2 of a constant one is miscompiled by some XLA:CPU builds, so real arguments use another constant:
/// atan(x) = atan2(2x, 2), where 2x is exact.
Value atan(const Value& x) {
  if (!is_complex(x)) return hlo::binary("atan2", x * 2.0, like(x, 2.0));
  // -i atanh(i x)
  const Value turned = atanh(hlo::complex(-hlo::imag(x), hlo::real(x)));
  return hlo::complex(hlo::imag(turned), -hlo::real(turned));
}

Value angle(const Value& x) {
  if (hlo::is_complex(x.dtype())) return hlo::binary("atan2", hlo::imag(x), hlo::real(x));
  const Value result = select(less(x, 0.0), like(x, pi), like(x, 0.0));
  return is_whole(x) ? result : select(hlo::is_nan(x), x, result);
}

/// log(base ** a + base ** b) / log(base)
Value log_of_sum_of_powers(const Value& a, const Value& b, double log_base) {
  if (hlo::is_complex(a.dtype())) return complex_log_of_sum(a, b);
  // Equal infinities would give inf - inf.
  const Value high = hlo::maximum(a, b);
  const Value distance = -hlo::abs(a - b);
  const Value tail =
      log_base == 1.0 ? hlo::log1p(hlo::exp(distance)) : hlo::log1p(hlo::exp(distance * log_base)) / log_base;
  return select(equal(a, b) & equal(hlo::abs(a), INFINITY), a, high + tail);
}

/// The neighbour of `a` in the direction of `b`.
Value next_after(const Value& a, const Value& b) { return hlo::binary("chlo.next_after", a, b); }

Value hypotenuse(const Value& a, const Value& b) { return modulus(hlo::complex(a, b)); }

}  // namespace

Value complex_log_of_sum(const Value& a, const Value& b) {
  const Value re_a = hlo::real(a), re_b = hlo::real(b);
  const Value first = hlo::compare(hlo::Compare::kGe, re_a, re_b);
  const Value high = select(first, a, b), low = select(first, b, a);
  const Value same_infinity = equal(re_a, re_b) & equal(hlo::abs(re_a), INFINITY);
  const Value at_infinity = select(less(re_a, 0.0), low, hlo::log(hlo::exp(a) + hlo::exp(b)));
  const Value sum = select(same_infinity, at_infinity, high + hlo::log1p(hlo::exp(low - high)));
  const Value nan = hlo::is_nan(a) | hlo::is_nan(b);
  return select(nan, a.builder->splat(std::complex<double>(NAN, NAN), {a.dtype(), {}}), sum);
}

INEXACT_UNARY("aten::exp", exponential(x))
INEXACT_UNARY("aten::exp2", exponential_of_two(x))
INEXACT_UNARY("aten::expm1", hlo::expm1(x))
INEXACT_UNARY("aten::log", hlo::log(x))
INEXACT_UNARY("aten::log2", scaled_log(x, 1.0 / ln2, 1.0))
INEXACT_UNARY("aten::log10",
              scaled_log(x, 1.0 / ln10, std::numbers::ln2_v<long double> / std::numbers::ln10_v<long double>))
INEXACT_UNARY("aten::log1p", hlo::log1p(x))
INEXACT_UNARY("aten::sqrt", square_root(x))
INEXACT_UNARY("aten::rsqrt", reciprocal_root(x))
INEXACT_UNARY("aten::sin", sine(x))
INEXACT_UNARY("aten::cos", cosine(x))
INEXACT_UNARY("aten::tan", tan(x))
INEXACT_UNARY("aten::sinh", sinh(x))
INEXACT_UNARY("aten::cosh", cosh(x))
INEXACT_UNARY("aten::tanh", hlo::tanh(x))
INEXACT_UNARY("aten::asin", asin(x))
INEXACT_UNARY("aten::acos", acos(x))
INEXACT_UNARY("aten::atan", atan(x))
INEXACT_UNARY("aten::asinh", asinh(x))
INEXACT_UNARY("aten::acosh", acosh(x))
INEXACT_UNARY("aten::atanh", atanh(x))
INEXACT_UNARY("aten::sigmoid", hlo::logistic(x))
INEXACT_UNARY("aten::deg2rad", x*(pi / 180.0))
INEXACT_UNARY("aten::rad2deg", x * (180.0 * inv_pi))
INEXACT_UNARY("aten::sinc", normalized_sine(x))

OP("aten::floor") { return rounding(op, hlo::floor); }
OP("aten::ceil") { return rounding(op, hlo::ceil); }
OP("aten::trunc") { return rounding(op, truncate); }
OP("aten::round") { return rounding(op, round_half_even); }
OP("aten::frac") {
  return rounding(op, [](const Value& x) { return x - truncate(x); });
}
OP("aten::round.decimals") {
  const int64_t decimals = op.integer(1);
  return rounding(op, [&](const Value& x) {
    const Value wide = to_compute(x);
    const double scale = std::pow(10.0, std::abs(static_cast<double>(decimals)));
    const Value rounded = decimals == 0  ? round_half_even(wide)
                          : decimals > 0 ? exact_quotient(round_half_even(wide * scale), scale)
                                         : round_half_even(exact_quotient(wide, scale)) * scale;
    return convert(rounded, x.dtype());
  });
}

OP("aten::sign") { return {signum(op.tensor(0))}; }
OP("aten::sgn") {
  const Value x = op.tensor(0);
  if (!hlo::is_complex(x.dtype())) return {signum(x)};
  const Value size = modulus(x);
  const Value divisor = hlo::complex(size, like(size, 0.0));
  return {select(equal(size, 0.0), like(x, 0.0), x / divisor)};
}
OP("aten::signbit") { return {sign_bit(op.tensor(0))}; }

#define COPYSIGN(name, sign)                                                                 \
  OP(name) {                                                                                 \
    const Value value = sign;                                                                \
    return {inexact_binary(op, op.tensor(0), value,                                          \
                           [](const Value& a, const Value& b) { return copy_sign(a, b); })}; \
  }
COPYSIGN("aten::copysign.Tensor", op.tensor(1))
COPYSIGN("aten::copysign.Scalar", op.scalar(1))

OP("aten::atan2") {
  return {inexact_binary(op, op.tensor(0), op.tensor(1),
                         [](const Value& a, const Value& b) { return hlo::binary("atan2", a, b); })};
}
OP("aten::hypot") { return {common_binary(op, op.tensor(0), op.tensor(1), hypotenuse)}; }
OP("aten::nextafter") {
  const auto [a, b] = promote(op, op.tensor(0), op.tensor(1));
  return {next_after(a, b)};
}
OP("aten::logaddexp") {
  return {inexact_binary(op, op.tensor(0), op.tensor(1),
                         [](const Value& a, const Value& b) { return log_of_sum_of_powers(a, b, 1.0); })};
}
OP("aten::logaddexp2") {
  return {inexact_binary(op, op.tensor(0), op.tensor(1),
                         [](const Value& a, const Value& b) { return log_of_sum_of_powers(a, b, ln2); })};
}
OP("aten::ldexp.Tensor") {
  // x * 2 ** n, as torch composes it: the power is taken in the dtype of n.
  const Value n = op.tensor(1);
  const Value scale = inexact_unary(op, n, [](const Value& y) { return hlo::power(like(y, 2.0), y); });
  return {common_binary(op, op.tensor(0), scale, [](const Value& a, const Value& b) { return a * b; })};
}

OP("aten::frexp.Tensor") {
  const Value x = op.tensor(0);
  const Value wide = to_compute(x);
  const Parts p = parts(wide);
  const Value special = equal(wide, 0.0) | !hlo::is_finite(wide);
  return {convert(select(special, wide, p.fraction), x.dtype()),
          convert(select(special, like(p.exponent, 0.0), p.exponent), DType::kS32)};
}

OP("aten::angle") {
  const Value x = op.tensor(0);
  return {angle(is_whole(x) ? to_inexact(op, x) : x)};
}
// conj_physical itself is composed of these; its in-place form is a schema of its own.
OP("aten::conj_physical_") { return {conjugate(op.tensor(0))}; }
OP("aten::_conj_physical") { return {conjugate(op.tensor(0))}; }
OP("aten::conj_physical.out") { return {conjugate(op.tensor(0))}; }
OP("aten::complex") {
  const Value re = op.tensor(0);
  if (re.dtype() == DType::kF16) op.fail("complex: ComplexHalf is not supported on this device");
  return {hlo::complex(re, op.tensor(1))};
}
OP("aten::polar") {
  const Value size = op.tensor(0);
  const Value angle = op.tensor(1);
  return {hlo::complex(size * hlo::cos(angle), size * hlo::sin(angle))};
}

}  // namespace torch_tpu::ops

// Shapes that most pointwise operators share: promote, compute in full precision, round once.
#pragma once

#include <cmath>

#include "ops/op.h"
#include "ops/promotion.h"

namespace torch_tpu::ops {

/// x as an operand of a computation whose result is `dtype`: rounded to `dtype`, then widened to its
/// compute dtype. Rank-0 operands keep full precision, as torch's kernels keep them in opmath type.
inline Value operand(const Value& x, DType dtype) {
  const DType compute = compute_dtype(dtype);
  return hlo::convert(x.rank() == 0 ? x : hlo::convert(x, dtype), compute);
}

/// `function` applied to the operands in the compute dtype of their common dtype.
template <class Function>
Value common_binary(const Lowering& op, const Value& a, const Value& b, Function function) {
  const DType dtype = result_type(op, {a, b});
  return hlo::convert(function(operand(a, dtype), operand(b, dtype)), dtype);
}

/// The common dtype of the values, with integers replaced by the default dtype.
inline DType inexact_type(const Lowering& op, const Values& values) {
  const DType dtype = result_type(op, values);
  return hlo::is_inexact(dtype) ? dtype : op.default_dtype();
}

/// The same as common_binary for functions with fractional results.
template <class Function>
Value inexact_binary(const Lowering& op, const Value& a, const Value& b, Function function) {
  const DType dtype = inexact_type(op, {a, b});
  return hlo::convert(function(operand(a, dtype), operand(b, dtype)), dtype);
}

/// `function` of one operand with a fractional result.
template <class Function>
Value inexact_unary(const Lowering& op, const Value& x, Function function) {
  const Value value = to_inexact(op, x);
  return hlo::convert(function(to_compute(value)), value.dtype());
}

/// True where the Scalar argument `i` is known to be `number` (a default may arrive as None).
inline bool is_number(const Lowering& op, int i, double number) {
  return !op.has(i) || op.number(i) == number;
}

inline Value truncate(const Value& x) {
  return hlo::select(hlo::compare(hlo::Compare::kLt, x, 0.0), hlo::ceil(x), hlo::floor(x));
}

/// x, which compilers may not look through.
inline Value opaque(const Value& x) {
  return x.builder->emit_one("stablehlo.optimization_barrier", {x}, x.type);
}

/// x / y as IEEE 754 rounds it. XLA multiplies by the rounded reciprocal where it sees that the divisor is a
/// constant or is broadcast, and makes (x * z) / y of x / (y / z), which overflows. It does not look through
/// these choices, which change nothing: a NaN gives NaN.
inline Value exact_quotient(const Value& x, const Value& y) {
  if (!hlo::is_float(x.dtype())) return x / y;
  const auto is_nan = [](const Value& v) { return hlo::compare(hlo::Compare::kNe, v, v); };
  const Value either = is_nan(x) | is_nan(y);
  const Value dividend = hlo::select(either, x.builder->splat(NAN, {x.dtype(), {}}), x);
  return dividend / hlo::select(either, y.builder->splat(1.0, {y.dtype(), {}}), y);
}
inline Value exact_quotient(const Value& x, double y) {
  return exact_quotient(x, x.builder->splat(y, {x.dtype(), {}}));
}

inline Value conjugate(const Value& x) {
  return hlo::is_complex(x.dtype()) ? hlo::complex(hlo::real(x), -hlo::imag(x)) : x;
}

/// |z|, infinite where a part is, whatever the other. Made of operations that every program rounds alike, so
/// that a maximum of moduli equals one of them.
inline Value modulus(const Value& z) {
  if (!hlo::is_complex(z.dtype())) return hlo::abs(z);
  const Value re = hlo::abs(hlo::real(z)), im = hlo::abs(hlo::imag(z));
  const Value high = hlo::maximum(re, im);
  const Value ratio = hlo::minimum(re, im) / high;
  const Value square = ratio * ratio;
  const Value one = hlo::like(high, 1.0);
  // The choice keeps compilers from rounding the product and the sum at once.
  const Value bounded = hlo::select(hlo::compare(hlo::Compare::kGt, square, one), one, square);
  const Value size =
      hlo::select(hlo::compare(hlo::Compare::kEq, high, 0.0), high, high * hlo::sqrt(one + bounded));
  const Value infinity = hlo::like(size, INFINITY);
  const Value infinite =
      hlo::compare(hlo::Compare::kEq, re, infinity) | hlo::compare(hlo::Compare::kEq, im, infinity);
  return hlo::select(infinite, infinity, size);
}

/// log(exp(a) + exp(b)) of complex numbers, led by the operand with the larger real part.
Value complex_log_of_sum(const Value& a, const Value& b);

inline Value less(const Value& a, const Value& b) { return hlo::compare(hlo::Compare::kLt, a, b); }
inline Value less(const Value& a, double b) { return hlo::compare(hlo::Compare::kLt, a, b); }
inline Value greater(const Value& a, const Value& b) { return hlo::compare(hlo::Compare::kGt, a, b); }
inline Value greater(const Value& a, double b) { return hlo::compare(hlo::Compare::kGt, a, b); }
inline Value equal(const Value& a, const Value& b) { return hlo::compare(hlo::Compare::kEq, a, b); }
inline Value not_equal(const Value& a, const Value& b) { return hlo::compare(hlo::Compare::kNe, a, b); }
inline Value not_equal(const Value& a, double b) { return hlo::compare(hlo::Compare::kNe, a, b); }
inline Value equal(const Value& a, double b) { return hlo::compare(hlo::Compare::kEq, a, b); }

/// A polynomial of x by Horner's rule, highest coefficient first.
inline Value polynomial(const Value& x, std::initializer_list<double> coefficients) {
  Value sum;
  for (const double coefficient : coefficients) {
    sum = sum ? sum * x + coefficient : hlo::like(x, coefficient);
  }
  return sum;
}

/// The Chebyshev series sum' c_k T_k(y / 2), highest order first, the constant term halved (the form of
/// chbevl in the Cephes library). Orders below the precision of f32 are left out for it.
inline Value chebyshev(const Value& y, std::initializer_list<double> coefficients) {
  const double negligible = y.dtype() == DType::kF64 ? 0.0 : 2e-9;
  Value current = hlo::like(y, 0.0), previous = current, before = current;
  bool started = false;
  for (const double coefficient : coefficients) {
    if (!started && std::abs(coefficient) < negligible) continue;
    before = previous;
    previous = current;
    current = started ? y * previous - before + coefficient : hlo::like(y, coefficient);
    started = true;
  }
  return 0.5 * (current - before);
}

}  // namespace torch_tpu::ops

/// A unary operator with a fractional result, computed by `expression` of `x`.
#define INEXACT_UNARY(name, expression)                                                           \
  OP(name) {                                                                                      \
    return {inexact_unary(op, op.tensor(0), [](const Value& x) -> Value { return expression; })}; \
  }

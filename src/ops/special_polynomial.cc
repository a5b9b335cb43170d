// Orthogonal polynomials of element-wise degree: three-term recurrences in one loop, and the closed
// trigonometric forms of the Chebyshev polynomials inside [-1, 1].
#include <cmath>
#include <functional>

#include "ops/pointwise.h"

namespace torch_tpu::ops {
namespace {

using hlo::abs;
using hlo::Compare;
using hlo::compare;
using hlo::cos;
using hlo::like;
using hlo::select;
using hlo::sin;

/// The value of degree k from x, j = k - 1, the values of degree k - 2 (p) and k - 1 (q).
using Step = Value (*)(const Value& x, const Value& j, const Value& p, const Value& q);

/// Degree zero is one, degree one is `first`. Elements of degree below two leave the loop at once. In double
/// precision, because neighbouring degrees cancel.
Value recurrence(const Value& argument, const Value& degree, const Value& degree_one, Step step) {
  const Value x = hlo::convert(argument, DType::kF64);
  const Value first = hlo::convert(degree_one, DType::kF64);
  Dims all;
  for (int64_t i = 0; i < x.rank(); ++i) all.push_back(i);
  const auto active = [](const Values& state) {
    return compare(Compare::kLe, state[0], state[2]) & equal(state[4], state[4]);
  };
  // What overflows the argument's dtype is infinite from there on.
  const double limit = argument.dtype() == DType::kF64 ? INFINITY : 0x1.fffffep127;
  // State: k (rank 0), x, degree, p, q. Degrees are integers: a float counter would stop at 2^24.
  const Values end = hlo::while_loop(
      {x.builder->splat(int64_t{2}, {DType::kS64, {}}), x, hlo::convert(degree, DType::kS64), like(x, 1.0),
       first},
      [&](const Values& state) -> Values { return {hlo::reduce(active(state), hlo::Reduction::kOr, all)}; },
      [&](const Values& state) -> Values {
        const Value go = active(state);
        const Value j = hlo::convert(state[0] - 1.0, state[1].dtype());
        const Value next = step(state[1], j, state[3], state[4]);
        const Value kept = select(greater(abs(next), limit), next * INFINITY, next);
        return {state[0] + 1.0, state[1], state[2], select(go, state[4], state[3]),
                select(go, kept, state[4])};
      });
  return select(equal(degree, 0.0), like(argument, 1.0), hlo::convert(end[4], argument.dtype()));
}

/// A degree as torch reads it: truncated to an integer; what no integer holds counts as negative.
Value whole_degree(const Value& n) { return select(less(abs(n), 9.2e18), truncate(n), like(n, -1.0)); }

Value is_even(const Value& n) { return equal(hlo::remainder(n, like(n, 2.0)), 0.0); }

Value acos(const Value& x) { return hlo::unary("chlo.acos", x); }

enum class Kind { kT, kU, kV, kW };

/// Beyond this degree torch uses the trigonometric form inside (-1, 1).
int largest_recurrent_degree(Kind kind, bool shifted) {
  if (kind == Kind::kT) return 6;
  if (!shifted) return 8;
  return kind == Kind::kW ? 4 : 6;
}

Value chebyshev_polynomial(Kind kind, bool shifted, const Value& argument, const Value& order) {
  const Value x = shifted ? 2.0 * argument - 1.0 : argument;
  const Value n = whole_degree(order);
  const Value one = like(x, 1.0);
  const Value sign = select(is_even(n), one, -one);
  Value first, at_one, at_minus_one, inside;
  const Value angle = acos(x);
  switch (kind) {
    case Kind::kT:
      first = x;
      at_one = one;
      at_minus_one = sign;
      inside = cos(n * angle);
      break;
    case Kind::kU:
      first = 2.0 * x;
      at_one = n + 1.0;
      at_minus_one = sign * (n + 1.0);
      inside = sin((n + 1.0) * angle) / sin(angle);
      break;
    case Kind::kV:
      first = 2.0 * x - 1.0;
      at_one = one;
      at_minus_one = sign * (2.0 * n + 1.0);
      inside = cos((n + 0.5) * angle) / cos(angle * 0.5);
      break;
    case Kind::kW:
      first = 2.0 * x + 1.0;
      at_one = 2.0 * n + 1.0;
      at_minus_one = sign;
      inside = sin((n + 0.5) * angle) / sin(angle * 0.5);
      break;
  }
  const Value edge = equal(abs(x), 1.0);
  const Value closed = greater(n, largest_recurrent_degree(kind, shifted)) & less(abs(x), 1.0);
  const Value degree = select(edge | closed, like(n, 0.0), n);
  const Value general = recurrence(
      x, degree, first,
      [](const Value& x, const Value&, const Value& p, const Value& q) { return 2.0 * x * q - p; });
  const Value at_edge = select(greater(x, 0.0), at_one, at_minus_one);
  return select(less(n, 0.0), like(x, 0.0), select(edge, at_edge, select(closed, inside, general)));
}

/// torch gives NaN for Hermite polynomials beyond these degrees.
double largest_hermite_degree(DType dtype) { return dtype == DType::kF64 ? 512.0 : 128.0; }

Value hermite(const Value& x, const Value& order, bool physicists) {
  const Value n = whole_degree(order);
  const Value too_high = greater(n, largest_hermite_degree(x.dtype()));
  const Value degree = select(too_high, like(n, 0.0), n);
  const Step physical = [](const Value& x, const Value& j, const Value& p, const Value& q) {
    return 2.0 * x * q - 2.0 * j * p;
  };
  const Step probable = [](const Value& x, const Value& j, const Value& p, const Value& q) {
    return x * q - j * p;
  };
  const Value value =
      physicists ? recurrence(x, degree, 2.0 * x, physical) : recurrence(x, degree, x, probable);
  return select(less(n, 0.0), like(x, 0.0), select(too_high, like(x, NAN), value));
}

Value laguerre(const Value& x, const Value& order) {
  const Value n = whole_degree(order);
  const Value zero = equal(x, 0.0);
  const Value degree = select(zero, like(n, 0.0), n);
  const Value value =
      recurrence(x, degree, 1.0 - x, [](const Value& x, const Value& j, const Value& p, const Value& q) {
        return ((2.0 * j + (1.0 - x)) * q - j * p) / (j + 1.0);
      });
  return select(less(n, 0.0), like(x, 0.0), value);
}

Value legendre(const Value& x, const Value& order) {
  const Value n = whole_degree(order);
  const Value edge = equal(abs(x), 1.0);
  const Value degree = select(edge, like(n, 0.0), n);
  const Value value =
      recurrence(x, degree, x, [](const Value& x, const Value& j, const Value& p, const Value& q) {
        return ((2.0 * j + 1.0) * x * q - j * p) / (j + 1.0);
      });
  const Value minus = less(x, 0.0) & !is_even(n);
  const Value at_edge = select(minus, like(x, -1.0), like(x, 1.0));
  return select(less(n, 0.0), like(x, 0.0), select(edge, at_edge, value));
}

Value evaluated(const Lowering& op, const Value& x, const Value& n,
                const std::function<Value(const Value&, const Value&)>& function) {
  return inexact_binary(op, x, n, [&](const Value& argument, const Value& degree) {
    const Dims dims = hlo::broadcast_dims(*argument.builder, argument.dims(), degree.dims());
    return function(hlo::broadcast_to(argument, dims), hlo::broadcast_to(degree, dims));
  });
}

}  // namespace

#define POLYNOMIAL(name, expression)                                               \
  OP("aten::" name) {                                                              \
    return {evaluated(op, op.tensor(0), op.tensor(1),                              \
                      [](const Value& x, const Value& n) { return expression; })}; \
  }                                                                                \
  OP("aten::" name ".x_scalar") {                                                  \
    return {evaluated(op, op.scalar(0), op.tensor(1),                              \
                      [](const Value& x, const Value& n) { return expression; })}; \
  }                                                                                \
  OP("aten::" name ".n_scalar") {                                                  \
    return {evaluated(op, op.tensor(0), op.scalar(1),                              \
                      [](const Value& x, const Value& n) { return expression; })}; \
  }

POLYNOMIAL("special_chebyshev_polynomial_t", chebyshev_polynomial(Kind::kT, false, x, n))
POLYNOMIAL("special_chebyshev_polynomial_u", chebyshev_polynomial(Kind::kU, false, x, n))
POLYNOMIAL("special_chebyshev_polynomial_v", chebyshev_polynomial(Kind::kV, false, x, n))
POLYNOMIAL("special_chebyshev_polynomial_w", chebyshev_polynomial(Kind::kW, false, x, n))
POLYNOMIAL("special_shifted_chebyshev_polynomial_t", chebyshev_polynomial(Kind::kT, true, x, n))
POLYNOMIAL("special_shifted_chebyshev_polynomial_u", chebyshev_polynomial(Kind::kU, true, x, n))
POLYNOMIAL("special_shifted_chebyshev_polynomial_v", chebyshev_polynomial(Kind::kV, true, x, n))
POLYNOMIAL("special_shifted_chebyshev_polynomial_w", chebyshev_polynomial(Kind::kW, true, x, n))
POLYNOMIAL("special_hermite_polynomial_h", hermite(x, n, true))
POLYNOMIAL("special_hermite_polynomial_he", hermite(x, n, false))
POLYNOMIAL("special_laguerre_polynomial_l", laguerre(x, n))
POLYNOMIAL("special_legendre_polynomial_p", legendre(x, n))

}  // namespace torch_tpu::ops

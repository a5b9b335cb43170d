// Incomplete gamma functions and the derivatives of gamma and Dirichlet samples.
#include <cmath>
#include <numbers>

#include "ops/pointwise.h"

namespace torch_tpu::ops {
namespace {

using hlo::abs;
using hlo::Compare;
using hlo::compare;
using hlo::exp;
using hlo::expm1;
using hlo::is_nan;
using hlo::like;
using hlo::log;
using hlo::log1p;
using hlo::select;
using hlo::sqrt;

constexpr double kLargestStep = 2000.0;

Value at_most(const Value& a, const Value& b) { return compare(Compare::kLe, a, b); }
Value at_most(const Value& a, double b) { return compare(Compare::kLe, a, b); }
Value at_least(const Value& a, const Value& b) { return compare(Compare::kGe, a, b); }
Value log_gamma(const Value& x) { return hlo::unary("chlo.lgamma", x); }
Value digamma(const Value& x) { return hlo::unary("chlo.digamma", x); }

double epsilon(const Value& x) { return x.dtype() == DType::kF64 ? 0x1p-53 : 0x1p-24; }

Value any(const Value& mask) {
  Dims all;
  for (int64_t i = 0; i < mask.rank(); ++i) all.push_back(i);
  return hlo::reduce(mask, hlo::Reduction::kOr, all);
}

/// x^a exp(-x) / Gamma(a). Large a by Stirling's series, which cancels nothing.
Value gamma_density(const Value& a, const Value& x) {
  const Value direct = exp(a * log(x) - x - log_gamma(a));
  const Value inverse = 1.0 / a;
  const Value correction = polynomial(
      inverse, {163879.0 / 209018880.0, -571.0 / 2488320.0, -139.0 / 51840.0, 1.0 / 288.0, 1.0 / 12.0, 1.0});
  const Value offset = (x - a) * inverse;
  const Value stirling = sqrt(a) * (0.5 * std::numbers::inv_sqrtpi * std::numbers::sqrt2) *
                         exp(a * (log1p(offset) - offset)) / correction;
  return select(greater(a, 10.0), stirling, direct);
}

/// density * factor; zero where the density is, even if the factor overflowed.
Value without_mass(const Value& density, const Value& factor) {
  return select(equal(density, 0.0), density, density * factor);
}

/// log(1 + x) - x without cancellation for small x.
Value log1p_less_x(const Value& x) {
  const Value series = x * x *
                       polynomial(x, {1.0 / 11, -1.0 / 10, 1.0 / 9, -1.0 / 8, 1.0 / 7, -1.0 / 6, 1.0 / 5,
                                      -1.0 / 4, 1.0 / 3, -1.0 / 2});
  return select(less(abs(x), 0.03), series, log1p(x) - x);
}

/// Large a and x near it, where the series would need thousands of terms.
Value in_transition(const Value& a, const Value& x) { return greater(a, 1e4) & less(abs(x - a), 0.3 * a); }

/// Q(a, x) in that region: Temme's uniform expansion DLMF 8.12.4, with 8.12.3 for P by `sign` -1.
Value transition(const Value& a, const Value& x, double sign) {
  const Value offset = (x - a) / a;
  const Value magnitude = sqrt(-2.0 * log1p_less_x(offset));
  const Value eta = select(less(offset, 0.0), -magnitude, magnitude);
  const Value row0 = polynomial(
      eta, {1.0261809784240308e-8, 6.7078535434014986e-9, -1.7665952736826079e-7, 8.296711340953086e-7,
            -1.85406221071516e-6, -2.1854485106799922e-6, 3.9192631785224378e-5, -1.7875514403292181e-4,
            3.527336860670194e-4, 1.1574074074074074e-3, -1.4814814814814815e-2, 8.3333333333333333e-2,
            -3.3333333333333333e-1});
  const Value row1 = polynomial(eta, {-4.0187757201646091e-7, 2.0576131687242798e-4, -9.9022633744855967e-4,
                                      2.6455026455026455e-3, -3.4722222222222222e-3, -1.8518518518518519e-3});
  const Value row2 = polynomial(eta, {7.7160493827160494e-4, -2.6813271604938272e-3, 4.1335978835978836e-3});
  const Value sum = row0 + (row1 + row2 / a) / a;
  const Value tail = exp(-0.5 * a * eta * eta) * sum / sqrt(2.0 * std::numbers::pi * a);
  return 0.5 * hlo::unary("chlo.erfc", sign * eta * sqrt(0.5 * a)) + sign * tail;
}

/// P(a, x) where `mask`: the power series DLMF 8.11.4.
Value lower_series(const Value& a, const Value& x, const Value& mask) {
  const double accuracy = epsilon(x);
  const auto active = [&](const Values& state) { return greater(state[2], accuracy * state[3]); };
  // State: step (rank 0), r, term, sum, x.
  const Values end = hlo::while_loop(
      {x.builder->splat(0.0, {x.dtype(), {}}), a, hlo::convert(mask, x.dtype()), like(x, 1.0), x},
      [&](const Values& state) -> Values { return {any(active(state)) & less(state[0], kLargestStep)}; },
      [&](const Values& state) -> Values {
        const Value r = state[1] + 1.0;
        const Value term = state[2] * state[4] / r;
        return {state[0] + 1.0, r, term, state[3] + term, state[4]};
      });
  return without_mass(gamma_density(a, x), end[3] / a);
}

/// Q(a, x) where `mask`: the continued fraction DLMF 8.9.2.
Value upper_fraction(const Value& a, const Value& x, const Value& mask) {
  const double accuracy = epsilon(x);
  const double big = 1.0 / accuracy;
  const Value one = like(x, 1.0);
  const Value y = 1.0 - a;
  const Value z = x + y + 1.0;
  const Value first = x + 1.0;
  const Value second = z * x;
  // State: c (rank 0), y, z, p before, q before, p, q, value, unfinished.
  const Values end = hlo::while_loop(
      {x.builder->splat(0.0, {x.dtype(), {}}), y, z, one, x, first, second, first / second, mask},
      [&](const Values& state) -> Values { return {any(state[8]) & less(state[0], kLargestStep)}; },
      [&](const Values& state) -> Values {
        const Value c = state[0] + 1.0;
        const Value y = state[1] + 1.0;
        const Value z = state[2] + 2.0;
        const Value p = state[5] * z - state[3] * (y * c);
        const Value q = state[6] * z - state[4] * (y * c);
        const Value ratio = p / q;
        const Value usable = not_equal(q, 0.0);
        const Value change = abs((state[7] - ratio) / ratio);
        const Value go = state[8];
        const Value finished = usable & at_most(change, accuracy);
        const Value scale = select(greater(abs(p), big), like(p, accuracy), like(p, 1.0));
        return {c,
                y,
                z,
                state[5] * scale,
                state[6] * scale,
                p * scale,
                q * scale,
                select(go & usable, ratio, state[7]),
                go & !finished};
      });
  return without_mass(gamma_density(a, x), end[7]);
}

/// Q(a, x) where `mask`, for small x: DLMF 8.7.3.
Value upper_series(const Value& a, const Value& x, const Value& mask) {
  const double accuracy = epsilon(x);
  const Value zero = like(x, 0.0);
  // State: n (rank 0), factor, sum, unfinished, a, x.
  const Values end = hlo::while_loop(
      {x.builder->splat(0.0, {x.dtype(), {}}), like(x, 1.0), zero, mask, a, x},
      [&](const Values& state) -> Values { return {any(state[3]) & less(state[0], kLargestStep)}; },
      [&](const Values& state) -> Values {
        const Value n = state[0] + 1.0;
        const Value factor = state[1] * (-state[5] / n);
        const Value term = factor / (state[4] + n);
        const Value sum = select(state[3], state[2] + term, state[2]);
        return {n, factor, sum, state[3] & greater(abs(term), accuracy * abs(sum)), state[4], state[5]};
      });
  const Value power = a * log(x);
  return -expm1(power - log_gamma(1.0 + a)) - exp(power - log_gamma(a)) * end[2];
}

/// The values that both functions share at the borders of their domain.
Value with_borders(const Value& a, const Value& x, const Value& value, double at_zero, double at_infinity) {
  const Value nan = like(x, NAN);
  const Value start = like(x, at_zero);
  const Value end = like(x, at_infinity);
  const Value a_infinite = equal(a, INFINITY);
  const Value x_infinite = equal(x, INFINITY);
  // In the order of ATen's tests, of which some are passed by NaN.
  Value result = select(is_nan(x) | is_nan(a), nan, value);
  result = select(x_infinite, end, result);
  result = select(a_infinite, select(x_infinite, nan, start), result);
  result = select(equal(x, 0.0), start, result);
  result = select(equal(a, 0.0), select(greater(x, 0.0), end, nan), result);
  return select(less(x, 0.0) | less(a, 0.0), nan, result);
}

/// Where the series serve.
Value is_regular(const Value& a, const Value& x) {
  return less(a, INFINITY) & less(x, INFINITY) & greater(x, 0.0) & greater(a, 0.0) & !in_transition(a, x);
}

Value lower_incomplete_gamma(const Value& a, const Value& x) {
  const Value upper = greater(x, 1.0) & greater(x, a);
  const Value usable = is_regular(a, x);
  const Value value =
      select(upper, 1.0 - upper_fraction(a, x, upper & usable), lower_series(a, x, usable & !upper));
  return with_borders(a, x, select(in_transition(a, x), transition(a, x, -1.0), value), 0.0, 1.0);
}

Value upper_incomplete_gamma(const Value& a, const Value& x) {
  const Value large = greater(x, 1.1);
  const Value complement =
      select(large, less(x, a), select(at_most(x, 0.5), less(-0.4 / log(x), a), less(x * 1.1, a)));
  const Value usable = is_regular(a, x);
  const Value lower = 1.0 - lower_series(a, x, usable & complement);
  const Value rest = usable & !complement;
  const Value upper = select(large, upper_fraction(a, x, rest & large), upper_series(a, x, rest & !large));
  const Value value = select(complement, lower, upper);
  return with_borders(a, x, select(in_transition(a, x), transition(a, x, 1.0), value), 1.0, 0.0);
}

/// The operands broadcast against each other: loops carry them whole.
Value of_both(const Lowering& op, Value (*function)(const Value&, const Value&)) {
  return inexact_binary(op, op.tensor(0), op.tensor(1), [&](const Value& a, const Value& x) {
    const Dims dims = hlo::broadcast_dims(*a.builder, a.dims(), x.dims());
    return function(hlo::broadcast_to(a, dims), hlo::broadcast_to(x, dims));
  });
}

// --- derivatives of samples, from ATen/native/Distributions.h --------------------------------------

/// -(d cdf / d alpha) / pdf of the gamma distribution at the sample x.
Value gamma_sample_slope(const Value& alpha, const Value& x) {
  // Taylor series for small x.
  Value numerator = like(x, 1.0), denominator = alpha;
  Value series1 = 1.0 / denominator;
  Value series2 = series1 / denominator;
  for (int i = 1; i <= 5; ++i) {
    numerator = numerator * (x * (-1.0 / i));
    denominator = denominator + 1.0;
    series1 = series1 + numerator / denominator;
    series2 = series2 + numerator / (denominator * denominator);
  }
  const Value power = hlo::power(x, alpha);
  const Value density = hlo::power(x, alpha - 1.0) * exp(-x);
  const Value slope = (log(x) - digamma(alpha)) * (power * series1) - power * series2;
  const Value small_raw = -slope / density;
  const Value small = select(is_nan(small_raw), like(x, 0.0), small_raw);

  // Rice's saddle point expansion for large alpha, with a form of its own near the mode.
  const Value near1 = 1.0 + 24.0 * alpha * (1.0 + 12.0 * alpha);
  const Value near2 = 1440.0 * alpha * alpha + 6.0 * x * (53.0 - 120.0 * x) - 65.0 * x * x / alpha +
                      alpha * (107.0 + 3600.0 * x);
  const Value near = near1 * near2 / (1244160.0 * (alpha * alpha) * (alpha * alpha));
  const Value root = sqrt(8.0 * alpha);
  const Value ratio = log(x / alpha);
  const Value gap = alpha - x;
  const Value term2 = root / gap;
  const Value term3 = hlo::power(-gap - alpha * ratio, like(x, -1.5));
  const Value term23 = select(less(x, alpha), term2 - term3, term2 + term3);
  const Value term1 = ratio * term23 - sqrt(2.0 / alpha) * (alpha + x) / (gap * gap);
  const Value stirling = 1.0 + 1.0 / (12.0 * alpha) * (1.0 + 1.0 / (24.0 * alpha));
  const Value far = -stirling * x * term1 / root;
  const Value around = at_least(x, 0.9 * alpha) & at_most(x, 1.1 * alpha);
  const Value large = select(around, near, far);

  // A bivariate rational approximation for the rest.
  constexpr double kCoefficients[3][8] = {
      {0.16009398, -0.094634809, 0.025146376, -0.0030648343, 1, 0.32668115, 0.10406089, 0.0014179084},
      {0.53487893, 0.1298071, 0.065735949, -0.0015649758, 0.16639465, 0.020070113, -0.0035938915,
       -0.00058392623},
      {0.040121004, -0.0065914022, -0.0026286047, -0.0013441777, 0.017050642, -0.0021309326, 0.00085092367,
       -1.5247877e-07}};
  const Value v = log(alpha);
  Value p, q;
  for (int i = 3; i >= 0; --i) {
    const auto in_ratio = [&](int k) {
      return polynomial(ratio, {kCoefficients[2][k], kCoefficients[1][k], kCoefficients[0][k]});
    };
    p = p ? p * v + in_ratio(i) : in_ratio(i);
    q = q ? q * v + in_ratio(i + 4) : in_ratio(i + 4);
  }
  return select(less(x, 0.8), small, select(greater(alpha, 8.0), large, exp(p / q)));
}

Value without_nan(const Value& x) { return select(is_nan(x), like(x, 0.0), x); }

Value beta_slope_of_alpha(const Value& x, const Value& alpha, const Value& beta) {
  const Value factor = digamma(alpha) - digamma(alpha + beta) - log(x);
  Value numerator = like(x, 1.0);
  Value series = (factor + 1.0 / alpha) / alpha;
  for (int i = 1; i <= 10; ++i) {
    numerator = numerator * (static_cast<double>(i) - beta) * x / static_cast<double>(i);
    const Value denominator = alpha + static_cast<double>(i);
    series = series + numerator / denominator * (factor + 1.0 / denominator);
  }
  return without_nan(x * hlo::power(1.0 - x, -beta) * series);
}

Value beta_slope_of_beta(const Value& x, const Value& alpha, const Value& beta) {
  const Value factor = digamma(alpha + beta) - digamma(beta);
  Value numerator = like(x, 1.0), betas = like(x, 1.0), slopes = like(x, 0.0);
  Value series = factor / alpha;
  for (int i = 1; i <= 8; ++i) {
    const double k = i;
    numerator = numerator * (x * (-1.0 / k));
    slopes = slopes * (beta - k) + betas;
    betas = betas * (beta - k);
    series = series + numerator / (alpha + k) * (slopes + factor * betas);
  }
  return without_nan(-hlo::power(1.0 - x, 1.0 - beta) * series);
}

Value beta_slope_of_large(const Value& x, const Value& alpha, const Value& beta) {
  const Value total = alpha + beta;
  const Value mean = alpha / total;
  const Value deviation = sqrt(alpha * beta / (total + 1.0)) / total;
  const Value square = beta * beta;
  const Value tail = 8.0 * (1.0 - x) * (135.0 * beta - 11.0);
  const Value inner4 = (453.0 + 1620.0 * beta * (1.0 - x) - 455.0 * x) * beta + alpha * tail;
  const Value inner3 = 3.0 * (59.0 + 180.0 * beta - 90.0 * x) * square + alpha * inner4;
  const Value inner2 = (43.0 + 20.0 * (16.0 + 27.0 * beta) * x) * square * beta + alpha * inner3;
  const Value series = 47.0 * x * square * square + alpha * inner2;
  const Value scale = (1.0 + 12.0 * alpha) * (1.0 + 12.0 * beta) / (total * total);
  const Value divisor = 12960.0 * alpha * alpha * alpha * square * (1.0 + 12.0 * total);
  const Value near = scale / (1.0 - x) * series / divisor;

  const auto stirling = [](const Value& a) { return 1.0 + 1.0 / (12.0 * a) + 1.0 / (288.0 * a * a); };
  const Value prefactor = -x / sqrt(2.0 * alpha * beta / total);
  const Value correction = stirling(alpha) * stirling(beta) / stirling(total);
  const Value gap = alpha * (x - 1.0) + beta * x;
  const Value top = 2.0 * alpha * alpha * (x - 1.0) + alpha * beta * (x - 1.0) - x * square;
  const Value term1 = top / (sqrt(2.0 * alpha / beta) * total * sqrt(total) * gap * gap);
  const Value term2 = 0.5 * log(alpha / (total * x));
  const Value term3 = sqrt(8.0 * alpha * beta / total) / gap;
  const Value base = beta * log(beta / (total * (1.0 - x))) + alpha * log(alpha / (total * x));
  const Value term4 = hlo::power(base, like(x, -1.5));
  const Value sum = term1 + term2 * (term3 + select(less(x, mean), term4, -term4));
  const Value around = at_least(x, mean - 0.1 * deviation) & at_most(x, mean + 0.1 * deviation);
  return select(around, near, correction * prefactor * sum);
}

Value beta_slope_of_rest(const Value& x, const Value& alpha, const Value& total) {
  constexpr double kCoefficients[2][3][3][4] = {
      {{{1.003668233, -0.01061107488, -0.0657888334, 0.01201642863},
        {0.6336835991, -0.3557432599, 0.05486251648, -0.001465281033},
        {-0.03276231906, 0.004474107445, 0.002429354597, -0.0001557569013}},
       {{0.221950385, -0.3187676331, 0.01799915743, 0.01074823814},
        {-0.2951249643, 0.06219954479, 0.01535556598, 0.001550077057},
        {0.02155310298, 0.004170831599, 0.001292462449, 6.976601077e-05}},
       {{-0.05980841433, 0.008441916499, 0.01085618172, 0.002319392565},
        {0.02911413504, 0.01400243777, -0.002721828457, 0.000751041181},
        {0.005900514878, -0.001936558688, -9.495446725e-06, 5.385558597e-05}}},
      {{{1, -0.02924021934, -0.04438342661, 0.007285809825},
        {0.6357567472, -0.3473456711, 0.05454656494, -0.002407477521},
        {-0.03301322327, 0.004845219414, 0.00231480583, -0.0002307248149}},
       {{0.5925320577, -0.1757678135, 0.01505928619, 0.000564515273},
        {0.1014815858, -0.06589186703, 0.01272886114, -0.0007316646956},
        {-0.007258481865, 0.001096195486, 0.0003934994223, -4.12701925e-05}},
       {{0.06469649321, -0.0236701437, 0.002902096474, -5.896963079e-05},
        {0.001925008108, -0.002869809258, 0.0008000589141, -6.063713228e-05},
        {-0.0003477407336, 6.959756487e-05, 1.097287507e-05, -1.650964693e-06}}}};
  const Value u = log(x);
  const Value a = log(alpha) - u;
  const Value b = log(total) - a;
  const auto surface = [&](const double (&c)[3][3][4]) {
    Value sum;
    for (int i = 2; i >= 0; --i) {
      Value row;
      for (int j = 2; j >= 0; --j) {
        const Value entry = polynomial(b, {c[i][j][3], c[i][j][2], c[i][j][1], c[i][j][0]});
        row = row ? row * a + entry : entry;
      }
      sum = sum ? sum * u + row : row;
    }
    return sum;
  };
  const Value approximation = x * (digamma(total) - digamma(alpha)) / (total - alpha);
  return surface(kCoefficients[0]) / surface(kCoefficients[1]) * approximation;
}

/// -(d cdf / d alpha) / pdf / (1 - x) of the beta distribution with alpha + beta = total.
Value beta_sample_slope(const Value& x, const Value& alpha, const Value& total) {
  const Value beta = total - alpha;
  const Value boundary = total * x * (1.0 - x);
  const Value left = at_most(x, 0.5) & less(boundary, 2.5);
  const Value right = compare(Compare::kGe, x, 0.5) & less(boundary, 0.75);
  const Value large = greater(alpha, 6.0) & greater(beta, 6.0);
  const Value inner = select(large, beta_slope_of_large(x, alpha, beta), beta_slope_of_rest(x, alpha, total));
  return select(left, beta_slope_of_alpha(x, alpha, beta),
                select(right, -beta_slope_of_beta(1.0 - x, beta, alpha), inner));
}

}  // namespace

OP("aten::igamma") { return {of_both(op, lower_incomplete_gamma)}; }
OP("aten::igammac") { return {of_both(op, upper_incomplete_gamma)}; }

OP("aten::_standard_gamma_grad") {
  return {inexact_binary(op, op.tensor(0), op.tensor(1), gamma_sample_slope)};
}

OP("aten::_dirichlet_grad") {
  const DType dtype = op.tensor(0).dtype();
  const Value slope = beta_sample_slope(operand(op.tensor(0), dtype), operand(op.tensor(1), dtype),
                                        operand(op.tensor(2), dtype));
  return {hlo::convert(slope, dtype)};
}

}  // namespace torch_tpu::ops

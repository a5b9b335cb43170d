// Special functions: error functions, the gamma family, entropy-like products and normal quantiles.
#include <cmath>
#include <numbers>

#include "ops/indexing.h"
#include "ops/pointwise.h"

namespace torch_tpu::ops {
namespace {

using hlo::Compare;
using hlo::compare;
using hlo::exp;
using hlo::is_nan;
using hlo::like;
using hlo::log;
using hlo::log1p;
using hlo::select;
using std::numbers::inv_sqrtpi;
using std::numbers::pi;
using std::numbers::sqrt2;

Value log_gamma(const Value& x) { return hlo::unary("chlo.lgamma", x); }
Value quiet_nan(const Value& x) { return like(x, NAN); }
Value infinity(const Value& x) { return like(x, INFINITY); }

/// exp(x * x) * erfc(x) for x >= 0. Chebyshev series of (1 + 2x) erfcx(x) in (x - K) / (x + K), after
/// Shepherd and Laframboise, Math. Comp. 36 (1981); coefficients computed anew to 20 digits.
Value scaled_erfc_of_positive(const Value& x) {
  constexpr double kCentre = 3.75;
  // 1 - 2K / (x + K) stays finite for infinite x.
  const Value t = 2.0 - 4.0 * kCentre / (x + kCentre);
  const Value series =
      chebyshev(t, {5.0681489048480721707e-17,  7.4182352566769747374e-17,  -1.2507950530683260543e-15,
                    -1.8645628804187654751e-15, 3.3478119482868610102e-14,  3.2525481481487962855e-14,
                    -9.6546967484334331832e-13, 1.94558685457774052e-13,    2.8687950109306699568e-11,
                    -6.318088340886684435e-11,  -7.7544002088313511005e-10, 4.5219598112182868985e-9,
                    1.0764999465670910378e-8,   -2.1886401049234395661e-7,  7.7403830661984906686e-7,
                    4.1390279860730101675e-6,   -6.9169733025012063671e-5,  4.9077583652580862833e-4,
                    -2.4131635404176081909e-3,  9.0749976707052650939e-3,   -2.6658668435305752277e-2,
                    5.9209939998191890498e-2,   -8.4249133366517915584e-2,  -4.5900545806464773309e-3,
                    2.3551578691348035082});
  return series / (1.0 + 2.0 * x);
}

/// exp(-x * x) without the rounding error of the square, which would count x * x times in f32.
Value bell(const Value& argument) {
  if (argument.dtype() != DType::kF32) return exp(-argument * argument);
  const Value x = hlo::minimum(argument, like(argument, 15.0));  // the end of f32
  const Type bits{DType::kS32, x.dims()};
  const Value leading = hlo::bitcast(hlo::bitcast(x, bits) & x.builder->splat(int64_t{-4096}, bits), x.type);
  return exp(-leading * leading) * exp((leading - x) * (leading + x));
}

Value erfc(const Value& x) {
  return select(less(x, 0.5), 1.0 - hlo::erf(x), bell(x) * scaled_erfc_of_positive(x));
}

Value scaled_erfc(const Value& x) {
  const Value scaled = scaled_erfc_of_positive(hlo::abs(x));
  return select(less(x, 0.0), 2.0 * exp(x * x) - scaled, scaled);
}

Value log_normal_cdf(const Value& x) {
  const Value t = x * (sqrt2 * 0.5);
  const Value tail = log(scaled_erfc_of_positive(hlo::abs(t)) * 0.5) - t * t;
  return select(less(x, -1.0), tail, log1p(erfc(t) * -0.5));
}

// The quantile of the normal distribution, by the rational approximations of ndtri in the Cephes library.
constexpr double kTail = 0.13533528323661269189;  // exp(-2): both tails are less probable than this

/// The quantile of 0.5 + `centre` between the tails.
Value central_quantile(const Value& centre) {
  const Value square = centre * centre;
  const Value p =
      polynomial(square, {-5.99633501014107895267E1, 9.80010754185999661536E1, -5.66762857469070293439E1,
                          1.39312609387279679503E1, -1.23916583867381258016E0});
  const Value q =
      polynomial(square, {1.0, 1.95448858338141759834E0, 4.67627912898881538453E0, 8.63602421390890590575E1,
                          -2.25462687854119370527E2, 2.00260212380060660359E2, -8.20372256168333339912E1,
                          1.59056225126211695515E1, -1.18331621121330003142E0});
  return (centre + centre * (square * p / q)) * 2.50662827463100050242;  // sqrt(2 pi)
}

/// Minus the quantile of y, the probability of a tail.
Value tail_quantile(const Value& y) {
  const Value x = hlo::sqrt(-2.0 * log(y));
  const Value z = 1.0 / x;
  const Value p1 =
      polynomial(z, {4.05544892305962419923E0, 3.15251094599893866154E1, 5.71628192246421288162E1,
                     4.40805073893200834700E1, 1.46849561928858024014E1, 2.18663306850790267539E0,
                     -1.40256079171354495875E-1, -3.50424626827848203418E-2, -8.57456785154685413611E-4});
  const Value q1 =
      polynomial(z, {1.0, 1.57799883256466749731E1, 4.53907635128879210584E1, 4.13172038254672030440E1,
                     1.50425385692907503408E1, 2.50464946208309415979E0, -1.42182922854787788574E-1,
                     -3.80806407691578277194E-2, -9.33259480895457427372E-4});
  const Value p2 =
      polynomial(z, {3.23774891776946035970E0, 6.91522889068984211695E0, 3.93881025292474443415E0,
                     1.33303460815807542389E0, 2.01485389549179081538E-1, 1.23716634817820021358E-2,
                     3.01581553508235416007E-4, 2.65806974686737550832E-6, 6.23974539184983293730E-9});
  const Value q2 =
      polynomial(z, {1.0, 6.02427039364742014255E0, 3.67983563856160859403E0, 1.37702099489081330271E0,
                     2.16236993594496635890E-1, 1.34204006088543189037E-2, 3.28014464682127739104E-4,
                     2.89247864745380683936E-6, 6.79019408009981274425E-9});
  const Value near = less(x, 8.0);
  return x - log(x) / x - z * (select(near, p1, p2) / select(near, q1, q2));
}

Value normal_quantile(const Value& p) {
  const Value lower = compare(Compare::kLe, p, 1.0 - kTail);
  const Value y = select(lower, p, 1.0 - p);
  const Value outer = tail_quantile(y);
  const Value result = select(greater(y, kTail), central_quantile(y - 0.5), select(lower, -outer, outer));
  const Value outside = less(p, 0.0) | greater(p, 1.0) | is_nan(p);
  return select(equal(p, 0.0), -infinity(p),
                select(equal(p, 1.0), infinity(p), select(outside, quiet_nan(p), result)));
}

/// erfinv(y) = quantile((1 + y) / 2) / sqrt(2), where the tail's probability is (1 - |y|) / 2. In double
/// precision, because the gradient exp(erfinv(y)^2) magnifies the last bit of the result.
Value inverse_erf(const Value& argument) {
  const Value y = hlo::convert(argument, DType::kF64);
  const Value size = hlo::abs(y);
  const Value outer = tail_quantile((1.0 - size) * 0.5);
  const Value tail = select(less(y, 0.0), -outer, outer);
  const Value result = select(less(size, 1.0 - 2.0 * kTail), central_quantile(y * 0.5), tail) * (sqrt2 * 0.5);
  const Value end = select(equal(size, 1.0), y * INFINITY, quiet_nan(y));
  return hlo::convert(select(less(size, 1.0), result, end), argument.dtype());
}

Value digamma(const Value& x) {
  const Value value = hlo::unary("chlo.digamma", x);
  // The pole at zero has the sign of the zero, reversed.
  return select(equal(x, 0.0), -1.0 / x, value);
}

/// Reflection below one half, recurrence up to six, then the asymptotic series.
Value trigamma(const Value& x) {
  const Value mirrored = less(x, 0.5);
  // Not reduced to one period: ATen's sine is not quite zero at the poles, and so are its results.
  const Value sine = hlo::sin(x * pi);
  Value y = select(mirrored, 1.0 - x, x);
  Value sum = like(x, 0.0);
  for (int step = 0; step < 6; ++step) {
    sum = sum + 1.0 / (y * y);
    y = y + 1.0;
  }
  const Value inverse = 1.0 / (y * y);
  sum = sum + (1.0 + 0.5 / y + inverse * (1.0 / 6.0 - inverse * (1.0 / 30.0 - inverse / 42.0))) / y;
  return select(mirrored, (pi * pi) / (sine * sine) - sum, sum);
}

/// The terms of the Hurwitz zeta function up to max(9, first base above 9), and the last base and term. A sum
/// that a term no longer changes is the result: the element is settled.
struct ZetaTerms {
  Value base, sum, term, settled;

  ZetaTerms(const Value& x, const Value& q) {
    constexpr double kMost = 1 << 24;
    Dims all;
    for (int64_t i = 0; i < x.rank(); ++i) all.push_back(i);
    const Value first = hlo::power(q, -x);
    const Value nowhere = is_nan(first);
    // State: terms so far (rank 0), x, base, sum, term, settled.
    const auto unfinished = [](const Values& state) {
      return (!state[5]) & (less(state[0], 9.0) | compare(Compare::kLe, state[2], 9.0));
    };
    const Values end = hlo::while_loop(
        {x.builder->splat(0.0, {x.dtype(), {}}), x, q, first, like(x, 0.0), nowhere},
        [&](const Values& state) -> Values {
          return {less(state[0], kMost) & hlo::reduce(unfinished(state), hlo::Reduction::kOr, all)};
        },
        [&](const Values& state) -> Values {
          const Value go = unfinished(state);
          const Value base = state[2] + 1.0;
          const Value term = hlo::power(base, -state[1]);
          const Value sum = state[3] + term;
          const Value small = less(-kEpsilon * sum, term) & less(term, kEpsilon * sum);
          return {state[0] + 1.0,
                  state[1],
                  select(go, base, state[2]),
                  select(go, sum, state[3]),
                  select(go, term, state[4]),
                  state[5] | (go & small)};
        });
    base = end[2];
    sum = select(less(end[0], kMost), end[3], quiet_nan(x));
    term = end[4];
    settled = end[5];
  }

  static constexpr double kEpsilon = 0x1p-53;
};

/// The Hurwitz zeta function by the Euler-Maclaurin formula, as zeta in the Cephes library, in the double
/// precision that ATen gives it for f32 too.
Value zeta(const Value& order, const Value& first_base) {
  const Dims dims = hlo::broadcast_dims(*order.builder, order.dims(), first_base.dims());
  const Value x = hlo::convert(hlo::broadcast_to(order, dims), DType::kF64);
  const Value q = hlo::convert(hlo::broadcast_to(first_base, dims), DType::kF64);
  const ZetaTerms terms(x, q);
  Value settled = terms.settled;
  Value power = terms.term;
  Value sum = select(settled, terms.sum, terms.sum + power * terms.base / (x - 1.0) - 0.5 * power);
  Value factor = like(x, 1.0);
  int k = 0;
  for (const double divisor :
       {12.0, -720.0, 30240.0, -1209600.0, 47900160.0, -1.8924375803183791606e9, 7.47242496e10,
        -2.950130727918164224e12, 1.1646782814350067249e14, -4.5979787224074726105e15,
        1.8152105401943546773e17, -7.1661652561756670113e18}) {
    factor = factor * (x + static_cast<double>(k));
    power = power / terms.base;
    const Value correction = factor * power / divisor;
    sum = select(settled, sum, sum + correction);
    settled = settled | less(hlo::abs(correction / sum), ZetaTerms::kEpsilon);
    factor = factor * (x + static_cast<double>(k + 1));
    power = power / terms.base;
    k += 2;
  }
  const Value pole = equal(q, hlo::floor(q));
  const Value whole_order = equal(x, hlo::floor(x));
  const Value outside = select(pole, infinity(x), select(whole_order, sum, quiet_nan(x)));
  const Value inside = select(compare(Compare::kLe, q, 0.0), outside, sum);
  const Value result = select(equal(x, 1.0), infinity(x), select(less(x, 1.0), quiet_nan(x), inside));
  return hlo::convert(result, order.dtype());
}

/// x rounded to `dtype` for good, with its denormals.
Value stored(const Value& x, DType dtype) { return hlo::convert(opaque(hlo::convert(x, dtype)), x.dtype()); }

Value polygamma(int64_t n, const Value& x, DType dtype) {
  if (n == 0) return digamma(x);
  if (n == 1) return trigamma(x);
  const double factorial = std::tgamma(static_cast<double>(n) + 1.0);
  return (n % 2 == 1 ? factorial : -factorial) * stored(zeta(like(x, static_cast<double>(n + 1)), x), dtype);
}

Value entropy(const Value& x) {
  const Value positive = -x * log(x);
  const Value outside = select(equal(x, 0.0), like(x, 0.0), like(x, -INFINITY));
  return select(is_nan(x), x, select(greater(x, 0.0), positive, outside));
}

/// x * factor, zero where x is, unless y is NaN.
Value product_or_zero(const Value& x, const Value& y, const Value& factor) {
  const Value product = x * factor;
  return select(is_nan(y), quiet_nan(product), select(equal(x, 0.0), like(product, 0.0), product));
}

/// x * log(y), where the logarithm is rounded before it is a factor, as in ATen's kernels.
Value times_log(const Lowering& op, const Value& x, const Value& y, Value (*logarithm)(const Value&)) {
  const DType dtype = inexact_type(op, {x, y});
  return inexact_binary(op, x, y, [&](const Value& a, const Value& b) {
    return product_or_zero(a, b, rounded(logarithm(b), dtype));
  });
}

}  // namespace

INEXACT_UNARY("aten::erf", hlo::erf(x))
INEXACT_UNARY("aten::erfc", erfc(x))
INEXACT_UNARY("aten::erfinv", inverse_erf(x))
INEXACT_UNARY("aten::special_erfcx", scaled_erfc(x))
INEXACT_UNARY("aten::special_log_ndtr", log_normal_cdf(x))
INEXACT_UNARY("aten::special_ndtri", normal_quantile(x))
INEXACT_UNARY("aten::lgamma", log_gamma(x))
INEXACT_UNARY("aten::digamma", digamma(x))
INEXACT_UNARY("aten::special_entr", entropy(x))

/// The logarithm of the multivariate gamma function of dimension p.
OP("aten::mvlgamma") {
  const int64_t p = op.integer(1);
  if (p < 1) op.fail("p has to be greater than or equal to 1");
  const double constant = 0.25 * static_cast<double>(p * (p - 1)) * std::log(pi);
  return {inexact_unary(op, op.tensor(0), [&](const Value& x) {
    Value sum = log_gamma(x) + constant;
    for (int64_t i = 1; i < p; ++i) sum = sum + log_gamma(x - 0.5 * static_cast<double>(i));
    return sum;
  })};
}

OP("aten::polygamma") {
  const int64_t n = op.integer(0);
  if (n < 0) op.fail("polygamma(n, x) does not support negative n.");
  const DType dtype = to_inexact(op, op.tensor(1)).dtype();
  return {inexact_unary(op, op.tensor(1), [&](const Value& x) { return polygamma(n, x, dtype); })};
}

#define INEXACT_BINARY(name, a, b, function)                                                          \
  OP(name) {                                                                                          \
    return {inexact_binary(op, a, b, [](const Value& x, const Value& y) { return function(x, y); })}; \
  }

INEXACT_BINARY("aten::special_zeta", op.tensor(0), op.tensor(1), zeta)
INEXACT_BINARY("aten::special_zeta.other_scalar", op.tensor(0), op.scalar(1), zeta)
INEXACT_BINARY("aten::special_zeta.self_scalar", op.scalar(0), op.tensor(1), zeta)
OP("aten::xlogy.Tensor") { return {times_log(op, op.tensor(0), op.tensor(1), log)}; }
OP("aten::xlogy.Scalar_Other") { return {times_log(op, op.tensor(0), op.scalar(1), log)}; }
OP("aten::xlogy.Scalar_Self") { return {times_log(op, op.scalar(0), op.tensor(1), log)}; }
OP("aten::special_xlog1py") { return {times_log(op, op.tensor(0), op.tensor(1), log1p)}; }
OP("aten::special_xlog1py.other_scalar") { return {times_log(op, op.tensor(0), op.scalar(1), log1p)}; }
OP("aten::special_xlog1py.self_scalar") { return {times_log(op, op.scalar(0), op.tensor(1), log1p)}; }

}  // namespace torch_tpu::ops

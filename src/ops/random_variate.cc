// Random variates that need a search or rejection: gamma, Dirichlet, Poisson, binomial, multinomial.
#include <cmath>
#include <functional>
#include <numbers>

#include "ops/indexing.h"
#include "ops/pointwise.h"
#include "ops/random.h"
#include "ops/require.h"

namespace torch_tpu::ops {
namespace {

using hlo::abs;
using hlo::Compare;
using hlo::compare;
using hlo::convert;
using hlo::exp;
using hlo::is_nan;
using hlo::like;
using hlo::log;
using hlo::log1p;
using hlo::select;
using hlo::sqrt;

/// Rejection accepts more than nine of ten proposals: nothing is left after these.
constexpr double kLargestStep = 200.0;

Value at_most(const Value& a, const Value& b) { return compare(Compare::kLe, a, b); }
Value at_least(const Value& a, const Value& b) { return compare(Compare::kGe, a, b); }

Value any(const Value& mask) {
  Dims all;
  for (int64_t i = 0; i < mask.rank(); ++i) all.push_back(i);
  return hlo::reduce(mask, hlo::Reduction::kOr, all);
}

Value shift_right(const Value& x, int bits) { return hlo::binary("shift_right_logical", x, like(x, bits)); }

// --- a generator of its own for each element: loops cannot count how often they draw ----------------

/// The states, from the counter-based stream.
Value seeds(Lowering& op, const Dims& dims) {
  const Value high = convert(random_words(op, dims), DType::kU64);
  const Value low = convert(random_words(op, dims), DType::kU64);
  return hlo::binary("shift_left", high, like(high, 32)) | low;
}

Value advance(const Value& state) {
  return state + state.builder->splat(static_cast<int64_t>(0x9E3779B97F4A7C15u), state.type);
}

/// The output function of SplitMix64: Steele, Lea and Flood, OOPSLA 2014.
Value mixed(const Value& state) {
  Value z = state;
  z = (z ^ shift_right(z, 30)) * z.builder->splat(static_cast<int64_t>(0xBF58476D1CE4E5B9u), z.type);
  z = (z ^ shift_right(z, 27)) * z.builder->splat(static_cast<int64_t>(0x94D049BB133111EBu), z.type);
  return z ^ shift_right(z, 31);
}

/// Two uniforms in (0, 1) from the halves of a word.
std::pair<Value, Value> uniform_pair(const Value& word, DType dtype) {
  const auto unit = [&](const Value& half) {
    return (convert(convert(shift_right(half, 1), DType::kS32), dtype) + 0.5) * 0x1p-31;
  };
  return {unit(convert(shift_right(word, 32), DType::kU32)), unit(convert(word, DType::kU32))};
}

/// Draws until `propose` accepts: it gets two uniforms of each round and the constants, and returns the
/// proposal and whether it is taken. Elements outside `mask` keep zero.
using Propose =
    std::function<std::pair<Value, Value>(const Value& u, const Value& v, const Values& constants)>;

Value rejection(Lowering& op, const Value& mask, const Values& constants, const Propose& propose) {
  const DType dtype = constants[0].dtype();
  Values state{seeds(op, mask.dims()), mask, like(constants[0], 0.0), op.builder().splat(0.0, {dtype, {}})};
  state.insert(state.end(), constants.begin(), constants.end());
  const Values end = hlo::while_loop(
      state, [](const Values& state) -> Values { return {any(state[1]) & less(state[3], kLargestStep)}; },
      [&](const Values& state) -> Values {
        const auto [u, v] = uniform_pair(mixed(state[0]), dtype);
        const Values own(state.begin() + 4, state.end());
        const auto [proposal, accepted] = propose(u, v, own);
        const Value take = state[1] & accepted;
        Values next{advance(state[0]), state[1] & !accepted, select(take, proposal, state[2]),
                    state[3] + 1.0};
        next.insert(next.end(), own.begin(), own.end());
        return next;
      });
  return end[2];
}

// --- gamma ------------------------------------------------------------------------------------------

/// Marsaglia and Tsang, "A simple method for generating gamma variables" (2000), for shapes of at least one.
/// Two streams: one for the normal proposals, one for their acceptance. Zero outside `mask`.
Value gamma_above_one(Lowering& op, const Value& mask, const Value& shape) {
  const Value d = shape - 1.0 / 3.0;
  const Value c = hlo::rsqrt(9.0 * d);
  const Value first = seeds(op, shape.dims());
  const Value second = seeds(op, shape.dims());
  const Value step = op.builder().splat(0.0, {shape.dtype(), {}});
  const Values end = hlo::while_loop(
      {first, second, mask, like(shape, 0.0), step, d, c},
      [](const Values& state) -> Values { return {any(state[2]) & less(state[4], kLargestStep)}; },
      [&](const Values& state) -> Values {
        const auto [u1, u2] = uniform_pair(mixed(state[0]), shape.dtype());
        const auto [u, unused] = uniform_pair(mixed(state[1]), shape.dtype());
        const Value& d = state[5];
        const Value x = sqrt(-2.0 * log(u1)) * hlo::cos(2.0 * std::numbers::pi * u2);
        const Value root = 1.0 + state[6] * x;
        const Value v = root * root * root;
        const Value accepted = greater(v, 0.0) & less(log(u), 0.5 * x * x + d - d * v + d * log(v));
        return {advance(state[0]),
                advance(state[1]),
                state[2] & !accepted,
                select(state[2] & accepted, d * v, state[3]),
                state[4] + 1.0,
                d,
                state[6]};
      });
  return end[3];
}

/// A gamma variate as a factor and the logarithm of another, which is zero for shapes of one and more: a
/// variate of shape + 1 times u^(1 / shape), which underflows for small shapes.
struct GammaVariate {
  Value factor;
  Value log_factor;
};

GammaVariate gamma_variate(Lowering& op, const Value& shape) {
  const Value small = less(shape, 1.0);
  const Value power = log(positive_uniform(op, shape.dtype(), shape.dims())) / shape;
  const Value factor = gamma_above_one(op, greater(shape, 0.0), select(small, shape + 1.0, shape));
  return {factor, select(small, power, like(shape, 0.0))};
}

/// In `dtype`. torch keeps samples above zero: their logarithm is taken.
Value positive(const Value& sample, DType dtype) {
  const double smallest = dtype == DType::kF64 ? 0x1p-1022 : dtype == DType::kF16 ? 0x1p-14 : 0x1p-126;
  return convert(hlo::maximum(sample, like(sample, smallest)), dtype);
}

Value standard_gamma(Lowering& op, const Value& shape) {
  const auto [factor, log_factor] = gamma_variate(op, shape);
  return factor * exp(log_factor);
}

/// Gamma variates over the last dimension, divided by their sum.
Value dirichlet(Lowering& op, const Value& shape) {
  const auto [factor, log_factor] = gamma_variate(op, shape);
  const Value logarithm = log(factor) + log_factor;
  const Dims last{shape.rank() - 1};
  const Value parts = exp(logarithm - hlo::reduce_keep(logarithm, hlo::Reduction::kMax, last));
  return parts / hlo::reduce_keep(parts, hlo::Reduction::kSum, last);
}

// --- Poisson and binomial ---------------------------------------------------------------------------

/// log(k!) less Stirling's formula for it in terms of k + 1.
Value stirling_tail(const Value& k) {
  const Value y = k + 1.0;
  const Value square = 1.0 / (y * y);
  const Value series = (1.0 / 12.0 - (1.0 / 360.0 - 1.0 / 1260.0 * square) * square) / y;
  const double half_log_2pi = 0.5 * std::log(2.0 * std::numbers::pi);
  const Value exact = hlo::unary("chlo.lgamma", y) - ((k + 0.5) * log(y) - y + half_log_2pi);
  return select(less(k, 10.0), exact, series);
}

/// Inversion: the first k whose cumulative probability passes a uniform number. `next` gives the
/// probability of k + 1 from that of k.
Value inversion(Lowering& op, const Value& mask, const Value& first, const Values& constants,
                const std::function<Value(const Value& k, const Value& p, const Values& constants)>& next) {
  const Value u = positive_uniform(op, first.dtype(), first.dims());
  // State: k, p, what is left of u, unfinished.
  Values state{like(first, 0.0), first, u, mask & greater(u, first)};
  state.insert(state.end(), constants.begin(), constants.end());
  const Values end = hlo::while_loop(
      state, [](const Values& state) -> Values { return {any(state[3])}; },
      [&](const Values& state) -> Values {
        const Values own(state.begin() + 4, state.end());
        const Value rest = state[2] - state[1];
        const Value p = next(state[0], state[1], own);
        const Value k = select(state[3], state[0] + 1.0, state[0]);
        Values result{k, select(state[3], p, state[1]), select(state[3], rest, state[2]),
                      state[3] & greater(rest, p) & less(k, kLargestStep)};
        result.insert(result.end(), own.begin(), own.end());
        return result;
      });
  return end[0];
}

Value poisson(Lowering& op, const Value& rate) {
  const Value large = at_least(rate, like(rate, 10.0)) & less(rate, INFINITY);
  const Value small = greater(rate, 0.0) & less(rate, 10.0);
  const Value small_rate = select(small, rate, like(rate, 1.0));
  const Value low = inversion(
      op, small, exp(-small_rate), {small_rate},
      [](const Value& k, const Value& p, const Values& constants) { return p * constants[0] / (k + 1.0); });

  // Hörmann, "The transformed rejection method for generating Poisson random variables" (1993), PTRS.
  const Value large_rate = select(large, rate, like(rate, 10.0));
  const Value b = 0.931 + 2.53 * sqrt(large_rate);
  const Value high = rejection(
      op, large, {large_rate, b}, [](const Value& uniform, const Value& v, const Values& constants) {
        const Value& rate = constants[0];
        const Value& b = constants[1];
        const Value a = -0.059 + 0.02483 * b;
        const Value inverse_alpha = 1.1239 + 1.1328 / (b - 3.4);
        const Value squeeze = 0.9277 - 3.6224 / (b - 2.0);
        const Value u = uniform - 0.5;
        const Value us = 0.5 - abs(u);
        const Value k = hlo::floor((2.0 * a / us + b) * u + rate + 0.43);
        const Value inside = at_least(us, like(us, 0.07)) & at_most(v, squeeze);
        const Value outside = less(k, 0.0) | (less(us, 0.013) & greater(v, us));
        const Value offset = k + 1.0 - rate;
        // k log(rate) - rate - log(k!), arranged so that large terms cancel exactly.
        const Value density = offset - k * log1p(offset / rate) -
                              0.5 * log(2.0 * std::numbers::pi * (k + 1.0)) - stirling_tail(k);
        const Value bound = log(v * inverse_alpha / (a / (us * us) + b));
        return std::pair{k, inside | (at_most(bound, density) & !outside)};
      });
  const Value sample = select(large, high, select(small, low, like(rate, 0.0)));
  return select(is_nan(rate), rate, sample);
}

Value binomial(Lowering& op, const Value& count, const Value& probability) {
  const Value mirrored = greater(probability, 0.5);
  const Value q = select(mirrored, 1.0 - probability, probability);
  const Value usable = greater(count, 0.0) & greater(q, 0.0);
  const Value large = usable & at_least(count * q, like(count, 10.0));
  const Value small = usable & !large;

  const Value small_q = select(small, q, like(q, 0.1));
  const Value small_n = select(small, count, like(count, 1.0));
  const Value odds = small_q / (1.0 - small_q);
  const Value low = inversion(op, small, exp(small_n * log1p(-small_q)), {small_n, odds},
                              [](const Value& k, const Value& p, const Values& constants) {
                                return p * (constants[0] - k) / (k + 1.0) * constants[1];
                              });

  // Hörmann, "The generation of binomial random variates" (1993), BTRS.
  const Value n = select(large, count, like(count, 40.0));
  const Value p = select(large, q, like(q, 0.5));
  const Value deviation = sqrt(n * p * (1.0 - p));
  const Value high = rejection(
      op, large, {n, p, deviation}, [](const Value& uniform, const Value& v, const Values& constants) {
        const Value &n = constants[0], &p = constants[1], &deviation = constants[2];
        const Value b = 1.15 + 2.53 * deviation;
        const Value a = -0.0873 + 0.0248 * b + 0.01 * p;
        const Value alpha = (2.83 + 5.1 / b) * deviation;
        const Value u = uniform - 0.5;
        const Value us = 0.5 - abs(u);
        const Value k = hlo::floor((2.0 * a / us + b) * u + n * p + 0.5);
        const Value inside = at_least(us, like(us, 0.07)) & at_most(v, 0.92 - 4.2 / b);
        const Value outside = less(k, 0.0) | greater(k, n);
        const Value r = p / (1.0 - p);
        const Value m = hlo::floor((n + 1.0) * p);
        const Value density = (m + 0.5) * log((m + 1.0) / (r * (n - m + 1.0))) +
                              (n + 1.0) * log((n - m + 1.0) / (n - k + 1.0)) +
                              (k + 0.5) * log(r * (n - k + 1.0) / (k + 1.0)) + stirling_tail(m) +
                              stirling_tail(n - m) - stirling_tail(k) - stirling_tail(n - k);
        const Value bound = log(v * alpha / (a / (us * us) + b));
        return std::pair{k, (inside | at_most(bound, density)) & !outside};
      });
  const Value drawn = select(large, high, select(small, low, like(count, 0.0)));
  const Value sample = select(mirrored, hlo::maximum(count, like(count, 0.0)) - drawn, drawn);
  return select(is_nan(count) | is_nan(probability), like(count, NAN), sample);
}

// --- multinomial ------------------------------------------------------------------------------------

/// ATen's limit: every category's index is a whole float32.
constexpr int64_t kMostCategories = int64_t{1} << 24;

void check_weights(Lowering& op, const Value& weights) {
  op.check(less(weights, 0.0) | !hlo::is_finite(weights), Code::kInvalidArgument,
           "probability tensor contains either `inf`, `nan` or element < 0");
  op.check(!greater(hlo::reduce(weights, hlo::Reduction::kSum, Dims{1}), 0.0), Code::kInvalidArgument,
           "invalid multinomial distribution (sum of probabilities <= 0)");
}

/// With replacement: the first category whose cumulative weight passes a uniform share of the total.
Value categories_with_replacement(Lowering& op, const Value& weights, int64_t samples) {
  const int64_t rows = weights.dim(0);
  const int64_t categories = weights.dim(1);
  const hlo::Window window{.size = {1, categories},
                           .strides = {1, 1},
                           .padding_low = {0, categories - 1},
                           .padding_high = {0, 0},
                           .base_dilation = {},
                           .window_dilation = {}};
  const Value sums = hlo::reduce_window(weights, hlo::Reduction::kSum, window);
  const Value total = hlo::slice_dim(sums, 1, categories - 1, categories);
  const Value target = unit_uniform(op, weights.dtype(), {rows, samples}) * total;

  // Binary search of all samples at once; indices are 32-bit, as categories are fewer than 2^24.
  const Type indices{DType::kS32, {rows, samples}};
  const Value row_start = op.builder().iota(indices, 0) * static_cast<double>(categories);
  Value low = op.builder().splat(int64_t{0}, indices);
  Value high = op.builder().splat(categories - 1, indices);
  const Value flat = hlo::reshape(sums, Dims{rows * categories});
  int steps = 0;
  while ((int64_t{1} << steps) < categories) ++steps;
  const Values end = hlo::while_loop(
      {op.builder().splat(int64_t{0}, {DType::kS32, {}}), low, high, flat, row_start, target},
      [&](const Values& state) -> Values { return {less(state[0], steps)}; },
      [&](const Values& state) -> Values {
        const Value middle = shift_right(state[1] + state[2], 1);
        const Value position = hlo::reshape(state[4] + middle, Dims{rows, samples, 1});
        const Value sum = hlo::gather(state[3], position,
                                      {.offset_dims = {},
                                       .collapsed_slice_dims = {0},
                                       .start_index_map = {0},
                                       .slice_sizes = {1},
                                       .index_vector_dim = 2});
        const Value beyond = at_most(sum, state[5]) & less(state[1], state[2]);
        return {state[0] + 1.0,
                select(beyond, middle + 1.0, state[1]),
                select(beyond, state[2], select(less(state[1], state[2]), middle, state[2])),
                state[3],
                state[4],
                state[5]};
      });
  return end[1];
}

/// Without: the largest of weight / exponential number, which are an exponential race.
Value categories_without_replacement(Lowering& op, const Value& weights, int64_t samples) {
  const Type indices{DType::kS32, weights.dims()};
  const Value race = weights / standard_exponential(op, weights.dtype(), weights.dims());
  const Value order = op.builder().iota(indices, 1);
  if (samples == 1) {
    // One winner needs no sort.
    const Values winner = hlo::reduce(
        {race, order},
        {op.builder().splat(-1.0, {race.dtype(), {}}), op.builder().splat(int64_t{0}, {DType::kS32, {}})},
        Dims{1}, [](const Values& x) -> Values {
          const Value better = greater(x[2], x[0]);
          return {select(better, x[2], x[0]), select(better, x[3], x[1])};
        });
    return hlo::reshape(winner[1], Dims{weights.dim(0), 1});
  }
  const Values sorted =
      hlo::sort({race, order}, 1, false, [](const Values& x) -> Values { return {greater(x[0], x[1])}; });
  return hlo::slice_dim(sorted[1], 1, 0, samples);
}

}  // namespace

OP("aten::_standard_gamma", .random = true) {
  const Value shape = op.tensor(0);
  return {positive(standard_gamma(op, to_compute(shape)), shape.dtype())};
}

OP("aten::_sample_dirichlet", .random = true) {
  const Value shape = op.tensor(0);
  const Value share = dirichlet(op, to_compute(shape));
  // torch keeps shares below one as well.
  const double largest = 1.0 - std::ldexp(1.0, -hlo::width_bits(shape.dtype()) - 1);
  return {positive(hlo::minimum(share, like(share, largest)), shape.dtype())};
}

OP("aten::poisson", .random = true) {
  const Value rate = op.tensor(0);
  op.check(!hlo::compare(hlo::Compare::kGe, rate, 0.0), Code::kInvalidArgument,
           "invalid Poisson rate, expected rate to be non-negative");
  return {convert(poisson(op, to_compute(rate)), rate.dtype())};
}

OP("aten::binomial", .random = true) {
  const Value count = op.tensor(0);
  const Value probability = op.tensor(1);
  require_floating(op, count, "binomial_cpu");
  if (probability.dtype() != count.dtype()) {
    op.fail("Found dtype " + std::string(scalar_type_name(probability.dtype())) + " but expected " +
            std::string(scalar_type_name(count.dtype())));
  }
  const Dims dims = hlo::broadcast_dims(op.builder(), count.dims(), probability.dims());
  const Value sample = binomial(op, hlo::broadcast_to(to_compute(count), dims),
                                hlo::broadcast_to(to_compute(probability), dims));
  return {convert(sample, count.dtype())};
}

OP("aten::multinomial", .random = true) {
  const Value weights = to_compute(op.tensor(0));
  const int64_t samples = op.integer(1);
  if (samples <= 0) op.fail("cannot sample n_sample <= 0 samples");
  if (!op.flag(2) && samples > weights.dim(-1)) {
    op.fail("cannot sample n_sample > prob_dist.size(-1) samples without replacement");
  }
  if (weights.dim(-1) > kMostCategories) op.fail("number of categories cannot exceed 2^24");
  const int64_t rows = weights.rank() == 2 ? weights.dim(0) : 1;
  const Value table = hlo::reshape(weights, Dims{rows, weights.dim(-1)});
  const bool independent = op.flag(2) && samples > 1;
  check_weights(op, table);
  const Value drawn = independent ? categories_with_replacement(op, table, samples)
                                  : categories_without_replacement(op, table, samples);
  const Dims dims = weights.rank() == 2 ? Dims{rows, samples} : Dims{samples};
  return {convert(hlo::reshape(drawn, dims), DType::kS64)};
}

}  // namespace torch_tpu::ops

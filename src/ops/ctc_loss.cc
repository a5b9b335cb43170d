// Connectionist temporal classification: Graves et al., "Connectionist Temporal Classification"
// (ICML 2006), in log space, with the arguments and results of ATen's LossCTC.
//
// The recursions add up hundreds of logarithms before they are exponentiated again, so they run in f64; the
// gradient does not start from the rounded results of the forward pass, it repeats it.
#include <algorithm>
#include <limits>

#include "ops/require.h"

namespace torch_tpu::ops {
namespace {

using hlo::Compare;
using hlo::Reduction;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// The logarithm of what cannot be. Finite, so that differences are; sums of it stay below kImpossible.
constexpr double kNever = -1e30;
constexpr double kImpossible = -1e29;

/// The labels with blanks around them ("states"), and what the recursions need of them. Times are the
/// last dimension, so that one state's emissions are contiguous.
struct States {
  int64_t batch, classes, times, count;
  Value log_probs;      // [batch, classes, times]
  Value label;          // s32[batch, count]
  Value rows;           // s32[batch, count, 2]: (batch, label) of each state
  Value emission;       // [batch, count, times]: the log-probability of the label
  Value input_lengths;  // s32[batch]
  Value last;           // s32[batch, 1]: the last state, 2 * target length
  Value place;          // s32[batch, count]: the number of the state
};

Value lengths(Lowering& op, int i) {
  if (std::holds_alternative<TensorArg>(op.call().args[i])) return hlo::convert(op.tensor(i), DType::kS32);
  Values parts;
  for (const Value& length : op.scalars(i)) {
    parts.push_back(hlo::reshape(hlo::convert(length, DType::kS32), Dims{1}));
  }
  return parts.empty() ? op.builder().splat(int64_t{0}, {DType::kS32, {0}}) : hlo::concatenate(parts, 0);
}

/// The most labels of a target that count: a target longer than its input has no alignment.
int64_t longest_target(const Value& log_probs, const Value& targets) {
  return std::min(targets.dim(-1), log_probs.dim(0));
}

/// The bounds of the lengths, as ATen checks them. Arguments from `first` as of states().
void check_lengths(Lowering& op, int first) {
  const Value log_probs = op.tensor(first);
  const Value targets = op.tensor(first + 1);
  const Value input_lengths = lengths(op, first + 2);
  const Value target_lengths = lengths(op, first + 3);
  const std::string checking = " (while checking arguments for ctc_loss_cpu)";
  check_range(op, input_lengths, 0, log_probs.dim(0) + 1, Code::kInvalidArgument,
              "Expected input_lengths to have value between 0 and " + std::to_string(log_probs.dim(0)) +
                  ", but got value {}" + checking);
  check_range(op, target_lengths, 0, targets.dim(-1) + 1, Code::kInvalidArgument,
              "Expected target_lengths to have value between 0 and " + std::to_string(targets.dim(-1)) +
                  ", but got value {}" + checking);
}

/// s32[batch, longest] from a padded matrix, or from the concatenation of all targets.
Value padded_targets(const Value& targets, const Value& target_lengths, int64_t longest) {
  Builder& builder = *targets.builder;
  const Value narrow = hlo::convert(targets, DType::kS32);
  if (targets.rank() == 2) return hlo::slice_dim(narrow, 1, 0, longest);
  const int64_t batch = target_lengths.dim(0);
  const Type square{DType::kS32, {batch, batch}};
  const Value earlier = hlo::compare(Compare::kLt, builder.iota(square, 1), builder.iota(square, 0));
  const Value wide = hlo::broadcast_in_dim(target_lengths, square.dims, Dims{1});
  const Value start = hlo::reduce(hlo::select(earlier, wide, hlo::like(wide, 0.0)), Reduction::kSum, Dims{1});
  const Type type{DType::kS32, {batch, longest}};
  const Value index = hlo::broadcast_in_dim(start, type.dims, Dims{0}) + builder.iota(type, 1);
  return hlo::gather(narrow, hlo::reshape(index, Dims{batch, longest, 1}),
                     {.offset_dims = {},
                      .collapsed_slice_dims = {0},
                      .start_index_map = {0},
                      .slice_sizes = {1},
                      .index_vector_dim = 2});
}

/// Arguments from `first`: log_probs, targets, input_lengths, target_lengths.
States states(Lowering& op, int first, int64_t blank) {
  Builder& builder = op.builder();
  const Value targets = op.tensor(first + 1);
  const int64_t longest = longest_target(op.tensor(first), targets);
  States s;
  const Value log_probs = hlo::transpose(hlo::convert(op.tensor(first), DType::kF64), Dims{1, 2, 0});
  s.log_probs = hlo::maximum(log_probs, hlo::like(log_probs, kNever));
  s.batch = s.log_probs.dim(0);
  s.classes = s.log_probs.dim(1);
  s.times = s.log_probs.dim(2);
  s.input_lengths = lengths(op, first + 2);
  const Value target_lengths = lengths(op, first + 3);
  s.count = 2 * longest + 1;
  const Value blanks = builder.splat(blank, {DType::kS32, {}});
  if (longest == 0) {
    s.label = hlo::broadcast_to(blanks, Dims{s.batch, 1});
  } else {
    s.label = hlo::pad(padded_targets(targets, target_lengths, longest), blanks, Dims{0, 1}, Dims{0, 1},
                       Dims{0, 1});
  }
  s.place = builder.iota(s.label.type, 1);
  s.last = hlo::reshape(target_lengths * 2.0, Dims{s.batch, 1});
  const Dims expanded{s.batch, s.count, 1};
  s.rows = hlo::concatenate(
      {hlo::reshape(builder.iota(s.label.type, 0), expanded), hlo::reshape(s.label, expanded)}, 2);
  s.emission = hlo::gather(s.log_probs, s.rows,
                           {.offset_dims = {2},
                            .collapsed_slice_dims = {0, 1},
                            .start_index_map = {0, 1},
                            .slice_sizes = {1, 1, s.times},
                            .index_vector_dim = 2});
  return s;
}

/// x[:, i - by], or `fill` before the first state; negative `by` looks ahead.
Value shifted(const Value& x, int64_t by, const Value& fill) {
  const int64_t size = x.dim(1);
  const Dims none{0, 0};
  const Dims some{0, std::abs(by)};
  return by > 0 ? hlo::slice_dim(hlo::pad(x, fill, some, none), 1, 0, size)
                : hlo::slice_dim(hlo::pad(x, fill, none, some), 1, -by, size - by);
}

Value never(Builder& builder) { return builder.splat(kNever, {DType::kF64, {}}); }

Value log_sum(const Value& a, const Value& b, const Value& c) {
  const Value shift = hlo::maximum(hlo::maximum(a, b), c);
  return hlo::log(hlo::exp(a - shift) + hlo::exp(b - shift) + hlo::exp(c - shift)) + shift;
}

Value at_time(const Value& x, const Value& t) {
  const Value zero = hlo::like(t, 0.0);
  return hlo::reshape(hlo::dynamic_slice(x, {zero, zero, t}, Dims{x.dim(0), x.dim(1), 1}),
                      Dims{x.dim(0), x.dim(1)});
}

/// One of the two recursions: `start` gives the states' values where a sequence begins (s32 times
/// `begin` of [batch, 1]); from there values move by `direction` states and times. All values as
/// [batch, count, times]; kNever outside a sequence.
Value recursion(const States& s, int64_t direction, const Value& start, const Value& begin) {
  Builder& builder = *s.label.builder;
  const Value fill = never(builder);
  // A blank, or a label equal to the one before, may not be jumped over to.
  const Value none = builder.splat(int64_t{-1}, {DType::kS32, {}});
  const Value other = shifted(s.label, 2 * direction, none);
  const Value jump = hlo::compare(Compare::kNe, other, s.label) & hlo::compare(Compare::kNe, other, none);
  const Value length = hlo::reshape(s.input_lengths, Dims{s.batch, 1});
  const auto unfinished = [&](const Values& v) -> Values {
    return {hlo::compare(Compare::kLt, v[0], static_cast<double>(s.times))};
  };
  const auto step = [&](const Values& v) -> Values {
    const Value t = direction > 0 ? v[0] : static_cast<double>(s.times - 1) - v[0];
    const Value before = v[1];
    const Value skip = hlo::select(jump, shifted(before, 2 * direction, fill), fill);
    const Value moved = log_sum(before, shifted(before, direction, fill), skip) + at_time(s.emission, t);
    Value now = hlo::select(hlo::compare(Compare::kEq, begin, t), start + at_time(s.emission, t), moved);
    now = hlo::select(hlo::compare(Compare::kLt, t, length), now, fill);
    const Value column = hlo::reshape(now, Dims{s.batch, s.count, 1});
    const Value zero = hlo::like(t, 0.0);
    return {v[0] + 1.0, now, hlo::dynamic_update_slice(v[2], column, {zero, zero, t})};
  };
  const Value first = hlo::broadcast_to(fill, s.label.dims());
  const Value all = hlo::broadcast_to(fill, s.emission.dims());
  return hlo::while_loop({builder.splat(int64_t{0}, {DType::kS32, {}}), first, all}, unfinished, step)[2];
}

/// 0 for the states that `condition` allows, kNever for the others.
Value only(const Value& condition) {
  Builder& builder = *condition.builder;
  return hlo::select(condition, builder.splat(0.0, {DType::kF64, {}}), never(builder));
}

Value alphas(const States& s) {
  const Value start = hlo::compare(Compare::kLe, s.place, 1.0) & hlo::compare(Compare::kLe, s.place, s.last);
  return recursion(s, 1, only(start), hlo::like(s.last, 0.0));
}

/// The two states in which a sequence may end.
Value is_final(const States& s) {
  return hlo::compare(Compare::kGe, s.place, s.last - 1.0) & hlo::compare(Compare::kLe, s.place, s.last);
}

Value betas(const States& s) {
  return recursion(s, -1, only(is_final(s)), hlo::reshape(s.input_lengths, Dims{s.batch, 1}) - 1.0);
}

/// The logarithm of the likelihood of each target, f64[batch]: both final states at the last time.
Value log_likelihood(const States& s, const Value& alpha) {
  Builder& builder = *alpha.builder;
  const Value time = builder.iota({DType::kS32, {s.batch, 1, s.times}}, 2);
  const Value last_time =
      hlo::compare(Compare::kEq, time, hlo::reshape(s.input_lengths, Dims{s.batch, 1, 1}) - 1.0);
  const Value fill = never(builder);
  const Value final_alpha = hlo::reduce(hlo::select(last_time, alpha, fill), Reduction::kMax, Dims{2});
  const Value chosen = hlo::select(is_final(s), final_alpha, fill);
  const Value shift = hlo::reduce_keep(chosen, Reduction::kMax, Dims{1});
  const Value sum = hlo::reduce(hlo::exp(chosen - shift), Reduction::kSum, Dims{1});
  const Value result = hlo::log(sum) + hlo::reshape(shift, Dims{s.batch});
  // No input explains an empty target only.
  const Value no_input = hlo::compare(Compare::kEq, s.input_lengths, 0.0);
  const Value no_target = hlo::compare(Compare::kEq, hlo::reshape(s.last, Dims{s.batch}), 0.0);
  return hlo::select(no_input & no_target, hlo::like(result, 0.0), result);
}

/// x with its impossible elements as `replacement`.
Value without_impossible(const Value& x, double replacement) {
  return hlo::select(hlo::compare(Compare::kLt, x, kImpossible), hlo::like(x, replacement), x);
}

Values ctc_forward(Lowering& op) {
  const DType dtype = op.tensor(0).dtype();
  check_lengths(op, 0);
  const States s = states(op, 0, op.integer(4));
  const Value alpha = alphas(s);
  const Value loss = -without_impossible(log_likelihood(s, alpha), -kInfinity);
  return {hlo::convert(loss, dtype),
          hlo::convert(without_impossible(hlo::transpose(alpha, Dims{0, 2, 1}), -kInfinity), dtype)};
}

Values ctc_backward(Lowering& op) {
  const DType dtype = op.tensor(1).dtype();
  const States s = states(op, 1, op.integer(7));
  const auto per_sequence = [&](const Value& x) { return hlo::reshape(x, Dims{s.batch, 1, 1}); };
  const Value alpha = alphas(s);
  const Value likelihood = per_sequence(log_likelihood(s, alpha));
  // How likely each state is at each time, given the target.
  const Value occupancy = hlo::exp(alpha + betas(s) - likelihood - s.emission);
  const Value time = op.builder().iota({DType::kS32, {s.batch, 1, s.times}}, 2);
  const Value inside = hlo::compare(Compare::kLt, time, per_sequence(s.input_lengths));
  const Value zero = hlo::like(occupancy, 0.0);
  const Value by_class =
      hlo::scatter(hlo::like(s.log_probs, 0.0), s.rows, hlo::select(inside, occupancy, zero),
                   {.update_window_dims = {2},
                    .inserted_window_dims = {0, 1},
                    .scatter_dims_to_operand_dims = {0, 1},
                    .index_vector_dim = 2},
                   hlo::combiner(Reduction::kSum));
  Value grad = (hlo::exp(s.log_probs) - by_class) * per_sequence(hlo::convert(op.tensor(0), DType::kF64));
  // An impossible target has no gradient in any class.
  const double none = op.flag(8) ? 0.0 : std::numeric_limits<double>::quiet_NaN();
  grad = hlo::select(hlo::compare(Compare::kLt, likelihood, kImpossible), hlo::like(grad, none), grad);
  grad = hlo::select(inside, grad, hlo::like(grad, 0.0));
  return {hlo::convert(hlo::transpose(grad, Dims{2, 0, 1}), dtype)};
}

}  // namespace

// The lengths change from batch to batch. What ATen says of the second result depends on them.
OP("aten::_ctc_loss", .runtime = {2, 3}, .meta_results = 1) { return ctc_forward(op); }
OP("aten::_ctc_loss.Tensor", .meta_results = 1) { return ctc_forward(op); }
OP("aten::_ctc_loss_backward", .runtime = {3, 4}) { return ctc_backward(op); }
OP("aten::_ctc_loss_backward.Tensor") { return ctc_backward(op); }

}  // namespace torch_tpu::ops

// Table lookups: embedding, embedding_bag and their gradients.
#include "ops/indexing.h"
#include "ops/promotion.h"
#include "ops/require.h"

namespace torch_tpu::ops {
namespace {

using hlo::Compare;
using hlo::Reduction;

Value count_rows(const Value& index, int64_t rows, const Value& amounts) {
  const Value zeros = index.builder->splat(0.0, {amounts.dtype(), {rows}});
  return scatter_slices(zeros, 0, index, amounts, hlo::combiner(Reduction::kSum));
}

Value column(const Value& x) { return reshape(x, Dims{x.dim(0), 1}); }

// The gradient of a table: the rows of `grad` [n, width] summed by `index` [n]. Rows at the padding
// index are sent past the end of the table, where a scatter skips them.
Value table_gradient(Lowering& op, const Value& grad, const Value& index, int64_t rows, int64_t padding,
                     bool by_frequency) {
  Value sums = to_compute(grad);
  Value target = offsets(index, rows);
  if (by_frequency) {
    const Value ones = op.builder().splat(1.0, {DType::kS32, target.dims()});
    const Value frequency = take_slices(count_rows(target, rows, ones), 0, target);
    sums = sums / column(hlo::convert(frequency, sums.dtype()));
  }
  if (padding >= 0) {
    const Value past = hlo::like(target, static_cast<double>(rows));
    target = select(compare(Compare::kEq, target, static_cast<double>(padding)), past, target);
  }
  const Value zeros = op.builder().splat(0.0, {sums.dtype(), {rows, grad.dim(1)}});
  return hlo::convert(scatter_slices(zeros, 0, target, sums, hlo::combiner(Reduction::kSum)), grad.dtype());
}

}  // namespace

OP("aten::embedding") {
  const Value table = op.tensor(0);
  const Value index = op.tensor(1);
  check_range(op, index, 0, table.dim(0), Code::kIndexError, "index out of range in self: {}");
  return {take_slices(table, 0, index)};
}

OP("aten::embedding_dense_backward") {
  const Value grad = op.tensor(0);
  const Value index = flatten(op.tensor(1));
  const Value rows = reshape(grad, Dims{index.dim(0), grad.dim(-1)});
  return {table_gradient(op, rows, index, op.integer(2), op.integer(3), op.flag(4))};
}

// Rows of the table that the indices touch are scaled down to norm `max_norm` where they exceed it.
OP("aten::embedding_renorm", .structural = {3}) {
  const Value table = op.tensor(0);
  const Value index = flatten(op.tensor(1));
  const Value rows = to_compute(take_slices(table, 0, index));
  const double p = op.constant(3);
  const Value magnitude = abs(rows);
  Value norm;
  if (p == 2.0) {
    norm = sqrt(reduce(rows * rows, Reduction::kSum, Dims{1}));
  } else if (p == 1.0) {
    norm = reduce(magnitude, Reduction::kSum, Dims{1});
  } else if (p > 1e300) {
    norm = reduce(magnitude, Reduction::kMax, Dims{1});
  } else {
    const Value sum = reduce(power(magnitude, hlo::like(magnitude, p)), Reduction::kSum, Dims{1});
    norm = power(sum, hlo::like(sum, 1.0 / p));
  }
  const Value limit = op.scalar(2, norm.dtype());
  // 1e-7 as in ATen's embedding_renorm_.
  const Value scale = select(compare(Compare::kGt, norm, limit), limit / (norm + 1e-7), hlo::like(norm, 1.0));
  const Value scaled = hlo::convert(rows * column(scale), table.dtype());
  return {scatter_slices(table, 0, index, scaled, replace())};
}

namespace {

enum Mode { kSum = 0, kMean = 1, kMax = 2 };

// The bag of each index: how many bags start at or before its position, less one.
Value bag_of_position(const Value& starts, int64_t count) {
  Builder& builder = *starts.builder;
  const int64_t bags = starts.dim(0);
  const Value position = builder.iota({starts.dtype(), {1, count}}, 1);
  return flatten(binary_search(reshape(starts, Dims{1, bags}), position, true)) - 1.0;
}

// The bag of each index. A forward on the CPU may have left `given` out; the offsets tell as well.
Value bags(const Value& given, const Value& bounds, int64_t count) {
  if (given.dim(0) == count) return given;
  return bag_of_position(hlo::convert(flatten(bounds), offset_dtype(count)), count);
}

void check_bags(Lowering& op, const Value& index, const Value& bounds, int64_t rows) {
  check_range(op, index, 0, rows, Code::kInvalidArgument,
              "embedding_bag: Expected idx >= 0 && idx < num_embeddings but found idx to be {}");
  const int64_t last = bounds.dim(0) - 1;
  if (last < 0) return;
  check_range(
      op, slice_dim(bounds, 0, 0, 1), 0, 1, Code::kInvalidArgument,
      "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from position 0. "
      "However, got {}");
  const Value end = slice_dim(bounds, 0, last, last + 1);
  op.check(compare(Compare::kGt, end, static_cast<double>(index.dim(0))), end, Code::kInvalidArgument,
           "offsets[-1] can not be greater than input's length " + std::to_string(index.dim(0)) +
               " but got offsets[-1] of {}");
  check_range(op, bounds, 0, index.dim(0) + 1, Code::kIndexError, "index out of range in self");
  const Value next = slice_dim(bounds, 0, 1, last + 1);
  op.check(compare(Compare::kLt, next, slice_dim(bounds, 0, 0, last)), next, Code::kInvalidArgument,
           "Expected offsets of bags to be in ascending order, but found one of {} after a larger one.");
}

Values embedding_bag(Lowering& op) {
  Builder& builder = op.builder();
  const Value table = op.tensor(0);
  const Value index = flatten(op.tensor(1));
  const Value bounds = flatten(op.tensor(2));
  const int64_t mode = op.integer(4);
  const int64_t padding = op.integer(8);
  const DType dtype = op.tensor(1).dtype();
  const int64_t count = index.dim(0);
  const int64_t bags = std::max<int64_t>(bounds.dim(0) - (op.flag(7) ? 1 : 0), 0);
  const int64_t width = table.dim(1);
  check_bags(op, index, bounds, table.dim(0));
  const Type type{table.dtype(), {bags, width}};
  if (count == 0 || bags == 0) {
    return {builder.splat(0.0, type), builder.splat(0.0, {dtype, {count}}),
            builder.splat(0.0, {dtype, bounds.dims()}),
            builder.splat(0.0, {dtype, mode == kMax ? Dims{bags, width} : Dims{0}})};
  }
  const Value starts = slice_dim(hlo::convert(bounds, offset_dtype(count)), 0, 0, bags);
  const Value bag = hlo::convert(bag_of_position(starts, count), offset_dtype(std::max(count, bags)));
  Value kept = builder.splat(1.0, {DType::kS32, {count}});
  Value target = bag;
  if (padding >= 0) {
    const Value is_padding = compare(Compare::kEq, index, static_cast<double>(padding));
    kept = hlo::convert(!is_padding, DType::kS32);
    target = select(is_padding, hlo::like(bag, static_cast<double>(bags)), bag);
  }
  const Value size = count_rows(bag, bags, kept);
  Value rows = to_compute(take_slices(table, 0, index));
  if (op.has(6)) rows = rows * column(hlo::convert(op.tensor(6), rows.dtype()));
  const bool max = mode == kMax;
  const Value start =
      max ? builder.lowest({rows.dtype(), type.dims}) : builder.splat(0.0, {rows.dtype(), type.dims});
  Value result =
      scatter_slices(start, 0, target, rows, hlo::combiner(max ? Reduction::kMax : Reduction::kSum));
  if (mode == kMean) {
    const Value divisor = hlo::convert(maximum(size, hlo::like(size, 1)), rows.dtype());
    result = result / column(divisor);
  }
  Value winner = builder.splat(0.0, {dtype, {0}});
  if (max) {
    // The first position whose row holds the maximum names the row of the table.
    const Value best = take_slices(result, 0, bag);
    const Value missing = builder.splat(count, {offset_dtype(count), rows.dims()});
    const Value position = builder.iota(missing.type, 0);
    const Value wins = compare(Compare::kEq, rows, best) | (is_nan(rows) & is_nan(best));
    const Value first = scatter_slices(builder.splat(count, {missing.dtype(), type.dims}), 0, target,
                                       select(wins, position, missing), hlo::combiner(Reduction::kMin));
    const Value filled = compare(Compare::kGt, column(size), 0.0);
    const Value names = hlo::convert(take_elements(index, first), dtype);
    winner = select(broadcast_to(filled, type.dims), names, hlo::like(names, 0.0));
    result = select(broadcast_to(filled, type.dims), result, hlo::like(result, 0.0));
  }
  // As long as the offsets, also where the last of them starts no bag.
  const Value sizes =
      pad(hlo::convert(size, dtype), builder.splat(0.0, {dtype, {}}), Dims{0}, Dims{bounds.dim(0) - bags});
  return {hlo::convert(result, table.dtype()), hlo::convert(bag, dtype), sizes, winner};
}

// What the gradient of a table is made of.
struct BagGradient {
  Value grad, index, bag, bag_size, winner;
  int64_t rows;
  bool by_frequency;
  int64_t mode;
  Value weights;
  int64_t padding;
};

Value bag_table_gradient(Lowering& op, const BagGradient& call) {
  Builder& builder = op.builder();
  const Value grad = to_compute(call.grad);
  const Value size = hlo::convert(slice_dim(call.bag_size, 0, 0, grad.dim(0)), grad.dtype());
  if (call.mode == kMax) {
    const Value filled = compare(Compare::kGt, column(size), 0.0);
    const Value offset = element_offsets(call.winner, {call.rows, grad.dim(1)}, 0);
    const Value zeros = builder.splat(0.0, {grad.dtype(), {call.rows, grad.dim(1)}});
    const Value updates = select(broadcast_to(filled, grad.dims()), grad, hlo::like(grad, 0.0));
    const Value sums = scatter_elements(zeros, offset, updates, hlo::combiner(Reduction::kSum));
    return hlo::convert(sums, call.grad.dtype());
  }
  Value scaled = grad;
  if (call.mode == kMean) scaled = grad / column(maximum(size, hlo::like(size, 1.0)));
  Value rows = take_slices(scaled, 0, call.bag);
  if (call.weights) rows = rows * column(hlo::convert(call.weights, rows.dtype()));
  return hlo::convert(table_gradient(op, rows, call.index, call.rows, call.padding, call.by_frequency),
                      call.grad.dtype());
}

}  // namespace

OP("aten::_embedding_bag") { return embedding_bag(op); }
OP("aten::_embedding_bag_forward_only") { return embedding_bag(op); }

OP("aten::_embedding_bag_dense_backward") {
  return {bag_table_gradient(
      op, {op.tensor(0), flatten(op.tensor(1)), op.tensor(2), op.tensor(3), op.tensor(4), op.integer(5),
           op.flag(6), op.integer(7), op.optional_tensor(8), op.integer(9)})};
}

OP("aten::_embedding_bag_per_sample_weights_backward") {
  const Value grad = op.tensor(0);
  const Value index = flatten(op.tensor(2));
  const Value rows = to_compute(take_slices(op.tensor(1), 0, index));
  const Value bag = bags(op.tensor(4), op.tensor(3), index.dim(0));
  Value result = reduce(rows * to_compute(take_slices(grad, 0, bag)), Reduction::kSum, Dims{1});
  if (const int64_t padding = op.integer(6); padding >= 0) {
    result =
        select(compare(Compare::kEq, index, static_cast<double>(padding)), hlo::like(result, 0.0), result);
  }
  return {hlo::convert(result, grad.dtype())};
}

}  // namespace torch_tpu::ops

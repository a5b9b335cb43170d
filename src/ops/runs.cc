// Runs of equal neighbours, the device side of unique and repeat_interleave. Results whose size the values
// decide are padded to the largest possible size and come with their number.
#include "ops/indexing.h"
#include "ops/require.h"
#include "ops/scan.h"

namespace torch_tpu::ops {
namespace {

using hlo::Compare;
using hlo::Reduction;

// Of a list of n elements: where each run starts (n past the last run), the run of each element, and how
// many runs there are.
struct Runs {
  Value starts;  // [n]
  Value number;  // [n]
  Value count;   // rank 0, s64
};

/// `differs`[n - 1]: whether each element after the first is unlike the one before.
Runs runs_of(const Value& differs) {
  Builder& builder = *differs.builder;
  const int64_t size = differs.dim(0) + 1;
  const Value first = hlo::concatenate({builder.splat(1.0, {DType::kPred, {1}}), differs}, 0);
  const Value seen = running_count(first);
  const Value position = builder.iota(seen.type, 0);
  const Value past = hlo::like(seen, static_cast<double>(size));
  const Value target = select(first, seen - 1.0, past);
  return {scatter_slices(past, 0, target, position, replace()), seen - 1.0,
          hlo::convert(reshape(slice_dim(seen, 0, size - 1, size), Dims{}), DType::kS64)};
}

Value lengths(const Runs& runs) {
  const int64_t size = runs.starts.dim(0);
  const Value end = runs.starts.builder->splat(size, {runs.starts.dtype(), {1}});
  const Value next = hlo::concatenate({slice_dim(runs.starts, 0, 1, size), end}, 0);
  return hlo::convert(next - runs.starts, DType::kS64);
}

/// The run of each element before sorting: `order`[i] is where the i-th sorted element was.
Value inverse(const Runs& runs, const Value& order) {
  const Value number = hlo::convert(runs.number, DType::kS64);
  return order ? scatter_slices(hlo::like(number, 0.0), 0, order, number, replace()) : number;
}

/// The first element, or row, of each run.
Value representatives(const Value& x, const Runs& runs) {
  const Value last = hlo::like(runs.starts, static_cast<double>(x.dim(0) - 1));
  return take_slices(x, 0, minimum(runs.starts, last));
}

/// Which rows of x [n, width] differ from the one before; NaN differs from itself.
Value differing_rows(const Value& x) {
  const int64_t size = x.dim(0);
  const Value unequal = compare(Compare::kNe, slice_dim(x, 0, 1, size), slice_dim(x, 0, 0, size - 1));
  return reduce(unequal, Reduction::kOr, Dims{1});
}

/// The order of the rows of x [n, width] by their first column, then the second, and so on: stable sorts
/// from the last column to the first.
Value row_order(const Value& x) {
  Builder& builder = *x.builder;
  const int64_t size = x.dim(0);
  const int64_t width = x.dim(1);
  const Type counter{DType::kS32, {}};
  const Value positions = builder.iota({offset_dtype(size), {size}}, 0);
  const auto unfinished = [&](const Values& state) -> Values {
    return {compare(Compare::kGe, state[0], 0.0)};
  };
  const auto sort_by_column = [&](const Values& state) -> Values {
    const Value column = dynamic_slice(state[2], {hlo::like(state[0], 0.0), state[0]}, Dims{size, 1});
    const Value key = take_elements(column, state[1]);
    const Values sorted = hlo::sort({key, state[1]}, 0, true, [](const Values& pair) -> Values {
      return {compare(Compare::kLt, pair[0], pair[1])};
    });
    return {state[0] - 1.0, sorted[1], state[2]};
  };
  return hlo::while_loop({builder.splat(width - 1, counter), positions, order_key(x)}, unfinished,
                         sort_by_column)[1];
}

}  // namespace

// (x, sort, with_inverse, with_counts) -> (elements, their number, inverse or None, counts or None)
OP("tpu::unique") {
  const Value self = op.tensor(0);
  Value elements = flatten(self);
  Value order;
  if (op.flag(1)) {
    const auto [sorted, indices] = sort_with_indices(elements, 0, false);
    elements = sorted;
    order = indices;
  }
  const Runs runs = runs_of(differing_rows(reshape(elements, Dims{elements.dim(0), 1})));
  const Value places = op.flag(2) ? reshape(inverse(runs, order), self.dims()) : Value{};
  return {representatives(elements, runs), runs.count, places, op.flag(3) ? lengths(runs) : Value{}};
}

// (x, dim, sort) -> (slices of `dim`, which comes first, their number, inverse, counts)
OP("tpu::unique_slices") {
  const Value self = op.tensor(0);
  Dims permutation{op.integer(1)};
  for (int64_t dim = 0; dim < self.rank(); ++dim) {
    if (dim != op.integer(1)) permutation.push_back(dim);
  }
  const Value slices = transpose(self, permutation);
  const int64_t size = slices.dim(0);
  Value rows = reshape(slices, Dims{size, slices.type.elements() / size});
  Value order;
  if (op.flag(2)) {
    order = row_order(rows);
    rows = take_slices(rows, 0, order);
  }
  const Runs runs = runs_of(differing_rows(rows));
  return {reshape(representatives(rows, runs), slices.dims()), runs.count, inverse(runs, order),
          lengths(runs)};
}

namespace {

Value minimum_of(const Value& x) { return reduce(x, Reduction::kMin, Dims{0}); }

/// For each position below `size` the number of `ends`[n], in ascending order, that lie at or before it.
Value ends_before(const Value& ends, int64_t size, DType dtype) {
  Builder& builder = *ends.builder;
  const Value zeros = builder.splat(0.0, {offset_dtype(ends.dim(0)), {size}});
  const Value ones = builder.splat(1.0, {zeros.dtype(), ends.dims()});
  const Value at =
      hlo::convert(minimum(ends, hlo::like(ends, static_cast<double>(size))), offset_dtype(size));
  const Value steps = scatter_slices(zeros, 0, at, ones, hlo::combiner(Reduction::kSum));
  return hlo::convert(scan(steps, 0, Reduction::kSum), dtype);
}

}  // namespace

// (repeats) -> (where the repetitions of each element end, [least number of repeats, sum])
OP("tpu::repeat_ends") {
  const Value repeats = hlo::convert(op.tensor(0), DType::kS64);
  const Value ends = scan(repeats, 0, Reduction::kSum);
  const Value least = reshape(minimum_of(repeats), Dims{1});
  return {ends, hlo::concatenate({least, slice_dim(ends, 0, ends.dim(0) - 1, ends.dim(0))}, 0)};
}

// (ends, size, dtype): which element each of `size` places repeats.
OP("tpu::repeat_indices") { return {ends_before(op.tensor(0), op.integer(1), *op.dtype(2))}; }

// (repeats, size): the same when the size is known and only has to be true.
OP("tpu::repeat_exactly") {
  const Value repeats = op.tensor(0);
  const int64_t size = op.integer(1);
  const Value ends = scan(hlo::convert(repeats, DType::kS64), 0, Reduction::kSum);
  const Value sum = reshape(slice_dim(ends, 0, ends.dim(0) - 1, ends.dim(0)), Dims{});
  op.check(compare(Compare::kLt, repeats, 0.0), Code::kInvalidArgument, "repeats can not be negative");
  op.check(compare(Compare::kNe, sum, static_cast<double>(size)), sum, Code::kInvalidArgument,
           "allocated size does not match required size {}");
  return {ends_before(ends, size, repeats.dtype())};
}

}  // namespace torch_tpu::ops

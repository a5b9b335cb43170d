// segment_reduce: reductions over consecutive runs of one dimension.
#include "ops/indexing.h"
#include "ops/promotion.h"

namespace torch_tpu::ops {
namespace {

using hlo::Compare;
using hlo::Reduction;

// `data` as rows [outer * size, inner] with, for each row, the segment [outer * segments] it belongs
// to; rows of no segment go past the end.
struct Segments {
  Value rows;
  Value target;
  Value lengths;  // [outer * segments]
  int64_t count;  // outer * segments
  Dims result;

  Segments(Lowering& op, const Value& data, int lengths_position, int offsets_position, int64_t axis) {
    const std::span<const int64_t> dims = data.dims();
    const int64_t outer = hlo::element_count(dims.first(axis));
    const int64_t size = dims[axis];
    const int64_t inner = hlo::element_count(dims.subspan(axis + 1));
    const DType dtype = offset_dtype(data.type.elements() + 1);
    Value starts;
    int64_t segments;
    if (op.has(lengths_position)) {
      segments = op.tensor(lengths_position).dim(-1);
      const Value given = reshape(hlo::convert(op.tensor(lengths_position), dtype), Dims{outer, segments});
      starts = pad(given, op.builder().splat(0.0, {dtype, {}}), Dims{0, 1}, Dims{0, 0});
      hlo::Window window;
      window.size = {1, segments + 1};
      window.padding_low = {0, segments};
      window.padding_high = {0, 0};
      starts = reduce_window(starts, Reduction::kSum, window);
    } else {
      segments = op.tensor(offsets_position).dim(-1) - 1;
      starts = reshape(hlo::convert(op.tensor(offsets_position), dtype), Dims{outer, segments + 1});
    }
    count = outer * segments;
    result = data.dims();
    result[axis] = segments;
    lengths = flatten(slice_dim(starts, 1, 1, segments + 1) - slice_dim(starts, 1, 0, segments));
    rows = to_compute(reshape(data, Dims{outer * size, inner}));
    const Value position = op.builder().iota({dtype, {outer, size}}, 1);
    Value segment = hlo::convert(binary_search(starts, position, true), dtype) - 1.0;
    const Value inside =
        compare(Compare::kGe, segment, 0.0) & compare(Compare::kLt, segment, static_cast<double>(segments));
    const Value row = op.builder().iota(segment.type, 0) * static_cast<double>(segments);
    target = flatten(select(inside, segment + row, hlo::like(segment, static_cast<double>(count))));
  }

  Value scatter(const Value& start, const Value& updates, Reduction kind) const {
    const Value base = broadcast_to(start, Dims{count, rows.dim(1)});
    return scatter_slices(base, 0, target, updates, hlo::combiner(kind));
  }
  /// A value per segment, spread over the rows of the segment.
  Value spread(const Value& values) const { return take_slices(values, 0, target); }
  Value divisor(DType dtype) const { return reshape(hlo::convert(lengths, dtype), Dims{count, 1}); }
};

void check_lengths(Lowering& op, const Value& lengths, const Value& data) {
  op.check(compare(Compare::kLt, lengths, 0.0), Code::kInvalidArgument, "lengths contains negative value!");
  const Value sum = reduce(hlo::convert(lengths, DType::kS64), Reduction::kSum, Dims{lengths.rank() - 1});
  op.check(compare(Compare::kNe, sum, static_cast<double>(data.dim(lengths.rank() - 1))),
           Code::kInvalidArgument,
           "segment_reduce(): Expected all rows of lengths along axis to sum to "
           "data.size(lengths.dim()-1) when !unsafe.");
}

void check_offsets(Lowering& op, const Value& offsets) {
  const int64_t axis = offsets.rank() - 1;
  const int64_t last = offsets.dim(axis) - 1;
  op.check(compare(Compare::kLt, slice_dim(offsets, axis, 1, last + 1), slice_dim(offsets, axis, 0, last)),
           Code::kInvalidArgument, "Expected segment_length >= 0 to be true, but got false.");
}

// A mean is a sum at first.
Reduction kind_of(Lowering& op, const std::string& reduce) {
  if (reduce == "max" || reduce == "amax") return Reduction::kMax;
  if (reduce == "min" || reduce == "amin") return Reduction::kMin;
  if (reduce == "prod") return Reduction::kProduct;
  if (reduce == "sum" || reduce == "mean") return Reduction::kSum;
  op.fail("reduce argument must be either sum, prod, mean, amax or amin, got " + reduce);
}

}  // namespace

OP("aten::segment_reduce") {
  const Value data = op.tensor(0);
  const std::string reduce = op.text(1);
  if (op.has(2) && !op.flag(6)) check_lengths(op, op.tensor(2), data);
  if (!op.has(2)) check_offsets(op, op.tensor(4));
  const Segments segments(op, data, 2, 4, op.dim(5, data.rank()));
  const Value& rows = segments.rows;
  const Reduction kind = kind_of(op, reduce);
  const bool has_initial = op.has(7);
  const Value start = has_initial ? op.scalar(7, rows.dtype()) : neutral(op.builder(), kind, rows.dtype());
  Value result = segments.scatter(start, rows, kind);
  if (reduce == "mean") {
    const Value length = segments.divisor(rows.dtype());
    const Value mean = result / length;
    // Without an initial value the mean of no elements is 0 / 0.
    result = has_initial ? select(broadcast_to(compare(Compare::kGt, length, 0.0), mean.dims()), mean, result)
                         : mean;
  }
  return {hlo::convert(reshape(result, segments.result), data.dtype())};
}

OP("aten::_segment_reduce_backward") {
  const Value data = op.tensor(2);
  const std::string reduce = op.text(3);
  const Segments segments(op, data, 4, 5, op.dim(6, data.rank()));
  const Value& rows = segments.rows;
  const DType dtype = rows.dtype();
  const Dims table{segments.count, rows.dim(1)};
  const Value grad = reshape(hlo::convert(op.tensor(0), dtype), table);
  const Value output = reshape(hlo::convert(op.tensor(1), dtype), table);
  const Value zero = op.builder().splat(0.0, {dtype, {}});
  const Value zeros = hlo::like(rows, 0.0);
  Value result;
  if (reduce == "mean") {
    result = segments.spread(grad / segments.divisor(dtype));
  } else if (reduce == "sum") {
    result = segments.spread(grad);
  } else if (reduce == "prod") {
    // The product of the others: output / x, but from the factors that are not zero where x is.
    const Value is_zero = compare(Compare::kEq, rows, 0.0);
    const Value one = hlo::like(zero, 1.0);
    const Value start = op.has(7) ? op.scalar(7, dtype) : one;
    const Value others =
        segments.scatter(start, select(is_zero, hlo::like(rows, 1.0), rows), Reduction::kProduct);
    const Value zero_count = segments.scatter(zero, hlo::convert(is_zero, dtype), Reduction::kSum);
    const Value alone = select(compare(Compare::kEq, zero_count, 1.0), others, hlo::like(others, 0.0));
    result = select(is_zero, segments.spread(grad * alone), segments.spread(grad * output) / rows);
  } else {
    // Elements that equal the result share its gradient.
    const Value wins = compare(Compare::kEq, rows, segments.spread(output)) | is_nan(rows);
    const Value winners = segments.scatter(zero, hlo::convert(wins, dtype), Reduction::kSum);
    result = select(wins, segments.spread(grad / maximum(winners, hlo::like(winners, 1.0))), zeros);
  }
  const Value inside = compare(Compare::kLt, segments.target, static_cast<double>(segments.count));
  result = select(broadcast_in_dim(inside, rows.dims(), Dims{0}), result, zeros);
  return {hlo::convert(reshape(result, data.dims()), data.dtype())};
}

}  // namespace torch_tpu::ops

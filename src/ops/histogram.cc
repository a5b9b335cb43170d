// Histograms over one dimension (histc, histogram) and over several (histogramdd).
#include "ops/indexing.h"
#include "ops/pointwise.h"
#include "ops/promotion.h"
#include "ops/require.h"

namespace torch_tpu::ops {

using hlo::Compare;
using hlo::Reduction;

// Bins as ATen's linear histogram kernel assigns them, which rounds each step; for integers as its CUDA
// kernel does, in whole numbers. Equal bounds stand for those of the data.
OP("aten::histc") {
  const Value self = op.tensor(0);
  const bool is_integer = hlo::is_integer(self.dtype());
  if (!is_integer) require_floating(op, self, "histogram_cpu");
  const int64_t bins = op.integer(1);
  Builder& builder = op.builder();
  const Value x = flatten(is_integer ? hlo::convert(self, DType::kS64) : to_compute(self));
  if (x.dim(0) == 0) return {builder.splat(0.0, {self.dtype(), {bins}})};
  const Value given_low = op.scalar(2, x.dtype());
  const Value given_high = op.scalar(3, x.dtype());
  const Value from_data = compare(Compare::kEq, given_low, given_high);
  const Value low = select(from_data, reduce(x, Reduction::kMin, Dims{0}), given_low);
  const Value high = select(from_data, reduce(x, Reduction::kMax, Dims{0}), given_high);
  if (!is_integer)
    op.check(!(is_finite(low) & is_finite(high)), Code::kInvalidArgument, "torch.histc: range is not finite");
  const Value flat = compare(Compare::kEq, low, high);
  const Value left = select(flat, low - 1.0, low);
  const Value right = select(flat, high + 1.0, high);
  const DType dtype = is_integer ? x.dtype() : self.dtype();
  const Value offset = rounded(rounded(x - left, dtype) * static_cast<double>(bins), dtype);
  const Value scaled = rounded(exact_quotient(offset, rounded(right - left, dtype)), dtype);
  const Value bin = hlo::convert(scaled, DType::kS32);
  const Value last = minimum(bin, hlo::like(bin, static_cast<double>(bins - 1)));
  const Value inside = compare(Compare::kGe, x, left) & compare(Compare::kLe, x, right);
  const Value target = select(inside, last, hlo::like(bin, static_cast<double>(bins)));
  const Value counts =
      scatter_slices(builder.splat(0.0, {DType::kS32, {bins}}), 0, target,
                     builder.splat(1.0, {DType::kS32, {x.dim(0)}}), hlo::combiner(Reduction::kSum));
  return {hlo::convert(counts, self.dtype())};
}

namespace {

// Edges of `bins` equal bins between the given bounds or, without, those of the data.
Value even_edges(Lowering& op, const Value& x, int64_t bins, const std::vector<double>& range,
                 size_t dimension) {
  Builder& builder = op.builder();
  if (bins < 1) {
    op.fail("torch.histogram(): bins must be > 0, but got " + std::to_string(bins) + " for dimension " +
            std::to_string(dimension));
  }
  const Type scalar{x.dtype(), {}};
  Value low = builder.splat(0.0, scalar);
  Value high = builder.splat(1.0, scalar);
  if (!range.empty()) {
    if (range[2 * dimension] > range[2 * dimension + 1]) {
      op.fail("torch.histogramdd: min should not exceed max for dimension " + std::to_string(dimension));
    }
    low = builder.splat(range[2 * dimension], scalar);
    high = builder.splat(range[2 * dimension + 1], scalar);
  } else if (x.dim(0) > 0) {
    low = reduce(x, Reduction::kMin, Dims{0});
    high = reduce(x, Reduction::kMax, Dims{0});
  }
  op.check(!(is_finite(low) & is_finite(high)), Code::kInvalidArgument,
           "torch.histogramdd: the range of dimension " + std::to_string(dimension) + " is not finite");
  const Value flat = compare(Compare::kEq, low, high);
  return spaced(select(flat, low - 0.5, low), select(flat, high + 0.5, high), bins + 1, x.dtype());
}

// The weights of the rows of points [count, edges.size()] summed by bin. The last bin holds its upper
// edge; points outside, and NaN, are in none.
Value histogram(Lowering& op, const Value& points, const Values& edges, const Value& weight, bool density) {
  Builder& builder = op.builder();
  const int64_t count = points.dim(0);
  Dims dims;
  for (const Value& edge : edges) dims.push_back(edge.dim(0) - 1);
  const int64_t cells = hlo::element_count(dims);
  const DType dtype = offset_dtype(std::max(cells, count));
  Value cell = builder.splat(0.0, {dtype, {count}});
  Value inside = builder.splat(1.0, {DType::kPred, {count}});
  for (size_t i = 0; i < edges.size(); ++i) {
    const Value x = reshape(slice_dim(points, 1, i, i + 1), Dims{1, count});
    const Value place = flatten(binary_search(reshape(edges[i], Dims{1, dims[i] + 1}), x, true));
    const Value bin = hlo::convert(place, dtype) - 1.0;
    const Value line = flatten(x);
    const Value first = slice_dim(edges[i], 0, 0, 1);
    const Value last = slice_dim(edges[i], 0, dims[i], dims[i] + 1);
    inside = inside & compare(Compare::kGe, line, first) & compare(Compare::kLe, line, last);
    cell =
        cell * static_cast<double>(dims[i]) + minimum(bin, hlo::like(bin, static_cast<double>(dims[i] - 1)));
  }
  cell = select(inside, cell, hlo::like(cell, static_cast<double>(cells)));
  const DType sum_dtype = weight ? points.dtype() : DType::kS32;
  const Value amounts = weight ? flatten(weight) : builder.splat(1.0, {sum_dtype, {count}});
  const Value sums = scatter_slices(builder.splat(0.0, {sum_dtype, {cells}}), 0, cell, amounts,
                                    hlo::combiner(Reduction::kSum));
  Value result = reshape(hlo::convert(sums, points.dtype()), dims);
  if (!density) return result;
  result = result / reduce(flatten(result), Reduction::kSum, Dims{0});
  for (size_t i = 0; i < edges.size(); ++i) {
    const Value widths = slice_dim(edges[i], 0, 1, dims[i] + 1) - slice_dim(edges[i], 0, 0, dims[i]);
    result = result / broadcast_in_dim(widths, dims, Dims{static_cast<int64_t>(i)});
  }
  return result;
}

// The points of histogramdd: the last dimension holds coordinates.
Value as_points(const Value& x) {
  const int64_t width = x.dim(-1);
  return reshape(x, Dims{width == 0 ? 0 : x.type.elements() / width, width});
}

Values all_even_edges(Lowering& op, const Value& points) {
  const std::vector<int64_t> bins = op.integers(1);
  if (static_cast<int64_t>(bins.size()) != points.dim(1)) {
    op.fail("histogramdd: The size of bins must be equal to the innermost dimension of the input.");
  }
  Values edges;
  for (size_t i = 0; i < bins.size(); ++i) {
    edges.push_back(even_edges(op, flatten(slice_dim(points, 1, i, i + 1)), bins[i], op.numbers(2), i));
  }
  return edges;
}

Value column(const Value& x) { return reshape(x, Dims{x.type.elements(), 1}); }

}  // namespace

OP("aten::histogram.bin_ct") {
  const Value x = flatten(op.tensor(0));
  const Value edges = even_edges(op, x, op.integer(1), op.numbers(2), 0);
  return {histogram(op, column(x), {edges}, op.optional_tensor(3), op.flag(4)), edges};
}

OP("aten::histogram.bins_tensor") {
  const Value edges = op.tensor(1);
  return {histogram(op, column(op.tensor(0)), {edges}, op.optional_tensor(2), op.flag(3)), edges};
}

OP("aten::_histogramdd_bin_edges") { return all_even_edges(op, as_points(op.tensor(0))); }

OP("aten::_histogramdd_from_bin_cts") {
  const Value points = as_points(op.tensor(0));
  return {histogram(op, points, all_even_edges(op, points), op.optional_tensor(3), op.flag(4))};
}

OP("aten::_histogramdd_from_bin_tensors") {
  return {histogram(op, as_points(op.tensor(0)), op.tensors(1), op.optional_tensor(2), op.flag(3))};
}

// (x) -> [least, largest] of a list of integers
OP("tpu::extrema") {
  const Value x = hlo::convert(op.tensor(0), DType::kS64);
  return {hlo::concatenate({reshape(reduce(x, Reduction::kMin, Dims{0}), Dims{1}),
                            reshape(reduce(x, Reduction::kMax, Dims{0}), Dims{1})},
                           0)};
}

// (x, weights or None, bins): how often each number below `bins` is in x, or the sums of their weights.
OP("tpu::bincount") {
  const Value x = op.tensor(0);
  const Value weights =
      op.has(1) ? op.tensor(1) : op.builder().splat(1.0, {offset_dtype(x.dim(0)), x.dims()});
  const Value zeros = op.builder().splat(0.0, {weights.dtype(), {op.integer(2)}});
  const Value sums = scatter_slices(zeros, 0, x, weights, hlo::combiner(Reduction::kSum));
  return {op.has(1) ? sums : hlo::convert(sums, DType::kS64)};
}

}  // namespace torch_tpu::ops

// Operators that the engine itself calls, and the compaction of masks that they share with others.
#include "ops/indexing.h"

namespace torch_tpu::ops {
namespace {

constexpr int64_t kBlock = 64;

// Inclusive prefix sum of a rank-1 float: triangular dots within blocks, then the same over the block
// totals. Much faster to compile and to run than a reduce_window of the whole length.
Value running_sum(const Value& x) {
  Builder& builder = *x.builder;
  const int64_t count = x.dim(0);
  const int64_t size = std::min(count, kBlock);
  const int64_t blocks = (count + size - 1) / size;
  const Type square{DType::kS32, {size, size}};
  const Value upper =
      hlo::convert(compare(hlo::Compare::kLe, builder.iota(square, 0), builder.iota(square, 1)), x.dtype());
  const Value padded = pad(x, builder.splat(0.0, {x.dtype(), {}}), Dims{0}, Dims{blocks * size - count});
  const Value rows = reshape(padded, Dims{blocks, size});
  Value sums = dot_general(
      rows, upper, {.lhs_batch = {}, .rhs_batch = {}, .lhs_contract = {1}, .rhs_contract = {0}}, x.dtype());
  if (blocks > 1) {
    const Value totals = reshape(slice_dim(sums, 1, size - 1, size), Dims{blocks});
    const Value before = running_sum(totals) - totals;
    sums = sums + reshape(before, Dims{blocks, 1});
  }
  return slice_dim(flatten(sums), 0, 0, count);
}

}  // namespace

Value running_count(const Value& mask) {
  const int64_t count = mask.dim(0);
  if (count == 0) return hlo::convert(mask, DType::kS32);
  // Counts are exact in f32 up to 2^24.
  const DType dtype = count <= (int64_t{1} << 24) ? DType::kF32 : DType::kF64;
  return hlo::convert(running_sum(hlo::convert(mask, dtype)), offset_dtype(count));
}

Value compact_offsets(const Value& mask, int64_t capacity) {
  const Value count = hlo::convert(running_count(mask), offset_dtype(std::max(capacity, mask.dim(0))));
  return select(mask, count - 1.0, hlo::like(count, static_cast<double>(capacity)));
}

namespace {

// Row-major positions of the elements of x that are not zero, as [capacity] offsets; rows past the
// last have the offset `rest`.
Value nonzero_offsets(const Value& x, int64_t capacity, int64_t rest) {
  const Value mask = flatten(hlo::convert(x, DType::kPred));
  const Type positions{offset_dtype(mask.dim(0)), mask.dims()};
  const Value empty = x.builder->splat(rest, {positions.dtype, {capacity}});
  return scatter_slices(empty, 0, compact_offsets(mask, capacity), x.builder->iota(positions, 0), replace());
}

// The coordinates [count, rank] of row-major offsets in a tensor of `dims`, as s64.
Value coordinates(const Value& offsets, const Dims& dims) {
  const Dims strides = hlo::contiguous_strides(dims);
  const int64_t count = offsets.dim(0);
  Values columns;
  for (size_t i = 0; i < dims.size(); ++i) {
    Value place = offsets;
    if (strides[i] > 1) place = place / static_cast<double>(strides[i]);
    if (i > 0) place = remainder(place, hlo::like(place, static_cast<double>(std::max<int64_t>(dims[i], 1))));
    columns.push_back(reshape(hlo::convert(place, DType::kS64), Dims{count, 1}));
  }
  if (columns.empty()) return offsets.builder->splat(0.0, {DType::kS64, {count, 0}});
  return hlo::concatenate(columns, 1);
}

}  // namespace

OP("tpu::convert") { return {hlo::convert(op.tensor(0), *op.dtype(1))}; }
OP("tpu::broadcast") { return {broadcast_to(op.tensor(0), Dims(op.integers(1)))}; }
OP("tpu::reshape") { return {reshape(op.tensor(0), Dims(op.integers(1)))}; }

OP("tpu::nonzero_count") {
  const Value mask = flatten(hlo::convert(op.tensor(0), DType::kPred));
  const Value ones = hlo::convert(mask, offset_dtype(mask.dim(0)));
  return {hlo::convert(reduce(ones, hlo::Reduction::kSum, Dims{0}), DType::kS64)};
}

OP("tpu::nonzero") {
  const Value self = op.tensor(0);
  return {coordinates(nonzero_offsets(self, op.integer(1), 0), self.dims())};
}

// (x, mask of its leading dimensions, capacity): x[mask], padded.
OP("tpu::masked_rows") {
  const Value self = op.tensor(0);
  const Value mask = flatten(hlo::convert(op.tensor(1), DType::kPred));
  const int64_t capacity = op.integer(2);
  Dims rows{mask.dim(0)};
  Dims dims{capacity};
  for (int64_t dim = op.tensor(1).rank(); dim < self.rank(); ++dim) {
    rows.push_back(self.dim(dim));
    dims.push_back(self.dim(dim));
  }
  const Value empty = op.builder().splat(0.0, {self.dtype(), dims});
  return {scatter_slices(empty, 0, compact_offsets(mask, capacity), reshape(self, rows), replace())};
}

OP("tpu::first_rows") { return {slice_dim(op.tensor(0), 0, 0, op.integer(1))}; }

OP("aten::nonzero_static") {
  const Value self = op.tensor(0);
  const int64_t size = op.integer(1);
  const Value offsets = nonzero_offsets(self, size, -1);
  const Value places = coordinates(offsets, self.dims());
  const Value found = reshape(compare(hlo::Compare::kGe, offsets, 0.0), Dims{size, 1});
  return {select(found, places, hlo::like(places, static_cast<double>(op.integer(2))))};
}

}  // namespace torch_tpu::ops

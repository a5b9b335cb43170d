// Index arithmetic shared by the operators that gather, scatter, sort and search.
#pragma once

#include <utility>

#include "ops/op.h"

namespace torch_tpu::ops {

/// torch's name of a dtype in messages: "Float", "Long".
std::string_view scalar_type_name(DType dtype);
/// The name of the C++ type, which some of torch's refusals spell: "unsigned char".
std::string_view cpp_name(DType dtype);

/// The dtype for offsets in [0, bound]: s32 where that is enough.
DType offset_dtype(int64_t bound);
/// Indices into a dimension of `size`, in offset_dtype(size).
Value offsets(const Value& index, int64_t size);
/// The same, with negative indices counted from the end.
Value wrapped_offsets(const Value& index, int64_t size);

/// x[..., index, ...]: dimension `dim` of x replaced by the dimensions of `index`.
Value take_slices(const Value& x, int64_t dim, const Value& index);
/// The elements of x at row-major `offsets`, with the dimensions of `offsets`.
Value take_elements(const Value& x, const Value& offsets);
/// Row-major offsets, in a tensor of `dims`, of the elements that torch.gather(dim, index) reads.
Value element_offsets(const Value& index, const Dims& dims, int64_t dim);
/// torch.gather
Value take_along(const Value& x, int64_t dim, const Value& index);

/// x with updates combined into the slices of `dim` that the rank-1 `index` names; indices outside
/// the dimension are skipped.
Value scatter_slices(const Value& x, int64_t dim, const Value& index, const Value& updates,
                     const hlo::Region& combine);
/// x with updates combined into the elements at row-major `offsets` (dimensions as `updates`);
/// offsets outside x are skipped.
Value scatter_elements(const Value& x, const Value& offsets, const Value& updates,
                       const hlo::Region& combine);
/// The combine function that keeps the update.
hlo::Region replace();
/// `written`, which is x with `updates` at some places. Where these are few, compilers may not put the write
/// into its readers: XLA:CPU would do that in each of them, on a copy of all of x, instead of once in x.
Value written_once(const Value& x, const Value& updates, const Value& written);

/// x, computed in f32, as the smaller float `dtype` would hold it: for formulas that ATen evaluates
/// with a rounding at each step. XLA drops plain conversions there and back.
Value rounded(const Value& x, DType dtype);

/// `steps` numbers from start to end (rank 0) with the roundings of ATen's linspace of `dtype`.
Value spaced(const Value& start, const Value& end, int64_t steps, DType dtype);

/// x as rank 1.
Value flatten(const Value& x);
/// x, or a rank-1 view of a rank-0 x.
Value at_least_1d(const Value& x);

/// How many of the first i + 1 elements of a rank-1 mask are set.
Value running_count(const Value& mask);
/// For each element of a rank-1 mask the place among the set ones, `capacity` for elements not set.
Value compact_offsets(const Value& mask, int64_t capacity);

/// A signed integer with the order that torch.sort gives x: NaN above all, -0 equal to 0.
Value order_key(const Value& x);
/// Sorted values and s64 indices; equal elements keep their order.
std::pair<Value, Value> sort_with_indices(const Value& x, int64_t dim, bool descending);
/// For each of values[rows, m] the place where it goes into the same row of sorted[rows, n]: before
/// equal elements, or after them if `right`.
Value binary_search(const Value& sorted, const Value& values, bool right);

}  // namespace torch_tpu::ops

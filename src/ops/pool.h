// What the pooling operators share: argument lists, output sizes, and maxima that carry their index.
#pragma once

#include "ops/window.h"

namespace torch_tpu::ops::pool {

struct Geometry : Windows {
  Dims kernel;
  bool ceil_mode = false;

  /// torch's rule: with ceil_mode the last window must start inside the input or its left padding.
  Dims output(const Dims& input) const;
  int64_t tap_count() const { return hlo::element_count(kernel); }
};

/// Programs with more taps than this use window reductions and scatters instead of one slice a tap.
inline constexpr int64_t kMostTaps = 64;

/// Reads kernel, stride (the kernel where empty), padding and, where `dilation` >= 0, dilation.
Geometry geometry_of(Lowering& op, size_t rank, int kernel, int stride, int padding, int dilation,
                     int ceil_mode);

/// The maximum over `dims` and its index, from parallel tensors of values and s32 indices. The first
/// of equals wins, the last of NaNs (as torch's loops do).
Values max_with_index(const Value& values, const Value& indices, const Dims& dims);
/// The region of that reduction: (value, index, value, index) -> (value, index).
Values better(const Values& pairs);

/// Adds (or writes) `values` into zeros of `dims` at `indices`, which count within the last
/// `rank` dimensions of each plane.
Value scatter_in_planes(const Value& values, const Value& indices, const Dims& dims, size_t rank, bool add);

/// Rows of `dim` at the given positions: that dimension becomes indices.size().
Value take(const Value& x, int64_t dim, const std::vector<int64_t>& positions);

}  // namespace torch_tpu::ops::pool

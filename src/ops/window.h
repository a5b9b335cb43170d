// Sliding windows over the last dimensions of a tensor, as convolutions, pooling and im2col use them.
#pragma once

#include "ops/op.h"

namespace torch_tpu::ops {

/// One entry per spatial dimension; the spatial dimensions are the last ones.
struct Windows {
  Dims stride, padding, dilation;

  size_t rank() const { return stride.size(); }
};

/// Positions inside the kernel; the last dimension varies fastest.
std::vector<Dims> window_taps(const Dims& kernel);
/// `x` with `fill` around it, far enough for every tap of every output position.
Value window_padded(const Value& x, const Windows& w, const Dims& kernel, const Dims& output, double fill);
/// The elements under one tap for every output position, as a strided slice of the padded tensor.
Value under_tap(const Value& padded, const Dims& tap, const Dims& output, const Windows& w);
/// The transpose of both: values per output position put back to where the tap read them, zero elsewhere.
Value onto_input(const Value& values, const Dims& tap, const Dims& input, const Windows& w);
/// Integers as given, or the one number for every dimension.
Dims per_dimension(const std::vector<int64_t>& numbers, size_t rank);
/// The last `rank` dimensions.
Dims last_dims(const Dims& dims, size_t rank);
/// The dimensions without the last `rank`, followed by `tail`.
Dims with_last_dims(const Dims& dims, const Dims& tail);

}  // namespace torch_tpu::ops

// From ATen/native/Resize.h, whose other includes cost 12 s.
#pragma once

#include <ATen/core/Tensor.h>

namespace at::native {

/// Gives an out= tensor the shape of the result, with ATen's warning if it had elements; true if it changed.
TORCH_API bool resize_output(const Tensor& output, IntArrayRef shape);

}  // namespace at::native

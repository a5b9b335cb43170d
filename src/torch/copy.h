// Between host and device.
#pragma once

#include <ATen/core/Tensor.h>

#include "engine/tensor.h"

namespace torch_tpu {

/// An uninitialised contiguous CPU tensor.
at::Tensor empty_cpu(c10::IntArrayRef sizes, c10::ScalarType dtype);

/// Runs what `value` waits for and copies its row-major elements to `destination`.
void read_to_host(const engine::TensorPtr& value, void* destination);

/// A device value with the elements of a contiguous CPU tensor.
engine::TensorPtr copy_from_host(const at::Tensor& cpu, int device_index);

/// tensor.copy_(source) for every pairing of CPU and tpu; converts and broadcasts.
at::Tensor& copy_into(at::Tensor& self, const at::Tensor& source, bool non_blocking);

/// The value of a one-element tensor.
at::Scalar local_scalar(const at::Tensor& self);

}  // namespace torch_tpu

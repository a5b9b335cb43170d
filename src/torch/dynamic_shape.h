// Operators whose result sizes depend on values: count on the device, then run a program for the
// next power of two and cut its result, so that the number of programs grows with log2 of the count.
#pragma once

#include <ATen/core/Tensor.h>

#include "torch/binding.h"

namespace torch_tpu {

at::Tensor nonzero(const at::Tensor& self);
at::Tensor masked_select(const at::Tensor& self, const at::Tensor& mask);

/// Replaces boolean masks in a list of index tensors by the columns of their nonzero(), and moves
/// index tensors from the CPU to the indexed tensor's device.
void expand_index_masks(const Binding& binding, c10::IValue* values);

}  // namespace torch_tpu

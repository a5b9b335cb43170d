// Operators whose result sizes depend on values: the device counts, the host reads the count, and results are
// cut to the next power of two, so that the number of programs grows with log2 of the count. The rest is a
// view.
#pragma once

#include <ATen/core/Tensor.h>

#include "engine/tensor.h"
#include "torch/binding.h"

namespace torch_tpu {

at::Tensor nonzero(const at::Tensor& self);
at::Tensor masked_select(const at::Tensor& self, const at::Tensor& mask);

/// The number of places for `count` rows: a power of two, but not more than `most`.
int64_t capacity_for(int64_t count, int64_t most);
/// A rank-0 s64 value, read on the host.
int64_t read_count(const engine::TensorPtr& value);
/// The first `count` rows of a padded result.
at::Tensor first_rows(engine::TensorPtr padded, int64_t count);

/// Replaces boolean masks in a list of index tensors by the columns of their nonzero(), and moves
/// index tensors from the CPU to the indexed tensor's device. A mask that says where one number is written
/// stays.
void expand_index_masks(const Binding& binding, c10::IValue* values);

}  // namespace torch_tpu

// What the losses share: torch's reduction argument.
#pragma once

#include "ops/op.h"

namespace torch_tpu::ops {

/// at::Reduction
enum LossReduction : int64_t { kNone = 0, kMean = 1, kSum = 2 };

/// Applies the reduction to the elements of the loss, then rounds to `dtype`.
Value reduce_loss(const Value& loss, int64_t reduction, DType dtype);
/// The gradient with respect to the elements of a loss of `elements` elements; rank 0 unless kNone.
Value loss_gradient(const Value& grad, int64_t reduction, int64_t elements);

}  // namespace torch_tpu::ops

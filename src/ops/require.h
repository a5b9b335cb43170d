// Refusals that torch's own kernels make and its Meta kernels do not.
#pragma once

#include <string_view>

#include "ops/op.h"

namespace torch_tpu::ops {

/// NotImplementedError unless x is a real floating-point tensor, worded as ATen's dispatch macros do:
/// "mse_loss" not implemented for 'Long'.
void require_floating(const Lowering& op, const Value& x, std::string_view kernel);
/// The same for complex tensors, which have no order.
void require_ordered(const Lowering& op, const Value& x, std::string_view kernel);
/// IndexError where `dim` of x has no element to choose.
void require_elements(const Lowering& op, const Value& x, int64_t dim, std::string_view kernel);

}  // namespace torch_tpu::ops

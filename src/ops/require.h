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

/// Checks, when the program runs, that the elements of `index` are in [0, size), or in [-size, size) if
/// `wraps`: "index 7 is out of bounds for dimension `dim` with size `size`".
void check_indices(Lowering& op, const Value& index, int64_t dim, int64_t size, bool wraps = false,
                   Code code = Code::kIndexError);
/// The same bounds with wording of one's own; "{}" stands for the bad index.
void check_range(Lowering& op, const Value& index, int64_t low, int64_t high, Code code,
                 const std::string& message);
/// Checks indices into all the elements of a tensor, which may count from the end.
void check_flat_indices(Lowering& op, const Value& index, int64_t elements);
/// Checks, when the program runs, that no element of an integer divisor is zero, as the CPU does.
void check_divisor(Lowering& op, const Value& divisor);
/// Checks, when the program runs, that all elements are in [0, 1]; NaN is not. A RuntimeError.
void check_unit_interval(Lowering& op, const Value& x, const std::string& message);

}  // namespace torch_tpu::ops

// Parts of a host kernel that torch computes: each on the thread it is given to, without threads of torch's
// own.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "pjrt/host_kernel.h"

namespace torch_tpu {

/// A CPU tensor over the array, which stays where it is.
at::Tensor tensor_over(const pjrt::HostArray& array);

/// Divides 0 … size - 1 into about `wanted` parts, all but the last of a multiple of `step`, and calls
/// part(begin, count) for each on threads of the plugin, in inference mode. What a part throws is thrown.
Status run_torch_parts(const pjrt::HostCall& call, int64_t size, int64_t wanted, int64_t step,
                       const std::function<void(int64_t, int64_t)>& part);

}  // namespace torch_tpu

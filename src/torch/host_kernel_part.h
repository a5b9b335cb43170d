// Parts of a host kernel that torch computes: each on the thread it is given to, without threads of torch's
// own.
#pragma once

#include <cstdint>
#include <functional>

#include "pjrt/host_kernel.h"

namespace torch_tpu {

/// Calls `part` with 0 … count - 1 on threads of the plugin, in inference mode. What a part throws becomes
/// the result.
Status run_torch_parts(const pjrt::HostCall& call, int64_t count, const std::function<void(int64_t)>& part);

}  // namespace torch_tpu

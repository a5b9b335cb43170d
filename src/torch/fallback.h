// What happens to an operator without a kernel: an error that names it or, where TORCH_TPU_FALLBACK
// allows it, the CPU with one warning per operator.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace torch_tpu {
void set_fallback_allowed(bool allowed);
bool fallback_allowed();
/// Refuses compressed sparse tensors where ATen's kernel for all backends would take them for dense ones.
void refuse_compressed(const c10::OperatorHandle& op);
}  // namespace torch_tpu

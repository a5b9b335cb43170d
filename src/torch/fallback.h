// What happens to an operator without a kernel: an error that names it or, where TORCH_TPU_FALLBACK
// allows it, the CPU with one warning per operator.
#pragma once

namespace torch_tpu {
void set_fallback_allowed(bool allowed);
bool fallback_allowed();
}  // namespace torch_tpu

// Kernels without a stack for the commonest schemas: arguments are lent, not copied. Copying a tensor that
// only Python holds takes the interpreter's lock, which costs more than recording the call.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>

#include "torch/binding.h"

namespace torch_tpu {

struct UnboxedKernel {
  c10::KernelFunction function;
  c10::impl::CppSignature signature;
};

/// The kernel of `binding`, or nothing where its schema is not among them.
std::optional<UnboxedKernel> unboxed_kernel(const Binding& binding);

}  // namespace torch_tpu

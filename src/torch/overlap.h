// Refusals of arguments that share memory with what the operator writes.
#pragma once

#include "torch/binding.h"

namespace torch_tpu {

/// RuntimeError, as torch words it, where a tensor that the call writes shares memory with an input:
/// in part, or at all if the op's results read other places than they write (Traits::distinct).
void check_overlap(const Binding& binding, const c10::IValue* values);

}  // namespace torch_tpu

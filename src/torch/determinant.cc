// det and slogdet return the factors of their matrix for the backward pass, and ATen's formula reads off the
// matrix's strides what was factored: the transposed of a real contiguous matrix, else the matrix itself. The
// lowering, which sees no strides, always factors the transposed of a real matrix.
#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <torch/library.h>

#include <mutex>

#include "torch/binding.h"

namespace torch_tpu {
namespace {

const Binding& binding_of(const c10::OperatorHandle& handle) {
  static std::mutex mutex;
  static auto& bindings = *new std::unordered_map<c10::OperatorName, Binding>;
  const std::lock_guard lock(mutex);
  const c10::OperatorName& name = handle.operator_name();
  const auto found = bindings.find(name);
  if (found != bindings.end()) return found->second;
  return bindings.emplace(name, make_binding(handle, *ops::find_op(name.name))).first->second;
}

// A and its transposed have the same determinant.
void determinant(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  const Binding& binding = binding_of(handle);
  c10::IValue& matrix = (*stack)[stack->size() - binding.arguments.size()];
  const at::Tensor& a = matrix.toTensor();
  if (a.dim() >= 2 && !a.is_complex() && !a.is_contiguous()) matrix = a.mT().contiguous();
  run_binding(binding, *stack);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  for (const char* name : {"_linalg_det", "_linalg_det.result", "_linalg_slogdet", "_linalg_slogdet.sign"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&determinant>());
  }
}

}  // namespace torch_tpu

// Kernels of linear algebra that do more than run a lowering.
#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <ATen/ops/_linalg_check_errors_ops.h>
#include <torch/library.h>

#include <mutex>

#include "torch/binding.h"

namespace torch_tpu {
namespace {

// The binding of `handle` to the op "aten::`op`".
const Binding& binding_of(const c10::OperatorHandle& handle, const std::string& op) {
  static std::mutex mutex;
  static auto& bindings = *new std::unordered_map<c10::OperatorName, Binding>;
  const std::lock_guard lock(mutex);
  const c10::OperatorName& name = handle.operator_name();
  const auto found = bindings.find(name);
  if (found != bindings.end()) return found->second;
  return bindings.emplace(name, make_binding(handle, *ops::find_op(op))).first->second;
}

const Binding& binding_of(const c10::OperatorHandle& handle) {
  return binding_of(handle, handle.operator_name().name);
}

c10::IValue& first_argument(const c10::OperatorHandle& handle, torch::jit::Stack& stack) {
  return stack[stack.size() - handle.schema().arguments().size()];
}

// det and slogdet return the factors of their matrix for the backward pass, and ATen's formula reads off the
// matrix's strides what was factored: the transposed of a real contiguous matrix, else the matrix itself. The
// lowering, which sees no strides, always factors the transposed of a real matrix. A matrix and its
// transposed have the same determinant.
void determinant(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  c10::IValue& matrix = first_argument(handle, *stack);
  const at::Tensor& a = matrix.toTensor();
  if (a.dim() >= 2 && !a.is_complex() && !a.is_contiguous()) matrix = a.mT().contiguous();
  run_binding(binding_of(handle), *stack);
}

// The name that the errors of an operator with check_errors carry.
std::string api_name(const std::string& op) {
  if (op == "aten::linalg_inv_ex") return "linalg.inv_ex";
  if (op == "aten::linalg_cholesky_ex") return "linalg.cholesky_ex";
  const std::string prefix = op.starts_with("aten::_") ? "aten::_linalg_" : "aten::linalg_";
  return "torch.linalg." + op.substr(prefix.size());
}

// With check_errors the last result, the codes of LAPACK, is read on the host.
void factor(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  const bool is_matrix = first_argument(handle, *stack).toTensor().dim() == 2;
  const int position = *handle.schema().argumentIndexWithName("check_errors");
  c10::IValue& flag = (&first_argument(handle, *stack))[position];
  const bool checks = flag.toBool();
  flag = false;  // one program for both
  run_binding(binding_of(handle), *stack);
  if (!checks) return;
  const at::Tensor info = stack->back().toTensor();
  at::_ops::_linalg_check_errors::call(info, api_name(handle.operator_name().name), is_matrix);
}

// The operator itself is composite.
void eigenvalues_out(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  run_binding(binding_of(handle, "aten::_linalg_eigvals"), *stack);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  for (const char* name : {"_linalg_det", "_linalg_det.result", "_linalg_slogdet", "_linalg_slogdet.sign"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&determinant>());
  }
  for (const char* name :
       {"linalg_inv_ex", "linalg_inv_ex.inverse", "linalg_cholesky_ex", "linalg_cholesky_ex.L",
        "_linalg_solve_ex", "_linalg_solve_ex.result", "linalg_lu_factor_ex", "linalg_lu_factor_ex.out",
        "linalg_ldl_factor_ex", "linalg_ldl_factor_ex.out"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&factor>());
  }
  m.impl("linalg_eigvals.out", torch::CppFunction::makeFromBoxedFunction<&eigenvalues_out>());
}

}  // namespace torch_tpu

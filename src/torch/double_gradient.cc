// The gradients of decompositions divide by gaps between eigenvalues or by small singular values, which
// magnifies the rounding errors of float32 in what the forward pass returned. Where a gradient may be asked
// for, small matrices are decomposed and differentiated in double precision; results and gradients are
// rounded once.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/stack.h>
#include <ATen/ops/to_ops.h>
#include <torch/library.h>

namespace torch_tpu {
namespace {

// Larger matrices take their time for arithmetic, which TPUs have to emulate for doubles.
constexpr int64_t kMostRows = 64;

std::optional<c10::ScalarType> wider(c10::ScalarType dtype) {
  if (dtype == at::kFloat) return at::kDouble;
  if (dtype == at::kComplexFloat) return at::kComplexDouble;
  return std::nullopt;
}

at::Tensor converted(const at::Tensor& tensor, c10::ScalarType dtype) {
  return at::_ops::to_dtype::call(tensor, dtype, /*non_blocking=*/false, /*copy=*/false, std::nullopt);
}

bool is_small(const at::Tensor& tensor) {
  const int64_t rank = tensor.dim();
  return (rank < 1 || tensor.size(rank - 1) <= kMostRows) && (rank < 2 || tensor.size(rank - 2) <= kMostRows);
}

bool has_derivative(const at::Tensor& tensor) {
  return (at::GradMode::is_enabled() && tensor.requires_grad()) || tensor._fw_grad(/*level=*/0).defined();
}

bool wants_doubles(c10::ArrayRef<c10::IValue> arguments) {
  bool differentiable = false;
  for (const c10::IValue& value : arguments) {
    if (!value.isTensor() || !value.toTensor().defined()) continue;
    const at::Tensor& tensor = value.toTensor();
    if (!tensor.is_floating_point() && !tensor.is_complex()) continue;
    if (!wider(tensor.scalar_type()).has_value() || !is_small(tensor)) return false;
    differentiable = differentiable || has_derivative(tensor);
  }
  return differentiable;
}

void evaluate(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const c10::ArrayRef<c10::IValue> arguments = torch::jit::last(*stack, schema.arguments().size());
  if (!wants_doubles(arguments)) {
    // The kernel that this one stands before is registered for every backend's autograd key.
    const auto below = keys & c10::after_autograd_keyset;
    op.redispatchBoxed(below | c10::DispatchKeySet(c10::DispatchKey::AutogradOther), stack);
    return;
  }
  for (size_t i = stack->size() - arguments.size(); i < stack->size(); ++i) {
    c10::IValue& value = (*stack)[i];
    if (!value.isTensor() || !value.toTensor().defined()) continue;
    const at::Tensor& tensor = value.toTensor();
    if (const auto dtype = wider(tensor.scalar_type())) value = converted(tensor, *dtype);
  }
  op.redispatchBoxed(keys, stack);
  for (size_t i = stack->size() - schema.returns().size(); i < stack->size(); ++i) {
    const at::Tensor& tensor = (*stack)[i].toTensor();
    if (tensor.scalar_type() == at::kDouble) (*stack)[i] = converted(tensor, at::kFloat);
    if (tensor.scalar_type() == at::kComplexDouble) (*stack)[i] = converted(tensor, at::kComplexFloat);
  }
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  for (const char* name :
       {"_linalg_eigh", "_linalg_svd", "cov", "linalg_eig", "linalg_householder_product", "linalg_lstsq"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&evaluate>());
  }
}

}  // namespace torch_tpu

#include "torch/meta.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>

#include "torch/record.h"

namespace torch_tpu {
namespace {

at::Tensor to_meta(const at::Tensor& tensor, bool is_out) {
  // 0-dim CPU tensors stay: promotion wants to see that they are numbers.
  if (!tensor.defined() || !is_tpu(tensor)) return tensor;
  if (is_out) return at::detail::empty_strided_meta({0}, {1}, tensor.scalar_type());
  at::Tensor copy = at::detail::empty_strided_meta(tensor.sizes(), tensor.strides(), tensor.scalar_type());
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) copy.unsafeGetTensorImpl()->set_wrapped_number(true);
  return copy;
}

c10::IValue to_meta(const c10::IValue& value, const Argument& argument) {
  if (argument.kind == ArgKind::kGenerator) return {};
  if (value.isDevice()) return c10::Device(c10::kMeta);
  if (value.isTensor()) return to_meta(value.toTensor(), argument.is_out);
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(to_meta(tensor, argument.is_out));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const c10::IValue& element : value.toListRef()) {
      list.push_back(element.isNone() ? std::optional<at::Tensor>() : to_meta(element.toTensor(), false));
    }
    return list;
  }
  return value;
}

void append(std::vector<MetaResult>& results, const c10::IValue& value) {
  if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) append(results, element);
    return;
  }
  MetaResult& result = results.emplace_back();
  if (!value.isTensor() || !value.toTensor().defined()) return;
  const at::Tensor& tensor = value.toTensor();
  result.defined = true;
  result.dtype = tensor.scalar_type();
  result.sizes = tensor.sizes().vec();
  result.strides = tensor.strides().vec();
}

}  // namespace

std::optional<std::vector<MetaResult>> run_meta(const Binding& binding, const c10::IValue* values) {
  if (!binding.has_meta) return std::nullopt;
  torch::jit::Stack stack;
  for (size_t i = 0; i < binding.arguments.size(); ++i) {
    stack.push_back(to_meta(values[i], binding.arguments[i]));
  }
  try {
    binding.handle.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &stack);
  } catch (const c10::NotImplementedError&) {
    binding.has_meta = false;  // a composite kernel that only raises
    return std::nullopt;
  }
  std::vector<MetaResult> results;
  for (const c10::IValue& value : stack) append(results, value);
  return results;
}

}  // namespace torch_tpu

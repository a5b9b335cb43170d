#include "torch/meta.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>

#include <exception>
#include <functional>

#include "torch/copy.h"
#include "torch/dtype.h"
#include "torch/record.h"

namespace torch_tpu {
namespace {

/// What stands for our tensors in a call of another device's kernel.
struct Substitute {
  c10::Device device;
  std::function<at::Tensor(const at::Tensor&, bool is_out)> tensor;
  c10::IValue generator;
};

at::Tensor replaced(const at::Tensor& tensor, bool is_out, const Substitute& substitute) {
  // 0-dim CPU tensors stay: promotion wants to see that they are numbers.
  if (!tensor.defined() || !is_tpu(tensor)) return tensor;
  at::Tensor copy = substitute.tensor(tensor, is_out);
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) copy.unsafeGetTensorImpl()->set_wrapped_number(true);
  return copy;
}

c10::IValue replaced(const c10::IValue& value, const Argument& argument, const Substitute& substitute) {
  if (argument.kind == ArgKind::kGenerator) return substitute.generator;
  if (value.isDevice()) return substitute.device;
  if (value.isTensor()) return replaced(value.toTensor(), argument.is_out, substitute);
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) {
      list.push_back(replaced(tensor, argument.is_out, substitute));
    }
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const c10::IValue& element : value.toListRef()) {
      list.push_back(element.isNone() ? std::optional<at::Tensor>()
                                      : replaced(element.toTensor(), false, substitute));
    }
    return list;
  }
  return value;
}

torch::jit::Stack replaced(const Binding& binding, size_t count, const c10::IValue* values,
                           const Substitute& substitute) {
  torch::jit::Stack stack;
  for (size_t i = 0; i < count; ++i) {
    stack.push_back(replaced(values[i], binding.arguments[i], substitute));
  }
  return stack;
}

at::Tensor meta_copy(const at::Tensor& tensor, bool is_out) {
  if (is_out) return at::detail::empty_strided_meta({0}, {1}, tensor.scalar_type());
  return at::detail::empty_strided_meta(tensor.sizes(), tensor.strides(), tensor.scalar_type());
}

/// A CPU tensor with all elements equal: a large one in the memory of one element, unless it is written.
at::Tensor filled(const at::Tensor& like, int number, bool is_written) {
  constexpr int64_t kMostOwnElements = 1 << 14;
  const bool is_whole = is_written || like.numel() <= kMostOwnElements;
  at::Tensor elements =
      is_whole ? empty_cpu(like.sizes(), like.scalar_type()) : empty_cpu({1}, like.scalar_type());
  elements.fill_(number);
  return is_whole ? elements : elements.as_strided(like.sizes(), std::vector<int64_t>(like.dim(), 0));
}

// Larger calls are not repeated on the CPU only to learn what it says.
constexpr int64_t kAskableElements = int64_t{1} << 26;

int64_t element_count(const Binding& binding, const c10::IValue* values) {
  int64_t count = 0;
  for (size_t i = 0; i < binding.arguments.size(); ++i) {
    if (values[i].isTensor() && values[i].toTensor().defined()) count += values[i].toTensor().numel();
    if (!values[i].isTensorList()) continue;
    for (const at::Tensor& element : values[i].toTensorVector()) count += element.numel();
  }
  return count;
}

/// The exception that the CPU kernel raises on arguments of these shapes and dtypes, filled with `number`.
std::exception_ptr cpu_refusal(const Binding& binding, const c10::IValue* values, int number) {
  const bool in_place = !binding.writes_before.empty() && !binding.has_out();
  const auto stand_in = [&](const at::Tensor& tensor, bool is_out) -> at::Tensor {
    return is_out ? empty_cpu({0}, tensor.scalar_type()) : filled(tensor, number, in_place);
  };
  // A generator of its own: the default one is the user's.
  const Substitute substitute{c10::kCPU, stand_in, at::detail::createCPUGenerator()};
  torch::jit::Stack stack = replaced(binding, binding.arguments.size(), values, substitute);
  try {
    binding.handle.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
  } catch (const c10::LinAlgError&) {
    return nullptr;  // about the numbers
  } catch (const c10::Error& error) {
    // A fault of ATen's is no refusal: it is met because the stand-ins are not the arguments.
    const bool is_fault = error.msg().find("INTERNAL ASSERT FAILED") != std::string::npos;
    return is_fault ? nullptr : std::current_exception();
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
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

bool has_other_dtypes(const Binding& binding, const c10::IValue* values, const ops::Call& call) {
  size_t output = 0;
  const auto differs = [&](const at::Tensor& out) {
    return output < call.outputs.size() && out.defined() &&
           to_hlo(out.scalar_type()) != call.outputs[output++].dtype;
  };
  for (const int position : binding.writes_before) {
    const c10::IValue& value = values[position];
    if (value.isTensor() && differs(value.toTensor())) return true;
    if (!value.isTensorList()) continue;
    for (const at::Tensor& element : value.toTensorVector()) {
      if (differs(element)) return true;
    }
  }
  return false;
}

}  // namespace

std::optional<std::vector<MetaResult>> run_meta(const Binding& binding, const c10::IValue* values) {
  if (!binding.has_meta) return std::nullopt;
  const bool resizes = binding.has_out() || binding.op->traits.resizes_self;
  const bool functional = resizes && binding.functional.has_value();
  const size_t count = functional ? static_cast<size_t>(binding.op_arguments) : binding.arguments.size();
  const c10::OperatorHandle& handle = functional ? *binding.functional : binding.handle;
  torch::jit::Stack stack = replaced(binding, count, values, {c10::kMeta, meta_copy, {}});
  try {
    handle.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &stack);
  } catch (const c10::NotImplementedError&) {
    binding.has_meta = false;  // a composite kernel that only raises
    return std::nullopt;
  }
  std::vector<MetaResult> results;
  for (const c10::IValue& value : stack) append(results, value);
  if (const int known = binding.op->traits.meta_results; known >= 0)
    results.resize(static_cast<size_t>(known));
  return results;
}

void raise_cpu_refusal(const Binding& binding, const c10::IValue* values) {
  if (element_count(binding, values) > kAskableElements) return;
  // Ones may be indices out of bounds, zeros may be divisors: what both meet is about shapes and dtypes.
  const std::exception_ptr refusal = cpu_refusal(binding, values, 0);
  if (refusal != nullptr && cpu_refusal(binding, values, 1) != nullptr) std::rethrow_exception(refusal);
}

void check_written_dtypes(const Binding& binding, const c10::IValue* values, const ops::Call& call) {
  if (has_other_dtypes(binding, values, call)) raise_cpu_refusal(binding, values);
}

}  // namespace torch_tpu

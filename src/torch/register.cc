#include "torch/register.h"

#include <torch/library.h>

#include <algorithm>
#include <unordered_map>

#include "engine/counters.h"
#include "torch/binding.h"
#include "torch/fallback.h"
#include "torch/record.h"
#include "torch/unboxed.h"

namespace torch_tpu {
namespace {

/// Whether all tensors are ours and nothing is written twice: then one call does what a loop would do.
bool acts_as_one(const Binding& binding, const c10::IValue* values) {
  std::vector<const c10::StorageImpl*> written;
  for (size_t i = 0; i < binding.arguments.size(); ++i) {
    if (binding.arguments[i].kind != ArgKind::kTensorList) continue;
    const bool is_written = std::count(binding.writes_before.begin(), binding.writes_before.end(), i) > 0;
    for (const c10::IValue& element : values[i].toListRef()) {
      const at::Tensor& tensor = element.toTensor();
      if (!is_tpu(tensor)) return false;
      if (is_written) written.push_back(tensor.storage().unsafeGetStorageImpl());
    }
  }
  std::sort(written.begin(), written.end());
  return std::adjacent_find(written.begin(), written.end()) == written.end();
}

struct Kernel final : c10::OperatorKernel {
  explicit Kernel(Binding binding) : binding(std::move(binding)) {}
  void operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet, torch::jit::Stack* stack) {
    if (binding.is_foreach && !acts_as_one(binding, &*(stack->end() - binding.arguments.size()))) {
      // ATen's loop over the elements, which is what Meta tensors get.
      handle.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), stack);
    } else {
      run_binding(binding, *stack);
    }
  }
  const Binding binding;
};

std::vector<std::string>& names() {
  static std::vector<std::string>& instance = *new std::vector<std::string>;
  return instance;
}

using OverloadsByName = std::unordered_map<std::string, std::vector<c10::OperatorName>>;

OverloadsByName aten_overloads() {
  OverloadsByName overloads;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.name.rfind("aten::", 0) == 0) overloads[name.name].push_back(name);
  }
  return overloads;
}

void bind(torch::Library& library, const c10::OperatorHandle& handle, const ops::Op& op,
          const OverloadsByName& overloads) {
  // torch.library users may have been here first, and kernels.cc has its own.
  if (handle.hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1)) return;
  const c10::OperatorName& name = handle.operator_name();
  std::string text = name.name;
  if (!name.overload_name.empty()) text += "." + name.overload_name;
  Binding binding = make_binding(handle, op);
  binding.has_in_place = overloads.contains(name.name + "_");
  if (auto kernel = unboxed_kernel(binding)) {
    static auto& registrations = *new std::vector<c10::RegistrationHandleRAII>;
    registrations.push_back(c10::Dispatcher::singleton().registerImpl(
        name, c10::DispatchKey::PrivateUse1, std::move(kernel->function), kernel->signature, nullptr,
        "torch_tpu"));
  } else {
    library.impl(text.c_str(),
                 torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Kernel>(std::move(binding))));
  }
  names().push_back(std::move(text));
  refuse_compressed(handle);
}

}  // namespace

void register_kernels() {
  static torch::Library& library =
      *new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  for (const std::string& name : ops::duplicate_ops())
    TORCH_CHECK(false, "torch_tpu declares ", name, " twice");
  const OverloadsByName overloads = aten_overloads();
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const ops::Op* op : ops::all_ops()) {
    if (op->name.rfind("aten::", 0) != 0) continue;
    const auto own = own_operator(*op);
    TORCH_CHECK(own.has_value(), "torch_tpu declares ", op->name, ", which this torch does not have");
    const std::string& base = own->operator_name().name;
    bind(library, *own, *op, overloads);
    // "normal_functional" is the functional form of "normal_".
    const std::string_view suffix = "_functional";
    const std::string stem = base.ends_with(suffix) ? base.substr(0, base.size() - suffix.size()) : base;
    for (const std::string& candidate : {base, stem + "_"}) {
      const auto found = overloads.find(candidate);
      if (found == overloads.end()) continue;
      for (const c10::OperatorName& name : found->second) {
        const auto handle = dispatcher.findSchema(name);
        if (!handle.has_value() || !handle->schema().is_mutable() || name == own->operator_name()) continue;
        if (is_variant(own->schema(), handle->schema())) bind(library, *handle, *op, overloads);
      }
    }
  }
}

std::vector<std::string> registered_operators() { return names(); }

}  // namespace torch_tpu

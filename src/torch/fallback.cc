#include "torch/fallback.h"

#include <ATen/native/CPUFallback.h>
#include <torch/library.h>

#include <atomic>
#include <mutex>
#include <unordered_set>

#include "base/env.h"
#include "engine/counters.h"

namespace torch_tpu {
namespace {

std::atomic<bool>& allowed_storage() {
  static std::atomic<bool> instance = env::flag(env::kFallback);
  return instance;
}

void warn_once(const std::string& name) {
  static std::mutex mutex;
  static auto& seen = *new std::unordered_set<std::string>;
  const std::lock_guard lock(mutex);
  if (seen.insert(name).second) {
    TORCH_WARN("The operator '", name, "' has no kernel for tpu and runs on the CPU, with copies both ways.");
  }
}

void fall_back(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const std::string name = c10::toString(op.operator_name());
  TORCH_CHECK_NOT_IMPLEMENTED(
      fallback_allowed(), "The operator '", name,
      "' is not implemented for device tpu. Set TORCH_TPU_FALLBACK=1 to run such operators on the CPU.");
  warn_once(name);
  ++engine::counters().fallbacks;
  at::native::cpu_fallback(op, stack, /*error_on_views=*/true);
}

// at::native::cpu_fallback knows dense tensors only.
void refuse(const c10::OperatorHandle& op, torch::jit::Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "The operator '", op.operator_name(),
                              "' is not implemented for sparse tensors on device tpu.");
}

}  // namespace

bool fallback_allowed() { return allowed_storage(); }
void set_fallback_allowed(bool allowed) { allowed_storage() = allowed; }

void refuse_compressed(const c10::OperatorHandle& op) {
  constexpr auto kKey = c10::DispatchKey::SparseCsrPrivateUse1;
  static torch::Library& library =
      *new torch::Library(torch::Library::IMPL, "aten", kKey, __FILE__, __LINE__);
  const bool takes_all = op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional);
  if (!takes_all || op.hasKernelForDispatchKey(kKey)) return;
  // Those kernels call the out= form, which may be one of ours.
  std::string name = op.operator_name().name;
  if (name.ends_with('_')) name.pop_back();
  const auto out = c10::Dispatcher::singleton().findSchema({name, "out"});
  if (out.has_value() && out->hasKernelForDispatchKey(kKey)) return;
  library.impl(c10::toString(op.operator_name()).c_str(),
               torch::CppFunction::makeFromBoxedFunction<&refuse>());
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fall_back>()); }

TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse>());
}
TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse>());
}

}  // namespace torch_tpu

// Functions of this process that programs on the CPU platform call: what XLA:CPU lacks, or does slowly.
//
// A program names a kernel in a stablehlo.custom_call with api_version 4; its attributes are integers.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "hlo/types.h"
#include "pjrt/api.h"
#include "pjrt/xla_ffi_c_api.h"

namespace torch_tpu::pjrt {

/// Row-major memory of a call, valid until the kernel returns.
struct HostArray {
  hlo::Type type;
  void* data;
};

/// One execution of a custom call.
class HostCall {
 public:
  explicit HostCall(const XLA_FFI_CallFrame& frame);

  const std::vector<HostArray>& inputs() const { return inputs_; }
  const std::vector<HostArray>& results() const { return results_; }
  /// The attribute of that name; 0 where there is none.
  int64_t attribute(std::string_view name) const;

  /// How many threads of the plugin may help with this call; at least 1.
  int64_t threads() const;
  /// Calls `part` with 0 … count - 1, some of them on other threads, and returns when all have returned.
  /// `part` must not throw.
  void run_parts(int64_t count, const std::function<void(int64_t)>& part) const;

 private:
  const XLA_FFI_CallFrame& frame_;
  std::vector<HostArray> inputs_;
  std::vector<HostArray> results_;
};

/// Fills the results. Runs on any thread, several at once; what it throws becomes the program's error.
using HostKernel = Status (*)(const HostCall&);

/// What the plugin calls: answers questions about versions, then runs `kernel`.
XLA_FFI_Error* run_host_kernel(HostKernel kernel, XLA_FFI_CallFrame* frame);

template <HostKernel kernel>
XLA_FFI_Error* host_kernel_handler(XLA_FFI_CallFrame* frame) {
  return run_host_kernel(kernel, frame);
}

/// Offers `handler`, a host_kernel_handler, to all plugins under `name`, which must outlive the process.
/// Before the first client is created.
void add_host_kernel(std::string_view name, XLA_FFI_Handler* handler);

/// Registers all kernels with a plugin of the CPU platform. False where there are none, or the plugin takes
/// none: its programs must do without.
bool register_host_kernels(const Api& api);

}  // namespace torch_tpu::pjrt

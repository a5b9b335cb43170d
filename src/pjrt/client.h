// A client of one plugin: its devices, and the way to make buffers and executables.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "hlo/types.h"
#include "pjrt/api.h"
#include "pjrt/buffer.h"
#include "pjrt/compile_options.h"
#include "pjrt/executable.h"

namespace torch_tpu::pjrt {

/// True in a child process forked after a client was created: the plugin's threads are missing there
/// and most calls would hang, so everything below refuses with kUnavailable.
bool forked_after_use();
/// That refusal, or success.
Status check_not_forked();

enum class Platform { kCpu, kTpu, kOther };

/// One addressable device.
struct Device {
  PJRT_Device* handle = nullptr;
  int local_index = 0;       // position among the client's addressable devices: the index of "tpu:N"
  int64_t id = 0;            // the plugin's own id
  std::string kind;          // "cpu", "TPU v5e", ...
  int64_t memory_bytes = 0;  // capacity, 0 when unknown; on CPU the machine's memory, and enforced
};

/// Immutable after creation; safe to use from any thread. Lives as long as the buffers and
/// executables made from it (they hold a shared pointer).
class Client : public std::enable_shared_from_this<Client> {
 public:
  /// Creates a client. On XLA:CPU: `cpu_devices` devices, asynchronous=false; options that an older
  /// plugin refuses are dropped and tried again.
  static Result<std::shared_ptr<Client>> create(std::shared_ptr<const Api> api, int cpu_devices);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  const Api& api() const { return *api_; }
  Platform platform() const { return platform_; }
  const std::string& platform_name() const { return platform_name_; }
  const std::vector<Device>& devices() const { return devices_; }
  /// Whether programs may call the host kernels (pjrt/host_kernel.h).
  bool has_host_kernels() const { return has_host_kernels_; }

  /// Copies `bytes()` of row-major host memory to device `device_index`; the memory may be reused
  /// on return. `type` must be valid: an unknown dtype or negative dimension is refused here,
  /// because the plugin would abort.
  Result<std::shared_ptr<Buffer>> copy_to_device(const void* data, const hlo::Type& type,
                                                 int device_index) const;

  /// A value of which only the type is known.
  std::shared_ptr<Buffer> buffer_without_content(const hlo::Type& type, int device_index) const;

  /// Lends 64-byte aligned host memory to the device without a copy (CPU platform only; other
  /// platforms and unaligned memory copy). The memory must stay unchanged until `release` is
  /// called: exactly once, on any thread, perhaps before this returns, and also when this fails.
  Result<std::shared_ptr<Buffer>> lend_to_device(const void* data, const hlo::Type& type, int device_index,
                                                 std::function<void()> release) const;

  /// Compiles StableHLO text (a module with @main) for one device; the executable runs on any
  /// device of the client. Compile options that the plugin does not know are left out.
  Result<std::shared_ptr<Executable>> compile(const std::string& stablehlo,
                                              const CompileOptions& options) const;

  /// Loads what Executable::serialize wrote with the same plugin. The bytes must be trusted.
  Result<std::shared_ptr<Executable>> load(const std::string& serialized) const;

 private:
  friend class Buffer;
  friend class Executable;
  Client(std::shared_ptr<const Api> api, PJRT_Client* handle) : api_(std::move(api)), handle_(handle) {}
  Status read_devices();
  /// Refuses an index without a device.
  Status check_device(int device_index) const;
  /// On CPU, where nothing else stops a process before the kernel kills it: refuses `bytes` more
  /// than the capacity of the device.
  Status check_memory(int64_t bytes, int device_index) const;
  /// A copy of the executable without the options it was compiled with, or itself.
  std::shared_ptr<Executable> without_options(std::shared_ptr<Executable> executable) const;
  Result<PJRT_Client_BufferFromHostBuffer_Args> transfer(const void* data, const hlo::Type& type,
                                                         int device_index,
                                                         PJRT_HostBufferSemantics semantics) const;
  Result<PJRT_LoadedExecutable*> compile_once(const std::string& stablehlo, const std::string& options) const;
  Result<PJRT_LoadedExecutable*> compile_by_policy(const std::string& stablehlo,
                                                   const CompileOptions& options) const;
  void learn_debug_options() const;

  std::shared_ptr<const Api> api_;
  PJRT_Client* handle_;
  Platform platform_ = Platform::kOther;
  std::string platform_name_;
  std::vector<Device> devices_;
  bool has_host_kernels_ = false;
  mutable CompilePolicy compile_policy_;
};

}  // namespace torch_tpu::pjrt

// A device array owned by the plugin.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/status.h"
#include "hlo/types.h"
#include "pjrt/api.h"

namespace torch_tpu::pjrt {

class Client;

/// Bytes held by live Buffers of one device, kept by the Buffers themselves. Thread-safe.
struct MemoryStatistics {
  std::atomic<int64_t> live_bytes{0};
  std::atomic<int64_t> peak_bytes{0};
  std::atomic<int64_t> live_buffers{0};
  std::atomic<int64_t> allocations{0};
};

/// The statistics of device `device_index` of the process (0 <= index < kMaxDevices).
MemoryStatistics& memory_statistics(int device_index);
inline constexpr int kMaxDevices = 256;

/// The plugin's name of an element type and back; kInvalid on either side where there is none.
PJRT_Buffer_Type element_type(hlo::DType dtype);
hlo::DType dtype_of(PJRT_Buffer_Type type);

/// Owns one PJRT_Buffer and destroys it. Handles are shared between threads; the content is
/// immutable once ready, except that a donated buffer is consumed by the execution.
class Buffer {
 public:
  /// Takes ownership of `handle`. Null: a buffer without content, of which a dry run knows the type only;
  /// whatever asks for its content fails.
  Buffer(std::shared_ptr<const Client> client, PJRT_Buffer* handle, hlo::Type type, int device_index);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  PJRT_Buffer* handle() const { return handle_; }
  const hlo::Type& type() const { return type_; }
  int device_index() const { return device_index_; }
  bool has_content() const { return handle_ != nullptr; }
  const Client& client() const { return *client_; }

  /// Blocks until the content is computed; the error of the computation if it failed.
  Status await() const;
  /// True when the plugin no longer holds the content. Asks the plugin.
  bool is_deleted() const;
  /// Waits, then copies the row-major content to `destination` (type().bytes() of it). On the CPU
  /// platform by pointer, without a thread hand-off.
  Status copy_to_host(void* destination) const;
  /// The address of ready content on the CPU platform (row-major), null elsewhere. Valid while this
  /// Buffer lives and is not donated.
  Result<const void*> host_pointer() const;
  /// A copy with other dimensions, as many: elements at the same indices, zeros where this has none. On the
  /// CPU platform only; waits.
  Result<std::shared_ptr<Buffer>> resized(const hlo::Type& type) const;
  /// A copy on device `device_index` of the same client.
  Result<std::shared_ptr<Buffer>> copy_to_device(int device_index) const;
  /// The plugin consumed the content (donation): this object now only frees the handle and no
  /// longer counts as live memory.
  void mark_donated();
  bool is_donated() const { return donated_.load(std::memory_order_relaxed); }

 private:
  std::shared_ptr<const Client> client_;
  PJRT_Buffer* handle_;
  hlo::Type type_;
  int device_index_;
  std::atomic<bool> donated_{false};
};

}  // namespace torch_tpu::pjrt

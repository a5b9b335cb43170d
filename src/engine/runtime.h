// The process-wide runtime: one plugin, one client, one queue per device. Created at first use, so
// that importing the package opens nothing.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "cache/disk_cache.h"
#include "cache/program_cache.h"
#include "engine/queue.h"
#include "pjrt/client.h"

namespace torch_tpu::engine {

/// Where plugins may be found; set by Python before the first use.
struct RuntimeOptions {
  std::vector<std::string> cpu_plugins;  // XLA:CPU libraries, best first
  std::string libtpu;                    // libtpu.so, or empty
};

class Runtime {
 public:
  static void configure(RuntimeOptions options);
  /// The runtime, created on the first call; later calls try again after a failure. Thread-safe.
  static Result<Runtime*> get();
  static bool is_created();
  /// Waits for the programs in flight on all devices, so that counts and statistics include them.
  static void await_programs();
  /// Devices that a runtime would show, without creating one; 0 when no plugin is found.
  static int available_devices();

  pjrt::Client& client() { return *client_; }
  int device_count() const { return static_cast<int>(queues_.size()); }
  Queue& queue(int device_index) { return *queues_[device_index]; }
  cache::ProgramCache& programs() { return programs_; }
  /// Null when programs are not kept on disk.
  cache::DiskCache* disk() { return disk_.get(); }

 private:
  Runtime(std::shared_ptr<pjrt::Client> client);

  std::shared_ptr<pjrt::Client> client_;
  cache::ProgramCache programs_;
  std::unique_ptr<cache::DiskCache> disk_;
  std::vector<std::unique_ptr<Queue>> queues_;
};

}  // namespace torch_tpu::engine

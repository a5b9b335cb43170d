#include "engine/runtime.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <mutex>

#include "base/env.h"
#include "pjrt/discovery.h"

namespace torch_tpu::engine {
namespace {

// A loaded program of XLA:CPU maps up to 136 regions of memory (measured), and the kernel allows each process
// so many; past them allocations fail.
constexpr int64_t kRegionsPerProgram = 136;
constexpr int64_t kUsualRegionLimit = 65530;
constexpr int64_t kMostPrograms = 8192;

size_t program_capacity() {
  int64_t regions = kUsualRegionLimit;
  std::ifstream("/proc/sys/vm/max_map_count") >> regions;
  return static_cast<size_t>(std::clamp<int64_t>(regions / kRegionsPerProgram, 64, kMostPrograms));
}

std::mutex creation_mutex;
std::atomic<Runtime*> current{nullptr};

RuntimeOptions& options() {
  static RuntimeOptions& instance = *new RuntimeOptions;
  return instance;
}

int requested_cpu_devices() {
  const int64_t given = env::integer(env::kCpuDevices);
  const int64_t count = given > 0 ? given : env::integer(env::kLocalWorldSize);
  return static_cast<int>(std::clamp<int64_t>(count, 1, pjrt::kMaxDevices));
}

std::unique_ptr<cache::DiskCache> open_disk_cache(const pjrt::Api& plugin) {
  const std::filesystem::path folder = cache::default_cache_folder();
  if (folder.empty() || env::text(env::kCache) == "off") return nullptr;
  Hash128 salt = cache::machine_salt();
  salt.append(std::string_view(plugin.fingerprint()));
  return std::make_unique<cache::DiskCache>(folder, env::integer(env::kCacheBytes), salt);
}

}  // namespace

Runtime::Runtime(std::shared_ptr<pjrt::Client> client)
    : client_(std::move(client)), programs_(program_capacity()), disk_(open_disk_cache(client_->api())) {
  for (const pjrt::Device& device : client_->devices()) {
    queues_.push_back(std::make_unique<Queue>(client_, programs_, device.local_index, disk_.get()));
  }
}

void Runtime::configure(RuntimeOptions given) {
  const std::lock_guard lock(creation_mutex);
  options() = std::move(given);
}

void Runtime::await_programs() {
  if (Runtime* runtime = current.load()) {
    for (const auto& queue : runtime->queues_) queue->await_programs();
  }
}

bool Runtime::is_created() { return current.load() != nullptr; }

int Runtime::available_devices() {
  if (Runtime* runtime = current.load()) return runtime->device_count();
  const std::lock_guard lock(creation_mutex);
  if (!pjrt::find_plugin(options().cpu_plugins, options().libtpu).ok()) return 0;
  return requested_cpu_devices();
}

Result<Runtime*> Runtime::get() {
  if (pjrt::forked_after_use()) {
    return Status(
        Code::kUnavailable,
        "Cannot re-initialize the TPU runtime in a forked subprocess. To use it with multiprocessing, "
        "you must use the 'spawn' start method");
  }
  if (Runtime* runtime = current.load()) return runtime;
  const std::lock_guard lock(creation_mutex);
  if (Runtime* runtime = current.load()) return runtime;
  ASSIGN_OR_RETURN(const std::string path, pjrt::find_plugin(options().cpu_plugins, options().libtpu));
  ASSIGN_OR_RETURN(auto api, pjrt::Api::load(path));
  ASSIGN_OR_RETURN(auto client, pjrt::Client::create(std::move(api), requested_cpu_devices()));
  // Never destroyed: tensors in static Python state may outlive any order we could choose.
  current = new Runtime(std::move(client));
  // Before the plugin's own static state goes.
  std::atexit([] {
    for (const auto& queue : current.load()->queues_) queue->stop_worker();
  });
  return current.load();
}

}  // namespace torch_tpu::engine

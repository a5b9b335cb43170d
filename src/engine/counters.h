// What the engine did so far, as exact counts: the basis of torch.tpu.counters() and of tests.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace torch_tpu::engine {

/// Process-wide, monotonic, thread-safe.
struct Counters {
  std::atomic<int64_t> ops_recorded{0};     // calls that entered a graph
  std::atomic<int64_t> signatures{0};       // distinct calls whose types were inferred
  std::atomic<int64_t> programs_run{0};     // executions
  std::atomic<int64_t> compiles{0};         // programs compiled
  std::atomic<int64_t> cache_hits{0};       // programs found in the cache
  std::atomic<int64_t> disk_hits{0};        // programs loaded from the disk cache
  std::atomic<int64_t> modules_emitted{0};  // programs written as StableHLO
  std::atomic<int64_t> host_reads{0};       // device values read by the host
  std::atomic<int64_t> host_to_device_bytes{0};
  std::atomic<int64_t> device_to_host_bytes{0};
  std::atomic<int64_t> donated_buffers{0};
  std::atomic<int64_t> fallbacks{0};  // operators run on the CPU instead

  std::vector<std::pair<std::string_view, int64_t>> snapshot() const {
    return {{"ops_recorded", ops_recorded},
            {"signatures", signatures},
            {"programs_run", programs_run},
            {"compiles", compiles},
            {"cache_hits", cache_hits},
            {"disk_hits", disk_hits},
            {"modules_emitted", modules_emitted},
            {"host_reads", host_reads},
            {"host_to_device_bytes", host_to_device_bytes},
            {"device_to_host_bytes", device_to_host_bytes},
            {"donated_buffers", donated_buffers},
            {"fallbacks", fallbacks}};
  }
};

inline Counters& counters() {
  static Counters instance;
  return instance;
}

}  // namespace torch_tpu::engine

#include "base/heap.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <future>
#include <limits>
#include <memory>
#include <utility>
#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace torch_tpu::heap {
namespace {

// Whether the calling thread takes its blocks from the main arena, as the word before each of them tells.
bool uses_main_arena() {
#ifdef __GLIBC__
  constexpr size_t kOtherArena = 4;
  constexpr size_t kBlockBytes = 4096;
  const std::unique_ptr<void, decltype(&std::free)> block(std::malloc(kBlockBytes), &std::free);
  if (block == nullptr) return true;
  size_t header;
  const auto address = reinterpret_cast<uintptr_t>(block.get()) - sizeof header;
  std::memcpy(&header, reinterpret_cast<const void*>(address), sizeof header);
  return (header & kOtherArena) == 0;
#else
  return true;
#endif
}

/// A thread that waits for being chosen, or for the end of this object.
struct Candidate {
  std::promise<bool> chosen;
  std::thread thread;

  ~Candidate() {
    if (!thread.joinable()) return;
    chosen.set_value(false);
    thread.join();
  }
};

}  // namespace

void keep_freed([[maybe_unused]] int64_t bytes) {
#ifdef __GLIBC__
  if (bytes <= 0) return;
  const auto most = static_cast<int64_t>(std::numeric_limits<int>::max());
  mallopt(M_TRIM_THRESHOLD, static_cast<int>(std::min(bytes, most)));
  mallopt(M_MMAP_MAX, 0);   // blocks of their own would go back one by one
  mallopt(M_ARENA_MAX, 1);  // and so would the heaps of other arenas
#endif
}

std::thread start_thread(std::function<void()> work) {
  // Arenas of ended threads are handed out first; who got one holds it until somebody gets the main arena.
  constexpr size_t kMostCandidates = 16;
  std::deque<Candidate> candidates;
  bool found = false;
  while (!found && candidates.size() < kMostCandidates) {
    std::promise<bool> promise;
    std::future<bool> uses_main = promise.get_future();
    Candidate& candidate = candidates.emplace_back();
    candidate.thread =
        std::thread([work, promise = std::move(promise), chosen = candidate.chosen.get_future()]() mutable {
          promise.set_value(uses_main_arena());
          if (chosen.get()) work();
        });
    found = uses_main.get();
  }
  candidates.back().chosen.set_value(true);
  return std::move(candidates.back().thread);
}

void release_freed() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

}  // namespace torch_tpu::heap

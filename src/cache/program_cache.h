// The memory tier of the compilation cache: program key -> loaded executable.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "base/hash.h"
#include "pjrt/executable.h"

namespace torch_tpu::cache {

/// Holds the most recently used executables. Thread-safe.
class ProgramCache {
 public:
  /// `capacity` programs are kept; a loaded executable costs about 100 kB of host memory.
  explicit ProgramCache(size_t capacity) : capacity_(capacity) {}

  /// Null on a miss.
  std::shared_ptr<pjrt::Executable> find(const Hash128& key);
  void insert(const Hash128& key, std::shared_ptr<pjrt::Executable> executable);
  void clear();
  size_t size() const;

 private:
  struct Entry {
    Hash128 key;
    std::shared_ptr<pjrt::Executable> executable;
  };
  const size_t capacity_;
  mutable std::mutex mutex_;
  std::list<Entry> by_use_;  // most recent first
  std::unordered_map<Hash128, std::list<Entry>::iterator> entries_;
};

}  // namespace torch_tpu::cache

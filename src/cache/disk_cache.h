// The disk tier of the compilation cache: a folder of serialised programs, shared by processes.
//
// A program file is a trusted executable: what is read is checked against its checksum and key before
// anybody loads it, and a folder that others may write to is not used. Writers never block each other:
// a file appears whole, by rename, or not at all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/status.h"

namespace torch_tpu::cache {

/// Counts since the process started.
struct DiskStatistics {
  int64_t hits = 0;
  int64_t misses = 0;
  int64_t read_bytes = 0;
  int64_t written_bytes = 0;
  int64_t discarded = 0;  // files that were truncated, corrupt or foreign
};

/// Thread-safe; any number of processes may use the folder at once.
class DiskCache {
 public:
  /// `salt` stands for all that must be equal for a program to be valid beside its key: the plugin, this
  /// library, the processor. The folder is created at the first insertion. Past `capacity_bytes` the
  /// files that were not used for longest go.
  DiskCache(std::filesystem::path folder, int64_t capacity_bytes, const Hash128& salt);

  const std::filesystem::path& folder() const { return folder_; }
  int64_t capacity_bytes() const { return capacity_bytes_; }

  /// The bytes that were inserted under `key`, or nothing: a damaged file is a miss, and is removed.
  std::optional<std::string> find(const Hash128& key);
  /// Keeps `program`. The Status says why it was not kept (disk full, read-only): no reason to stop.
  Status insert(const Hash128& key, std::string_view program);
  /// Forgets what could not be loaded.
  void discard(const Hash128& key);

  /// Programs and bytes in the folder now, of all users of it.
  std::pair<int64_t, int64_t> usage() const;
  /// Removes all programs of the folder, also those of other processes.
  void clear();
  DiskStatistics statistics() const;

 private:
  struct File {
    std::filesystem::path path;
    std::filesystem::file_time_type used;
    int64_t bytes;
  };
  std::filesystem::path path_of(const Hash128& key) const;
  Hash128 salted(const Hash128& key) const;
  std::vector<File> files() const;
  void evict();

  const std::filesystem::path folder_;
  const int64_t capacity_bytes_;
  const Hash128 salt_;
  mutable std::mutex mutex_;
  DiskStatistics statistics_;
  int64_t bytes_until_look_ = 0;  // that may be written before the folder's size is looked at again
};

/// TORCH_TPU_CACHE_DIR, or the user's cache folder; empty when there is none.
std::filesystem::path default_cache_folder();

/// A hash of the running library's own code (the linker's build id) and of the processor's features.
Hash128 machine_salt();

}  // namespace torch_tpu::cache

#include "cache/disk_cache.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <vector>

#include "base/env.h"

namespace torch_tpu::cache {
namespace {

namespace fs = std::filesystem;

constexpr char kMagic[8] = {'T', 'T', 'P', 'U', 'P', 'R', 'G', '1'};
constexpr std::string_view kExtension = ".program";
constexpr std::string_view kUnfinished = ".unfinished";
constexpr auto kUnfinishedLife = std::chrono::hours(1);
// Other processes write too: at least this often the folder's size is looked at.
constexpr int64_t kLookBytes = int64_t{64} << 20;

/// What stands before the program in its file.
struct Header {
  char magic[8];
  uint64_t key[2];
  uint64_t size;
  uint64_t checksum[2];
};

Header header_for(const Hash128& key, std::string_view program) {
  Hash128 checksum;
  checksum.append(program);
  Header header{};
  std::copy(std::begin(kMagic), std::end(kMagic), header.magic);
  header.key[0] = key.low;
  header.key[1] = key.high;
  header.size = program.size();
  header.checksum[0] = checksum.low;
  header.checksum[1] = checksum.high;
  return header;
}

/// Whether nobody but this user may have put files there.
bool is_private(const fs::path& folder) {
  struct stat status{};
  if (::stat(folder.c_str(), &status) != 0) return false;
  return status.st_uid == ::geteuid() && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

std::optional<std::string> contents_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return std::nullopt;
  std::string bytes(static_cast<size_t>(std::max<std::streamoff>(file.tellg(), 0)), '\0');
  file.seekg(0);
  if (!file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()))) return std::string();
  return bytes;
}

fs::path unfinished_name(const fs::path& folder) {
  static std::atomic<uint64_t> counter{0};
  std::string name = std::to_string(::getpid());
  name += "-";
  name += std::to_string(counter++);
  name += kUnfinished;
  return folder / name;
}

}  // namespace

DiskCache::DiskCache(fs::path folder, int64_t capacity_bytes, const Hash128& salt)
    : folder_(std::move(folder)), capacity_bytes_(capacity_bytes), salt_(salt) {}

Hash128 DiskCache::salted(const Hash128& key) const {
  Hash128 hash = salt_;
  hash.append(key);
  return hash;
}

fs::path DiskCache::path_of(const Hash128& key) const {
  return folder_ / (salted(key).hex() + std::string(kExtension));
}

std::optional<std::string> DiskCache::find(const Hash128& key) {
  const std::lock_guard lock(mutex_);
  const fs::path path = path_of(key);
  std::optional<std::string> bytes;
  if (is_private(folder_)) bytes = contents_of(path);
  if (!bytes) {
    ++statistics_.misses;
    return std::nullopt;
  }
  std::error_code ignored;
  if (bytes->size() >= sizeof(Header)) {
    const Header expected = header_for(salted(key), std::string_view(*bytes).substr(sizeof(Header)));
    if (std::memcmp(bytes->data(), &expected, sizeof expected) == 0) {
      fs::last_write_time(path, fs::file_time_type::clock::now(), ignored);
      ++statistics_.hits;
      statistics_.read_bytes += static_cast<int64_t>(bytes->size());
      bytes->erase(0, sizeof expected);
      return bytes;
    }
  }
  fs::remove(path, ignored);
  ++statistics_.misses;
  ++statistics_.discarded;
  return std::nullopt;
}

Status DiskCache::insert(const Hash128& key, std::string_view program) {
  const std::lock_guard lock(mutex_);
  std::error_code error;
  if (fs::create_directories(folder_, error)) fs::permissions(folder_, fs::perms::owner_all, error);
  if (!is_private(folder_)) {
    return {Code::kUnavailable,
            folder_.string() + " cannot be used: it must be this user's, and nobody else's to write"};
  }
  const fs::path unfinished = unfinished_name(folder_);
  {
    const Header header = header_for(salted(key), program);
    std::ofstream file(unfinished, std::ios::binary | std::ios::trunc);
    file.write(reinterpret_cast<const char*>(&header), sizeof header);
    file.write(program.data(), static_cast<std::streamsize>(program.size()));
    file.close();
    if (!file) {
      fs::remove(unfinished, error);
      return {Code::kUnavailable, "cannot write to " + folder_.string()};
    }
  }
  fs::rename(unfinished, path_of(key), error);
  if (error) {
    const std::string reason = error.message();
    fs::remove(unfinished, error);
    return {Code::kUnavailable, "cannot write to " + folder_.string() + ": " + reason};
  }
  const auto bytes = static_cast<int64_t>(sizeof(Header) + program.size());
  statistics_.written_bytes += bytes;
  bytes_until_look_ -= bytes;
  if (bytes_until_look_ < 0) evict();
  return {};
}

void DiskCache::discard(const Hash128& key) {
  const std::lock_guard lock(mutex_);
  std::error_code ignored;
  fs::remove(path_of(key), ignored);
  ++statistics_.discarded;
}

std::vector<DiskCache::File> DiskCache::files() const {
  std::vector<File> found;
  std::error_code error;
  for (fs::directory_iterator entry(folder_, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code gone;  // another process may remove files meanwhile
    const auto bytes = static_cast<int64_t>(entry->file_size(gone));
    const auto used = entry->last_write_time(gone);
    if (gone) continue;
    if (entry->path().extension() == kExtension) found.push_back({entry->path(), used, bytes});
    const bool abandoned = fs::file_time_type::clock::now() - used > kUnfinishedLife;
    if (entry->path().extension() == kUnfinished && abandoned) fs::remove(entry->path(), gone);
  }
  return found;
}

void DiskCache::evict() {
  std::vector<File> found = files();
  std::sort(found.begin(), found.end(), [](const File& a, const File& b) { return a.used < b.used; });
  int64_t total = 0;
  for (const File& file : found) total += file.bytes;
  std::error_code ignored;
  // Some more than needed, so that the next insertion does not have to look again.
  const int64_t target = total > capacity_bytes_ ? capacity_bytes_ - capacity_bytes_ / 10 : capacity_bytes_;
  for (const File& file : found) {
    if (total <= target) break;
    fs::remove(file.path, ignored);
    total -= file.bytes;
  }
  bytes_until_look_ = std::min(kLookBytes, capacity_bytes_ - total);
}

std::pair<int64_t, int64_t> DiskCache::usage() const {
  const std::lock_guard lock(mutex_);
  int64_t bytes = 0;
  const std::vector<File> found = files();
  for (const File& file : found) bytes += file.bytes;
  return {static_cast<int64_t>(found.size()), bytes};
}

void DiskCache::clear() {
  const std::lock_guard lock(mutex_);
  std::error_code ignored;
  for (const File& file : files()) fs::remove(file.path, ignored);
}

DiskStatistics DiskCache::statistics() const {
  const std::lock_guard lock(mutex_);
  return statistics_;
}

fs::path default_cache_folder() {
  if (const std::string given = env::text(env::kCacheFolder); !given.empty()) return given;
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != 0) {
    return fs::path(cache) / "torch_tpu";
  }
  const char* home = std::getenv("HOME");
  return home != nullptr && *home != 0 ? fs::path(home) / ".cache" / "torch_tpu" : fs::path();
}

}  // namespace torch_tpu::cache

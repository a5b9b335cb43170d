#include "cache/disk_cache.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "tests/check.h"

using namespace torch_tpu;
namespace fs = std::filesystem;

namespace {

Hash128 key(uint64_t number) {
  Hash128 hash;
  hash.append(number);
  return hash;
}

/// A folder of its own, removed at the end.
struct Folder {
  Folder() {
    std::string name = (fs::temp_directory_path() / "disk_cache_test_XXXXXX").string();
    path = mkdtemp(name.data());
    path /= "programs";
  }
  ~Folder() { fs::remove_all(path.parent_path()); }
  fs::path path;
};

std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder)) found.push_back(entry.path());
  return found;
}

TEST(finds_what_another_process_inserted) {
  const Folder folder;
  cache::DiskCache first(folder.path, 1 << 20, key(0));
  CHECK(!first.find(key(1)));
  CHECK(first.insert(key(1), "a program").ok());
  cache::DiskCache second(folder.path, 1 << 20, key(0));
  CHECK(second.find(key(1)) == std::string("a program"));
  CHECK(!second.find(key(2)));
  CHECK_EQ(second.statistics().hits, int64_t{1});
  CHECK_EQ(second.statistics().misses, int64_t{1});
}

TEST(another_salt_is_another_program) {
  const Folder folder;
  CHECK(cache::DiskCache(folder.path, 1 << 20, key(0)).insert(key(1), "a program").ok());
  CHECK(!cache::DiskCache(folder.path, 1 << 20, key(9)).find(key(1)));
}

TEST(damaged_files_are_misses) {
  const Folder folder;
  cache::DiskCache cache(folder.path, 1 << 20, key(0));
  const std::string program(1000, 'p');
  CHECK(cache.insert(key(1), program).ok());
  const fs::path path = files_in(folder.path)[0];
  std::string whole(fs::file_size(path), '\0');
  std::ifstream(path, std::ios::binary).read(whole.data(), static_cast<std::streamsize>(whole.size()));

  const auto replace = [&](const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; };
  for (const size_t size : {size_t{0}, size_t{7}, size_t{40}, whole.size() - 1}) {
    replace(whole.substr(0, size));
    CHECK(!cache.find(key(1)));
  }
  for (size_t position = 0; position < whole.size(); position += 13) {
    std::string flipped = whole;
    flipped[position] = static_cast<char>(flipped[position] ^ 16);
    replace(flipped);
    CHECK(!cache.find(key(1)));
  }
  replace(whole + "more");
  CHECK(!cache.find(key(1)));
  CHECK(!fs::exists(path));
  replace(whole);
  CHECK(cache.find(key(1)) == program);
}

TEST(a_file_under_a_foreign_name_is_a_miss) {
  const Folder folder;
  cache::DiskCache cache(folder.path, 1 << 20, key(0));
  CHECK(cache.insert(key(1), "one").ok());
  const fs::path one = files_in(folder.path)[0];
  CHECK(cache.insert(key(2), "two").ok());
  for (const fs::path& path : files_in(folder.path)) {
    if (path != one) fs::copy_file(one, path, fs::copy_options::overwrite_existing);
  }
  CHECK(!cache.find(key(2)));
}

TEST(the_least_recently_used_go_first) {
  const Folder folder;
  cache::DiskCache cache(folder.path, 10'000, key(0));
  const std::string program(2000, 'p');
  for (uint64_t number = 0; number < 4; ++number) {
    CHECK(cache.insert(key(number), program).ok());
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  CHECK(cache.find(key(0)).has_value());  // used again
  for (uint64_t number = 4; number < 6; ++number) CHECK(cache.insert(key(number), program).ok());
  CHECK(cache.usage().second <= 10'000);
  CHECK(cache.find(key(0)).has_value());
  CHECK(!cache.find(key(1)).has_value());
  CHECK(cache.find(key(5)).has_value());
}

TEST(a_folder_that_others_may_write_is_not_used) {
  const Folder folder;
  cache::DiskCache cache(folder.path, 1 << 20, key(0));
  CHECK(cache.insert(key(1), "a program").ok());
  chmod(folder.path.c_str(), 0777);
  CHECK(!cache.find(key(1)));
  CHECK(!cache.insert(key(2), "another").ok());
}

TEST(a_folder_that_cannot_be_made_is_no_error_of_ours) {
  cache::DiskCache cache("/proc/no/such/folder", 1 << 20, key(0));
  CHECK(!cache.insert(key(1), "a program").ok());
  CHECK(!cache.find(key(1)));
  CHECK_EQ(cache.usage().first, int64_t{0});
}

TEST(killed_writers_leave_nothing_that_is_read) {
  const Folder folder;
  const std::string program(1 << 20, 'p');
  for (int round = 0; round < 10; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      cache::DiskCache cache(folder.path, int64_t{1} << 30, key(0));
      for (uint64_t number = 0;; ++number) (void)cache.insert(key(number % 8), program);
    }
    usleep(static_cast<useconds_t>(2000 + 700 * round));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
  cache::DiskCache cache(folder.path, int64_t{1} << 30, key(0));
  for (uint64_t number = 0; number < 8; ++number) {
    const auto found = cache.find(key(number));
    CHECK(!found || *found == program);
  }
  CHECK_EQ(cache.statistics().discarded, int64_t{0});
}

TEST(salt_names_this_library_and_machine) {
  CHECK(cache::machine_salt() == cache::machine_salt());
  CHECK(!(cache::machine_salt() == Hash128()));
}

}  // namespace

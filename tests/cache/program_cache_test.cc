#include "cache/program_cache.h"

#include <thread>

#include "tests/pjrt/plugin_under_test.h"

using namespace torch_tpu;
using namespace torch_tpu::testing;

namespace {

constexpr char kProgram[] =
    "module { func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> { return %a : tensor<4xf32> } }";

Hash128 key(uint64_t number) {
  Hash128 hash;
  hash.append(number);
  return hash;
}

std::shared_ptr<pjrt::Executable> compiled() {
  static const auto client = make_client(fake_plugin(), 1);
  if (client.ok()) {
    if (auto executable = (*client)->compile(kProgram, {}); executable.ok()) return *executable;
  }
  std::printf("nothing can be compiled\n");
  std::exit(1);
}

TEST(finds_what_was_inserted) {
  cache::ProgramCache cache(4);
  CHECK(cache.find(key(1)) == nullptr);
  const auto one = compiled();
  const auto two = compiled();
  cache.insert(key(1), one);
  cache.insert(key(2), two);
  CHECK(cache.find(key(1)) == one);
  CHECK(cache.find(key(2)) == two);
  CHECK(cache.find(key(3)) == nullptr);
  CHECK_EQ(cache.size(), size_t{2});
}

TEST(last_insertion_counts) {
  cache::ProgramCache cache(4);
  const auto old = compiled();
  const auto young = compiled();
  cache.insert(key(1), old);
  cache.insert(key(1), young);
  CHECK(cache.find(key(1)) == young);
  CHECK_EQ(cache.size(), size_t{1});
  CHECK_EQ(old.use_count(), 1);
}

TEST(least_recently_used_leaves) {
  cache::ProgramCache cache(3);
  const auto program = compiled();
  for (uint64_t i = 0; i < 3; ++i) cache.insert(key(i), program);
  CHECK(cache.find(key(0)) != nullptr);  // now 1 is the oldest
  cache.insert(key(3), program);
  CHECK_EQ(cache.size(), size_t{3});
  CHECK(cache.find(key(1)) == nullptr);
  CHECK(cache.find(key(0)) != nullptr);
  CHECK(cache.find(key(2)) != nullptr);
  CHECK(cache.find(key(3)) != nullptr);
  CHECK_EQ(program.use_count(), 4);
}

// A program that is written again was just used.
TEST(insertion_is_a_use) {
  cache::ProgramCache cache(2);
  const auto program = compiled();
  cache.insert(key(0), program);
  cache.insert(key(1), program);
  cache.insert(key(0), program);
  cache.insert(key(2), program);
  CHECK(cache.find(key(0)) != nullptr);
  CHECK(cache.find(key(1)) == nullptr);
}

TEST(cleared) {
  cache::ProgramCache cache(3);
  const auto program = compiled();
  cache.insert(key(0), program);
  cache.clear();
  CHECK_EQ(cache.size(), size_t{0});
  CHECK(cache.find(key(0)) == nullptr);
  CHECK_EQ(program.use_count(), 1);
  cache.insert(key(0), program);
  CHECK(cache.find(key(0)) == program);
}

TEST(outlives_the_cache) {
  std::shared_ptr<pjrt::Executable> held;
  {
    cache::ProgramCache cache(1);
    cache.insert(key(0), compiled());
    held = cache.find(key(0));
    cache.insert(key(1), compiled());
  }
  CHECK(held != nullptr && held->outputs().size() == 1);
}

TEST(many_threads) {
  cache::ProgramCache cache(16);
  const auto program = compiled();
  std::vector<std::thread> threads;
  for (uint64_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (uint64_t i = 0; i < 5000; ++i) {
        const Hash128 wanted = key((i * 7 + thread) % 40);
        if (const auto found = cache.find(wanted)) {
          CHECK(found == program);
        } else {
          cache.insert(wanted, program);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK_EQ(cache.size(), size_t{16});
  CHECK_EQ(program.use_count(), 17);
}

}  // namespace

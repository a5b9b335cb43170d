#include "base/heap.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <future>

#include "tests/check.h"

using namespace torch_tpu;

namespace {

#ifdef __GLIBC__
// The word before a block tells whether it is of another arena than the main one.
bool is_of_main_arena(void* block) {
  size_t header;
  std::memcpy(&header, reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(block) - sizeof header),
              sizeof header);
  return (header & 4) == 0;
}

// Ended threads leave arenas behind, which the next thread would take.
TEST(threads_take_the_main_arena) {
  heap::keep_freed(int64_t{1} << 20);
  for (int round = 0; round < 20; ++round) {
    std::promise<bool> main;
    std::thread thread = heap::start_thread([&] {
      void* block = std::malloc(10000);
      main.set_value(is_of_main_arena(block));
      std::free(block);
    });
    CHECK(main.get_future().get());
    thread.join();
  }
}
#endif

TEST(work_runs_once) {
  int runs = 0;
  heap::start_thread([&] { ++runs; }).join();
  CHECK_EQ(runs, 1);
}

}  // namespace

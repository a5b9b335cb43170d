#include <thread>

#include "tests/engine/engine_under_test.h"

using namespace torch_tpu;
using namespace torch_tpu::testing;
using engine::Mode;

namespace {

// Before the first use of the mode.
const ScopedVariable initial_mode("TORCH_TPU_MODE", "strict");

TEST(mode_of_the_environment) {
  CHECK_EQ(engine::mode(), Mode::kStrict);
  engine::set_mode(Mode::kBlocking);
  CHECK_EQ(engine::mode(), Mode::kBlocking);
  engine::set_mode(Mode::kFused);
  CHECK_EQ(engine::mode(), Mode::kFused);
}

/// One program per op, of which each kind is compiled once.
void check_one_program_per_op(Mode mode) {
  const ScopedMode scope(mode);
  Engine engine;
  TensorPtr x = engine.four();
  const Counts counts;
  for (int i = 0; i < 6; ++i) {
    TensorPtr sum = engine.add(x, x);
    CHECK_EQ(counts.programs(), 2 * i + 1);
    x = engine.negate(sum);
    CHECK_EQ(counts.programs(), 2 * i + 2);
  }
  CHECK_EQ(counts.ops(), 12);
  CHECK_EQ(counts.compiles() + counts.hits(), 12);
  CHECK(counts.compiles() <= 4);  // with and without donation
  engine.read(x);
  CHECK(engine.queue.synchronize().ok());
  CHECK_EQ(counts.programs(), 12);
}

TEST(strict) { check_one_program_per_op(Mode::kStrict); }
TEST(blocking) { check_one_program_per_op(Mode::kBlocking); }

TEST(strict_on_an_asynchronous_platform) {
  const ScopedVariable platform("FAKE_PJRT_PLATFORM", "tpu");
  const auto client = must(make_client(fake_plugin(), 1));
  cache::ProgramCache cache(8);
  for (const Mode mode : {Mode::kFused, Mode::kStrict, Mode::kBlocking}) {
    const ScopedMode scope(mode);
    engine::Queue queue(client, cache, 0);
    const std::vector<float> data(4);
    TensorPtr x = queue.adopt(must(client->copy_to_device(data.data(), f32({4}), 0)));
    for (int i = 0; i < 5; ++i) {
      const std::vector<TensorPtr> inputs{x};
      x = must(queue.record(Engine::call("test::negate", inputs), inputs, {}))[0];
    }
    CHECK(queue.synchronize().ok());
    CHECK(queue.synchronize().ok());
    CHECK(must(queue.materialize(x))->await().ok());
  }
}

TEST(fused) {
  const ScopedMode scope(Mode::kFused);
  Engine engine;
  const Counts counts;
  const TensorPtr x = engine.negate(engine.add(engine.four(), engine.four()));
  CHECK_EQ(counts.programs(), 0);
  engine.read(x);
  CHECK_EQ(counts.programs(), 1);
}

// Pending ops of the fused mode run with the first op of another; the cut rule starts anew after it.
TEST(mode_changes) {
  const ScopedVariable window("TORCH_TPU_CUT_WINDOW", "6");
  Engine engine;
  TensorPtr x = engine.four();
  for (int turn = 0; turn < 20; ++turn) {
    const Counts counts;
    {
      const ScopedMode scope(Mode::kFused);
      for (int i = 0; i < 4; ++i) x = engine.add(x, x);
    }
    {
      const ScopedMode scope(Mode::kStrict);
      x = engine.negate(x);
      CHECK_EQ(counts.programs(), 1);
      x = engine.negate(x);
      CHECK_EQ(counts.programs(), 2);
    }
  }
  CHECK_EQ(engine.read(x).size(), size_t{4});
}

TEST(strict_failure_is_raised_by_the_op) {
  for (const Mode mode : {Mode::kStrict, Mode::kBlocking}) {
    const ScopedMode scope(mode);
    Engine engine;
    const TensorPtr x = engine.four();
    {
      const ScopedVariable fail("FAKE_PJRT_FAIL", "execute");
      CHECK_EQ(engine.try_record("test::add", {x, x}).status().code(), Code::kInternal);
    }
    CHECK(engine.try_record("test::add", {x, x}).ok());
    CHECK_EQ(engine.queue.synchronize().code(), Code::kInternal);
    CHECK(engine.queue.synchronize().ok());
  }
}

TEST(threads_in_strict_mode) {
  const ScopedMode scope(Mode::kStrict);
  Engine engine;
  const TensorPtr shared = engine.four();
  const Counts counts;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      TensorPtr x = shared;
      for (int i = 0; i < 100; ++i) x = engine.add(x, shared);
      CHECK_EQ(engine.read(x).size(), size_t{4});
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK_EQ(counts.ops(), 400);
  CHECK_EQ(counts.programs(), 400);
}

}  // namespace

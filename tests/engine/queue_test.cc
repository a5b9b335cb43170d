// On the fake plugin, whose results are zeros or copies of arguments: what is compiled, run, kept and given
// away. stream_test.cc checks values.
#include "engine/queue.h"

#include <thread>

#include "tests/engine/engine_under_test.h"

using namespace torch_tpu;
using namespace torch_tpu::testing;
using engine::Mode;

namespace {

int64_t live_buffers() { return fake_counter("fake_plugin_live_buffers"); }

TEST(one_program_for_a_chain) {
  Engine engine;
  TensorPtr x = engine.four();
  const Counts counts;
  const int64_t executes = fake_counter("fake_plugin_executes");
  for (int i = 0; i < 10; ++i) x = engine.negate(engine.add(x, x));
  CHECK_EQ(counts.ops(), 20);
  CHECK_EQ(counts.programs(), 0);
  CHECK_EQ(engine.read(x).size(), size_t{4});
  CHECK_EQ(counts.programs(), 1);
  CHECK_EQ(counts.compiles(), 1);
  CHECK_EQ(counts.hits(), 0);
  CHECK_EQ(fake_counter("fake_plugin_executes") - executes, 1);
  engine.read(x);
  CHECK(engine.queue.synchronize().ok());
  CHECK_EQ(counts.programs(), 1);
}

TEST(same_body_compiles_once) {
  Engine engine;
  const TensorPtr weight = engine.four();
  TensorPtr x = engine.four(5);
  const Counts counts;
  for (int turn = 0; turn < 5; ++turn) {
    x = engine.add(engine.record("test::multiply", {x, weight}), weight);
    engine.read(x);
  }
  CHECK_EQ(counts.programs(), 5);
  CHECK_EQ(counts.compiles(), 1);
  CHECK_EQ(counts.hits(), 4);
}

TEST(programs_differ_by_what_matters) {
  Engine engine;
  const TensorPtr a = engine.four(), b = engine.four();
  const Counts counts;
  engine.read(engine.add(a, b));
  engine.read(engine.add(b, a));  // the same program
  CHECK_EQ(counts.compiles(), 1);
  engine.read(engine.add(a, a));  // one argument
  CHECK_EQ(counts.compiles(), 2);
  engine.read(engine.record("test::multiply", {a, b}));
  CHECK_EQ(counts.compiles(), 3);
  engine.read(engine.record("test::chain", {a}, {int64_t{2}}));
  engine.read(engine.record("test::chain", {a}, {int64_t{3}}));
  CHECK_EQ(counts.compiles(), 5);
  const TensorPtr row = engine.upload<float>({1, 2, 3, 4}, f32({1, 4}));
  engine.read(engine.add(row, row));
  CHECK_EQ(counts.compiles(), 6);
  // The same graph with another result wanted.
  const TensorPtr first = engine.add(a, b);
  const TensorPtr second = engine.negate(first);
  engine.read(second);
  CHECK_EQ(counts.compiles(), 7);
  const TensorPtr alone = engine.negate(engine.add(a, b));
  engine.read(alone);
  CHECK_EQ(counts.compiles(), 8);
  CHECK_EQ(counts.hits(), 1);
}

TEST(numbers_are_no_part_of_programs) {
  Engine engine;
  const TensorPtr x = engine.four();
  const std::vector<TensorPtr> inputs{x};
  const Counts counts;
  const auto add = [&](DType dtype, std::vector<uint64_t> words) {
    const auto call = Engine::call("test::add_number", inputs, {ops::ScalarArg{0}}, {{dtype, true}});
    engine.read(must(engine.queue.record(call, inputs, words))[0]);
  };
  for (const double number : {0.5, 1.5, -2.0}) add(DType::kF64, {word(number)});
  CHECK_EQ(counts.compiles(), 1);
  for (const int64_t number : {1, 2}) add(DType::kS64, {word(number)});
  CHECK_EQ(counts.compiles(), 2);
  add(DType::kC128, {word(1.0), word(2.0)});
  CHECK_EQ(counts.compiles(), 3);
  CHECK_EQ(counts.programs(), 6);
}

TEST(dead_results_are_not_computed) {
  Engine engine;
  const TensorPtr x = engine.four();
  const Counts counts;
  const int64_t live = live_buffers();
  {
    TensorPtr dead = engine.add(x, x);
    for (int i = 0; i < 5; ++i) dead = engine.negate(dead);
  }
  CHECK(engine.queue.flush().ok());
  CHECK_EQ(counts.programs(), 0);
  TensorPtr y = engine.negate(engine.add(x, x));
  engine.read(y);
  CHECK_EQ(live_buffers() - live, 1);
  y.reset();
  CHECK_EQ(live_buffers(), live);
  const auto both = must(engine.try_record("test::both", {x, x}));
  engine.read(both[1]);
  CHECK_EQ(live_buffers() - live, 2);
}

TEST(last_holder_gives_its_buffer_away) {
  Engine engine;
  TensorPtr x = engine.four();
  const std::weak_ptr<pjrt::Buffer> buffer = must(engine.queue.materialize(x));
  const Counts counts;
  TensorPtr y = engine.add(x, x);
  x.reset();
  engine.read(y);
  CHECK_EQ(counts.donations(), 1);
  CHECK(buffer.expired());
}

TEST(held_buffers_are_not_given_away) {
  Engine engine;
  const Counts counts;
  // By a handle.
  const TensorPtr x = engine.four();
  engine.read(engine.negate(x));
  CHECK_EQ(engine.read(x).size(), size_t{4});
  // By a buffer that was read.
  TensorPtr y = engine.four();
  const auto buffer = must(engine.queue.materialize(y));
  TensorPtr z = engine.negate(y);
  y.reset();
  engine.read(z);
  CHECK(!buffer->is_donated());
  // By another tensor of the same buffer, twice in one program.
  TensorPtr twin = engine.queue.adopt(buffer);
  y = engine.queue.adopt(buffer);
  z = engine.add(y, twin);
  y.reset();
  twin.reset();
  engine.read(z);
  CHECK(!buffer->is_donated());
  CHECK_EQ(counts.donations(), 0);
}

TEST(parts_of_a_window_keep_what_the_rest_needs) {
  const ScopedVariable window("TORCH_TPU_CUT_WINDOW", "4");
  Engine engine;
  const TensorPtr weight = engine.four();
  TensorPtr x = engine.four(3);
  std::vector<TensorPtr> kept;
  const Counts counts;
  for (int i = 0; i < 30; ++i) {
    // Nobody but later ops holds the sum.
    x = engine.record("test::multiply", {engine.add(x, weight), weight});
    if (i % 7 == 0) kept.push_back(x);
  }
  CHECK(counts.programs() > 5);
  CHECK_EQ(engine.read(x).size(), size_t{4});
  for (const TensorPtr& tensor : kept) CHECK_EQ(engine.read(tensor).size(), size_t{4});
  CHECK(engine.queue.synchronize().ok());
  CHECK_EQ(counts.ops(), 60);
  CHECK(counts.compiles() <= 12);
}

// An input of ops on both sides of a cut is one argument of the second program, and given away with it.
TEST(input_of_both_sides_of_a_cut) {
  const ScopedVariable window("TORCH_TPU_CUT_WINDOW", "4");
  Engine engine;
  for (int64_t kind = 0; kind < 6; ++kind) {
    TensorPtr x = engine.four();
    const Counts counts;
    std::vector<TensorPtr> results;
    for (int64_t i = 0; i < 4; ++i) results.push_back(engine.record("test::chain", {x}, {10 * kind + i}));
    engine.queue.await_programs();
    if (counts.programs() == 0) continue;
    results.push_back(engine.negate(x));  // after the cut, while x may wait in what is left
    x.reset();
    CHECK(engine.queue.flush().ok());
    CHECK_EQ(counts.donations(), 1);
  }
}

TEST(adopted_buffer) {
  Engine engine;
  const auto buffer = must(engine.queue.materialize(engine.four()));
  const TensorPtr tensor = engine.queue.adopt(buffer);
  CHECK(tensor->type == buffer->type());
  CHECK(&tensor->queue() == &engine.queue);
  const Counts counts;
  CHECK(must(engine.queue.materialize(tensor)) == buffer);
  CHECK_EQ(counts.programs(), 0);
}

TEST(no_inputs) {
  Engine engine;
  const TensorPtr x = engine.record("test::fill", {}, {int64_t{7}});
  CHECK(x->type == f32({4}));
  CHECK_EQ(engine.read(x).size(), size_t{4});
}

TEST(empty_queue) {
  Engine engine;
  const Counts counts;
  CHECK(engine.queue.flush().ok());
  CHECK(engine.queue.synchronize().ok());
  CHECK_EQ(counts.programs(), 0);
  CHECK_EQ(engine.queue.device_index(), 0);
}

TEST(capacity) {
  const ScopedVariable limit("TORCH_TPU_MEMORY_LIMIT_BYTES", "1000000");
  const auto client = must(make_client(fake_plugin(), 1));
  cache::ProgramCache cache(4);
  engine::Queue queue(client, cache, 0);
  CHECK_EQ(queue.memory_limit_bytes(), 1000000);
  CHECK(queue.check_capacity(900000).ok());
  const Status refused = queue.check_capacity(int64_t{1} << 40);
  CHECK_EQ(refused.code(), Code::kOutOfMemory);
  CHECK(refused.message().find("tpu:0 out of memory. Tried to allocate 1048576.00 MiB") != std::string::npos);
  CHECK(refused.message().find("The device has 0.95 MiB") != std::string::npos);
  // A result that cannot fit is refused on the line that asks for it.
  const std::vector<float> data(150000);
  const TensorPtr half = queue.adopt(must(client->copy_to_device(data.data(), f32({150000}), 0)));
  const std::vector<TensorPtr> inputs{half};
  CHECK_EQ(queue.record(Engine::call("test::negate", inputs), inputs, {}).status().code(),
           Code::kOutOfMemory);
}

/// Results of a program that fails in the way of FAKE_PJRT_FAIL.
void check_failure(const std::string& how, Code code, std::string_view message) {
  Engine engine;
  const TensorPtr x = engine.four();
  const TensorPtr before = engine.negate(x);
  engine.read(before);
  TensorPtr failed = engine.add(x, x);
  const TensorPtr also_failed = engine.negate(failed);
  {
    const ScopedVariable fail("FAKE_PJRT_FAIL", how);
    const auto outcome = engine.queue.materialize(failed);
    CHECK_EQ(outcome.status().code(), code);
    CHECK(outcome.status().message().find(message) != std::string::npos);
  }
  // It stays with the results, and with whatever is made of them.
  CHECK_EQ(engine.queue.materialize(failed).status().code(), code);
  CHECK_EQ(engine.queue.materialize(also_failed).status().code(), code);
  CHECK_EQ(engine.try_record("test::negate", {failed}).status().code(), code);
  // What was computed before and what comes later is untouched.
  CHECK_EQ(engine.read(before).size(), size_t{4});
  CHECK_EQ(engine.read(engine.negate(x)).size(), size_t{4});
  CHECK_EQ(engine.read(engine.negate(engine.add(x, x))).size(), size_t{4});
  // synchronize() tells of it once.
  CHECK_EQ(engine.queue.synchronize().code(), code);
  CHECK(engine.queue.synchronize().ok());
}

TEST(failing_compile) { check_failure("compile", Code::kInvalidArgument, "cannot compile a program"); }
TEST(failing_execution) { check_failure("execute", Code::kInternal, "execution fails"); }
TEST(out_of_memory) { check_failure("oom", Code::kOutOfMemory, "out of memory"); }

TEST(failure_found_by_synchronize) {
  Engine engine;
  const TensorPtr x = engine.four();
  const TensorPtr y = engine.negate(x);
  {
    const ScopedVariable fail("FAKE_PJRT_FAIL", "execute");
    CHECK_EQ(engine.queue.synchronize().code(), Code::kInternal);
    CHECK(engine.queue.synchronize().ok());
  }
  CHECK_EQ(engine.queue.materialize(y).status().code(), Code::kInternal);
  CHECK(engine.queue.synchronize().ok());
}

// Of the ops that are left after a failed cut, those that need its results fail and the others run.
TEST(failing_part_of_a_window) {
  const ScopedVariable window("TORCH_TPU_CUT_WINDOW", "4");
  Engine engine;
  const TensorPtr x = engine.four();
  std::vector<TensorPtr> chain{engine.negate(x)};
  const Counts counts;
  {
    const ScopedVariable fail("FAKE_PJRT_FAIL", "execute");
    while (counts.programs() == 0) {
      const auto next = engine.try_record("test::negate", {chain.back()});
      if (!next.ok()) break;  // the failure is known already
      chain.push_back(next->front());
    }
    engine.queue.await_programs();
  }
  const auto independent = engine.try_record("test::add", {x, x});
  REQUIRE_OK(independent);
  const auto dependent = engine.try_record("test::add", {chain.back(), x});
  if (dependent.ok()) {
    CHECK_EQ(engine.queue.materialize(dependent->front()).status().code(), Code::kInternal);
  } else {
    CHECK_EQ(dependent.status().code(), Code::kInternal);
  }
  for (const TensorPtr& tensor : chain) {
    CHECK_EQ(engine.queue.materialize(tensor).status().code(), Code::kInternal);
  }
  CHECK(engine.queue.materialize(independent->front()).ok());
  CHECK_EQ(engine.queue.synchronize().code(), Code::kInternal);
  CHECK(engine.queue.synchronize().ok());
}

// Programs that the cut rule cuts off run elsewhere, in order; counts are exact after await_programs().
TEST(programs_in_flight) {
  const ScopedVariable window("TORCH_TPU_CUT_WINDOW", "4");
  const int64_t live = live_buffers();
  {
    Engine engine;
    TensorPtr x = engine.four();
    const Counts counts;
    for (int i = 0; i < 400; ++i) x = engine.negate(engine.add(x, x));
    engine.queue.await_programs();
    const int64_t programs = counts.programs();
    CHECK(programs >= 100);
    CHECK_EQ(counts.compiles() + counts.hits(), programs);
    engine.queue.await_programs();
    CHECK_EQ(counts.programs(), programs);
    CHECK_EQ(engine.read(x).size(), size_t{4});
    CHECK(counts.programs() <= programs + 1);
    CHECK_EQ(counts.donations(), counts.programs());  // each its only input
  }
  CHECK_EQ(live_buffers(), live);
}

// What is given away does not depend on how far the worker is.
TEST(donations_do_not_depend_on_time) {
  const ScopedVariable window("TORCH_TPU_CUT_WINDOW", "4");
  for (const bool waits : {false, true}) {
    Engine engine;
    TensorPtr x = engine.four();
    const Counts counts;
    for (int i = 0; i < 200; ++i) {
      x = engine.negate(x);
      if (waits) engine.queue.await_programs();
    }
    CHECK_EQ(engine.read(x).size(), size_t{4});
    CHECK_EQ(counts.donations(), counts.programs());
  }
}

// The end of a queue waits for its programs.
TEST(end_of_a_queue) {
  const ScopedVariable window("TORCH_TPU_CUT_WINDOW", "4");
  const int64_t live = live_buffers();
  for (int round = 0; round < 20; ++round) {
    Engine engine;
    TensorPtr x = engine.four();
    for (int i = 0; i < 20; ++i) x = engine.negate(x);
  }
  CHECK_EQ(live_buffers(), live);
}

TEST(stopped_worker) {
  const ScopedVariable window("TORCH_TPU_CUT_WINDOW", "4");
  Engine engine;
  TensorPtr x = engine.four();
  for (int i = 0; i < 20; ++i) x = engine.negate(x);
  engine.queue.stop_worker();
  const Counts counts;
  for (int i = 0; i < 20; ++i) x = engine.negate(x);
  CHECK(counts.programs() >= 4);  // here, at once
  CHECK_EQ(engine.read(x).size(), size_t{4});
}

TEST(threads_record_in_one_queue) {
  const ScopedVariable window("TORCH_TPU_CUT_WINDOW", "16");
  Engine engine;
  const TensorPtr shared = engine.four();
  const Counts counts;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      TensorPtr x = engine.four(static_cast<float>(thread));
      for (int i = 0; i < 200; ++i) {
        x = i % 3 == 0 ? engine.negate(x) : engine.add(x, shared);
        if (i % 50 == 49) CHECK_EQ(engine.read(x).size(), size_t{4});
      }
      CHECK_EQ(engine.read(x).size(), size_t{4});
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK_EQ(counts.ops(), 800);
  CHECK_EQ(counts.compiles() + counts.hits(), counts.programs());
  CHECK(engine.queue.synchronize().ok());
}

// Handles end on another thread while this one records and runs.
TEST(threads_drop_tensors) {
  const ScopedVariable window("TORCH_TPU_CUT_WINDOW", "8");
  const int64_t live = live_buffers();
  {
    Engine engine;
    std::mutex mutex;
    std::vector<TensorPtr> garbage;
    std::atomic<bool> done{false};
    std::thread collector([&] {
      while (true) {
        std::vector<TensorPtr> taken;
        const bool last = done;
        {
          const std::lock_guard lock(mutex);
          taken.swap(garbage);
        }
        taken.clear();
        if (last) return;
      }
    });
    TensorPtr x = engine.four();
    for (int i = 0; i < 2000; ++i) {
      TensorPtr next = engine.add(x, x);
      const std::lock_guard lock(mutex);
      garbage.push_back(std::exchange(x, std::move(next)));
    }
    CHECK_EQ(engine.read(x).size(), size_t{4});
    done = true;
    collector.join();
  }
  CHECK_EQ(live_buffers(), live);
}

}  // namespace

// Programs written for a TPU while they run on another platform.
#include "engine/capture.h"

#include "tests/engine/engine_under_test.h"

using namespace torch_tpu;
using namespace torch_tpu::testing;

namespace {

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// A program with a number among its inputs.
void add_number(Engine& engine) {
  const std::vector<TensorPtr> inputs{engine.four()};
  const std::vector<uint64_t> words{word(1.0)};
  const auto call = Engine::call("test::add_number", inputs, {ops::ScalarArg{0}}, {{DType::kF64, true}});
  engine.read(must(engine.queue.record(call, inputs, words))[0]);
}

OP("test::checked") {
  const ops::Value x = op.tensor(0);
  op.check(compare(hlo::Compare::kLt, x, 0.0), Code::kInvalidArgument, "negative");
  return {x + x};
}

TEST(numbers_are_packed_as_the_platform_takes_them) {
  Engine engine;
  engine::start_capture(pjrt::Platform::kTpu);
  add_number(engine);
  const auto tpu = engine::finish_capture();
  engine::start_capture(pjrt::Platform::kCpu);
  add_number(engine);
  const auto cpu = engine::finish_capture();
  CHECK_EQ(tpu.size(), size_t{1});
  CHECK_EQ(cpu.size(), size_t{1});
  CHECK(holds(tpu[0], "%arg1: tensor<1xf32>"));
  CHECK(holds(cpu[0], "%arg1: tensor<1xf64>"));
}

TEST(checks_of_values_are_left_out) {
  Engine engine;
  for (const auto& [platform, results] : {std::pair{pjrt::Platform::kTpu, "-> (tensor<4xf32>)"},
                                          {pjrt::Platform::kCpu, "-> (tensor<4xf32>, tensor<1xi64>)"}}) {
    engine::start_capture(platform);
    const TensorPtr result = engine.record("test::checked", {engine.four()});
    REQUIRE_OK(engine.queue.flush());
    const auto programs = engine::finish_capture();
    CHECK_EQ(programs.size(), size_t{1});
    CHECK(holds(programs[0], results));
  }
}

TEST(repetitions_are_captured_too) {
  Engine engine;
  const TensorPtr a = engine.four();
  const Counts counts;
  engine.read(engine.add(a, a));
  engine::start_capture(pjrt::Platform::kTpu);
  engine.read(engine.add(a, a));
  engine.read(engine.add(a, a));
  const auto programs = engine::finish_capture();
  CHECK_EQ(programs.size(), size_t{2});
  CHECK(programs[0] == programs[1]);
  CHECK_EQ(counts.compiles(), 1);
  CHECK_EQ(counts.programs(), 3);
}

TEST(nothing_is_captured_afterwards) {
  Engine engine;
  engine::start_capture(pjrt::Platform::kTpu);
  CHECK(engine::finish_capture().empty());
  engine.read(engine.negate(engine.four()));
  CHECK(!engine::capture_platform().has_value());
  CHECK(engine::finish_capture().empty());
}

TEST(dry_runs_compute_nothing) {
  Engine engine;
  const TensorPtr a = engine.four();
  const Counts counts;
  engine::set_dry_run(true);
  engine::start_capture(pjrt::Platform::kTpu);
  const TensorPtr b = engine.add(a, a);
  REQUIRE_OK(engine.queue.flush());
  const TensorPtr c = engine.negate(b);
  REQUIRE_OK(engine.queue.flush());
  const auto programs = engine::finish_capture();
  CHECK_EQ(engine.queue.materialize(c).value()->has_content(), false);
  engine::set_dry_run(false);
  CHECK_EQ(programs.size(), size_t{2});
  CHECK_EQ(counts.compiles(), 0);
  CHECK_EQ(counts.programs(), 0);
  CHECK(engine.queue.materialize(c).value()->await().code() == Code::kUnavailable);
  const TensorPtr d = engine.negate(c);  // of what has no value
  CHECK(!engine.queue.flush().ok());
  CHECK(engine.queue.materialize(d).status().code() == Code::kUnavailable);
  engine.read(engine.add(a, a));  // what was there before is as it was
}

}  // namespace

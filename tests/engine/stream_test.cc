// Random programs: the values must be those of a plain computation, however the stream is cut, whatever is
// dropped or read on the way. On the fake plugin, which refuses deleted buffers, without the values.
#include <random>

#include "tests/engine/engine_under_test.h"

using namespace torch_tpu;
using namespace torch_tpu::testing;
using engine::Mode;

namespace {

using Numbers = std::vector<uint32_t>;  // wraps as s32 does on the device

constexpr int64_t kSize = 3;
const Type kType{DType::kS32, {kSize}};

/// A device value and what it should be.
struct Variable {
  TensorPtr tensor;
  Numbers expected;
};

template <class Function>
Numbers combine(const Numbers& a, const Numbers& b, Function function) {
  Numbers result;
  for (size_t i = 0; i < a.size(); ++i) result.push_back(function(a[i], b[i]));
  return result;
}

class Stream {
 public:
  Stream(const std::string& plugin, uint32_t seed) : engine_(plugin), random_(seed) {
    for (int i = 0; i < 4; ++i) variables_.push_back(fresh());
  }

  void run(int steps) {
    for (int i = 0; i < steps; ++i) step();
    for (const Variable& variable : variables_) check(variable);
    CHECK(engine_.queue.synchronize().ok());
  }

 private:
  size_t below(size_t bound) { return random_() % bound; }
  Variable& any() { return variables_[below(variables_.size())]; }

  Variable fresh() {
    Numbers numbers;
    for (int64_t i = 0; i < kSize; ++i) numbers.push_back(random_());
    return {engine_.upload(numbers, kType), numbers};
  }

  void put(Variable variable) {
    if (variables_.size() < 6) {
      variables_.push_back(std::move(variable));
    } else {
      any() = std::move(variable);
    }
  }

  void check(const Variable& variable) {
    const auto content = engine_.read<uint32_t>(variable.tensor);
    if (is_real()) CHECK(content == variable.expected);
  }

  void step() {
    const Variable a = any();
    const Variable b = any();
    switch (below(12)) {
      case 0:
        put(fresh());
        break;
      case 1:
        if (below(4) == 0) check(a);
        break;
      case 2:
        if (variables_.size() > 2) variables_.erase(variables_.begin());
        break;
      case 3:
        put({engine_.negate(a.tensor), combine(a.expected, b.expected, [](auto x, auto) { return -x; })});
        break;
      case 4:
      case 5: {
        const auto both = must(engine_.try_record("test::both", {a.tensor, b.tensor}));
        const auto difference = combine(a.expected, b.expected, [](auto x, auto y) { return x - y; });
        const auto sum = combine(a.expected, b.expected, [](auto x, auto y) { return x + y; });
        if (below(2) == 0) put({both[0], sum});
        if (below(2) == 0) put({both[1], difference});
        break;
      }
      case 6: {
        const auto number = static_cast<int64_t>(below(100));
        const std::vector<TensorPtr> inputs{a.tensor};
        const uint64_t words[] = {word(number)};
        const auto call =
            Engine::call("test::add_number", inputs, {ops::ScalarArg{0}}, {{DType::kS64, true}});
        put({must(engine_.queue.record(call, inputs, words))[0],
             combine(a.expected, a.expected,
                     [&](auto x, auto) { return x + static_cast<uint32_t>(number); })});
        break;
      }
      case 7:
      case 8:
        put({engine_.record("test::multiply", {a.tensor, b.tensor}),
             combine(a.expected, b.expected, [](auto x, auto y) { return x * y; })});
        break;
      default:
        put({engine_.add(a.tensor, b.tensor),
             combine(a.expected, b.expected, [](auto x, auto y) { return x + y; })});
    }
  }

  Engine engine_;
  std::mt19937 random_;
  std::vector<Variable> variables_;
};

void run_streams(const char* window, uint32_t seed, int count, int steps) {
  const ScopedVariable variable("TORCH_TPU_CUT_WINDOW", window);
  for (int i = 0; i < count; ++i) Stream(is_real() ? real_plugin() : fake_plugin(), seed + i).run(steps);
}

// A real compiler takes its time.
int scaled(int count) { return is_real() ? 1 : count; }

TEST(window_of_two) { run_streams("2", 100, scaled(20), 40); }
TEST(window_of_five) { run_streams("5", 200, scaled(20), 80); }
TEST(window_of_sixteen) { run_streams("16", 300, 2 * scaled(10), 160); }
TEST(window_of_sixty) { run_streams("60", 400, 2 * scaled(10), 300); }

TEST(strict) {
  const ScopedMode scope(Mode::kStrict);
  run_streams("512", 500, scaled(5), 80);
}

// A training loop: parameters change in each turn, are read in every fifth one, and cost nothing new.
TEST(loop_with_state) {
  const ScopedVariable window("TORCH_TPU_CUT_WINDOW", "8");
  Engine engine(is_real() ? real_plugin() : fake_plugin());
  Numbers expected{1, 2, 3};
  const Numbers data{3, 5, 7};
  TensorPtr weight = engine.upload(expected, kType);
  const TensorPtr input = engine.upload(data, kType);
  int64_t compiles = 0;
  for (int turn = 0; turn < 60; ++turn) {
    const Counts counts;
    TensorPtr x = input;
    Numbers plain = data;
    for (int layer = 0; layer < 6; ++layer) {
      x = engine.add(engine.record("test::multiply", {x, weight}), weight);
      for (size_t i = 0; i < plain.size(); ++i) plain[i] = plain[i] * expected[i] + expected[i];
    }
    weight = engine.add(weight, x);
    for (size_t i = 0; i < plain.size(); ++i) expected[i] += plain[i];
    if (turn % 5 == 4) {
      const auto content = engine.read<uint32_t>(weight);
      if (is_real()) CHECK(content == expected);
    }
    if (turn == 9) engine.queue.await_programs();
    if (turn >= 10) compiles += counts.compiles();
  }
  CHECK_EQ(compiles, 0);
}

}  // namespace

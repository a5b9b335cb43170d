// The stream of random bits, word for word. Needs a plugin that computes.
#include <utility>

#include "tests/engine/engine_under_test.h"

using namespace torch_tpu;
using namespace torch_tpu::testing;

OP("test::bits", .random = true) { return {op.random_bits(op.integer(0))}; }
OP("test::two_draws", .random = true) { return {op.random_bits(3), op.random_bits(2)}; }

namespace {

using Words = std::vector<uint32_t>;

std::vector<TensorPtr> draw(Engine& engine, std::string_view op, const std::vector<ops::Arg>& args,
                            uint64_t seed, uint64_t offset) {
  const uint64_t words[] = {seed, offset};
  return must(engine.queue.record(Engine::call(op, {}, args), {}, words));
}

Words bits(Engine& engine, int64_t count, uint64_t seed, uint64_t offset) {
  return engine.read<uint32_t>(draw(engine, "test::bits", {count}, seed, offset)[0]);
}

/// Threefry-2x32 with 20 rounds, as its authors describe it.
std::pair<uint32_t, uint32_t> threefry(uint64_t key, uint64_t counter) {
  constexpr int kRotations[8] = {13, 15, 26, 6, 17, 29, 16, 24};
  const uint32_t low = static_cast<uint32_t>(key);
  const uint32_t high = static_cast<uint32_t>(key >> 32);
  const uint32_t keys[3] = {low, high, 0x1BD11BDAu ^ low ^ high};
  uint32_t x = static_cast<uint32_t>(counter) + keys[0];
  uint32_t y = static_cast<uint32_t>(counter >> 32) + keys[1];
  for (uint32_t round = 0; round < 20; ++round) {
    x += y;
    const int bits = kRotations[round % 8];
    y = (y << bits | y >> (32 - bits)) ^ x;
    if (round % 4 == 3) {
      const uint32_t group = round / 4 + 1;
      x += keys[group % 3];
      y += keys[(group + 1) % 3] + group;
    }
  }
  return {x, y};
}

/// The words of `count`: the first of all blocks, then the second.
Words expected_bits(size_t count, uint64_t seed, uint64_t offset) {
  const size_t blocks = (count + 1) / 2;
  Words words(2 * blocks);
  for (size_t i = 0; i < blocks; ++i) {
    const auto [first, second] = threefry(seed, offset + i);
    words[i] = first;
    words[blocks + i] = second;
  }
  words.resize(count);
  return words;
}

struct KnownAnswer {
  uint64_t key, counter;
  Words words;
};

/// From the Random123 distribution.
const KnownAnswer kKnownAnswers[] = {
    {0, 0, {0x6b200159, 0x99ba4efe}},
    {0xffffffffffffffff, 0xffffffffffffffff, {0x1cb996fc, 0xbb002be7}},
    {0x03707344'13198a2e, 0x85a308d3'243f6a88, {0xc4923a9c, 0x483df7a0}},
};

TEST(known_answers) {
  Engine engine(is_real() ? real_plugin() : fake_plugin());
  const Counts counts;
  for (const KnownAnswer& known : kKnownAnswers) {
    CHECK(expected_bits(2, known.key, known.counter) == known.words);
    const Words words = bits(engine, 2, known.key, known.counter);
    if (is_real()) CHECK(words == known.words);
  }
  // Seed and offset are inputs of one program.
  CHECK_EQ(counts.compiles(), 1);
}

TEST(counts_and_offsets) {
  Engine engine(is_real() ? real_plugin() : fake_plugin());
  for (const int64_t count : {0, 1, 2, 5, 64, 1001}) {
    // The last offset carries into the upper word of the counter.
    for (const uint64_t offset : {uint64_t{0}, uint64_t{7}, uint64_t{0xfffffffe}}) {
      const Words words = bits(engine, count, 42, offset);
      CHECK_EQ(words.size(), static_cast<size_t>(count));
      if (is_real()) CHECK(words == expected_bits(words.size(), 42, offset));
    }
  }
}

TEST(draws_of_one_op_follow_each_other) {
  Engine engine(is_real() ? real_plugin() : fake_plugin());
  const auto results = draw(engine, "test::two_draws", {}, 9, 100);
  const Words first = engine.read<uint32_t>(results[0]);
  const Words second = engine.read<uint32_t>(results[1]);
  if (!is_real()) return;
  CHECK(first == expected_bits(3, 9, 100));
  CHECK(second == expected_bits(2, 9, 102));
}

// The same numbers in one program or in many.
TEST(fusion_changes_nothing) {
  Engine engine(is_real() ? real_plugin() : fake_plugin());
  std::vector<TensorPtr> fused;
  for (uint64_t i = 0; i < 5; ++i) fused.push_back(draw(engine, "test::bits", {int64_t{6}}, 5 + i, 3 * i)[0]);
  const Counts counts;
  for (uint64_t i = 0; i < 5; ++i) {
    const Words words = engine.read<uint32_t>(fused[i]);
    if (is_real()) CHECK(words == expected_bits(6, 5 + i, 3 * i));
  }
  CHECK_EQ(counts.programs(), 1);
}

}  // namespace

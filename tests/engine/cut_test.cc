#include "engine/cut.h"

#include <random>
#include <set>

#include "tests/check.h"

using namespace torch_tpu;
using namespace torch_tpu::engine;

namespace {

constexpr int64_t kNoLimit = int64_t{1} << 60;

Hash128 signature(uint64_t number) {
  Hash128 hash;
  hash.append(number);
  return hash;
}

/// The positions after which `rule` cuts the stream `signatures`; checks the window on the way.
std::vector<size_t> cuts_of(CutRule& rule, const std::vector<Hash128>& signatures, size_t window,
                            int64_t bytes = 0) {
  std::vector<size_t> cuts;
  size_t start = 0;
  for (size_t i = 0; i < signatures.size(); ++i) {
    const size_t count = rule.append(signatures[i], bytes);
    if (count == 0) continue;
    start += count;
    CHECK(count <= window && start <= i + 1);
    cuts.push_back(start);
  }
  CHECK(signatures.size() - start < window);
  return cuts;
}

std::vector<Hash128> periodic(const std::vector<Hash128>& body, size_t phase, size_t length) {
  std::vector<Hash128> stream;
  for (size_t i = 0; i < length; ++i) stream.push_back(body[(phase + i) % body.size()]);
  return stream;
}

/// A loop body of `period` ops of which `kinds` differ.
std::vector<Hash128> loop_body(size_t period, uint32_t kinds, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<Hash128> body;
  for (size_t i = 0; i < period; ++i) body.push_back(signature(random() % kinds));
  return body;
}

/// The cuts of turn `turn`, counted from the start of the body, when a loop of `period` is entered in
/// `phase`.
std::vector<size_t> cuts_in_turn(const std::vector<size_t>& cuts, size_t period, size_t phase, size_t turn) {
  std::vector<size_t> in_turn;
  for (const size_t cut : cuts) {
    const size_t at = cut + phase - 1;  // the op before the cut
    if (at / period == turn) in_turn.push_back(at % period);
  }
  return in_turn;
}

// Loops cut at the same ops in each turn, whatever the phase in which they were entered.
TEST(loops_repeat) {
  const size_t windows[] = {8, 64, 512};
  for (size_t period = 1; period <= 700; period += period < 20 ? 1 : 17) {
    for (const size_t window : windows) {
      const std::vector<Hash128> body = loop_body(period, 1u << 30, static_cast<uint32_t>(period));
      // A short loop needs as many turns as fill the window, twice.
      const size_t first = 1 + (window + period - 1) / period;
      const size_t last = 2 * first + 2;
      std::vector<size_t> usual;
      for (const size_t phase : {size_t{0}, period / 3, period - 1}) {
        CutRule rule(window, kNoLimit);
        const auto cuts =
            cuts_of(rule, periodic(body, phase, (last + 1) * period + 2 * window - phase), window);
        std::vector<size_t> places;  // where in the body the cuts of the later turns are
        for (size_t turn = first; turn <= last; ++turn) {
          for (const size_t place : cuts_in_turn(cuts, period, phase, turn)) {
            if (std::find(places.begin(), places.end(), place) == places.end()) places.push_back(place);
          }
          if (period <= window) continue;
          // Longer than a window: the same cuts in each turn.
          CHECK(cuts_in_turn(cuts, period, phase, turn) == cuts_in_turn(cuts, period, phase, first));
        }
        std::sort(places.begin(), places.end());
        CHECK(!places.empty());
        if (period <= window) CHECK_EQ(places.size(), size_t{1});
        if (phase == 0) usual = places;
        CHECK(places == usual);
      }
    }
  }
}

TEST(loops_of_few_kinds_repeat) {
  for (const size_t period : {5, 48, 100, 333}) {
    const std::vector<Hash128> body = loop_body(period, 3, 7);
    for (const size_t phase : {size_t{0}, period / 2}) {
      CutRule rule(40, kNoLimit);
      const auto cuts = cuts_of(rule, periodic(body, phase, 30 * period), 40);
      if (period <= 40) {
        for (size_t i = 2; i < cuts.size(); ++i) CHECK_EQ((cuts[i] - cuts[i - 1]) % period, size_t{0});
      } else {
        for (size_t turn = 2; turn < 28; ++turn) {
          CHECK(cuts_in_turn(cuts, period, phase, turn) == cuts_in_turn(cuts, period, phase, 1));
        }
      }
    }
  }
}

// A network of equal layers between a beginning and an end, which no host read separates from the next turn.
TEST(loops_of_equal_layers_repeat) {
  for (const size_t layers : {2, 8, 30}) {
    for (const size_t length : {20, 65, 100}) {
      const std::vector<Hash128> layer = loop_body(length, 1u << 30, static_cast<uint32_t>(length));
      std::vector<Hash128> body = loop_body(23, 1u << 30, 1);
      for (size_t i = 0; i < layers; ++i) body.insert(body.end(), layer.begin(), layer.end());
      const size_t period = body.size();
      for (const size_t phase : {size_t{0}, period / 3, period - 1}) {
        CutRule rule(512, kNoLimit);
        const size_t first = 2 + 512 / period;
        const auto cuts = cuts_of(rule, periodic(body, phase, (first + 30) * period), 512);
        std::vector<std::vector<size_t>> turns;
        for (size_t turn = first; turn < first + 24; ++turn)
          turns.push_back(cuts_in_turn(cuts, period, phase, turn));
        if (period > 512) {
          for (const auto& turn : turns) CHECK(turn == turns[0]);
        } else {
          std::set<size_t> places;
          for (const auto& turn : turns) places.insert(turn.begin(), turn.end());
          CHECK_EQ(places.size(), size_t{1});
        }
      }
    }
  }
}

// Programs are long: a window holds about half a window of ops on average.
TEST(programs_are_long) {
  const size_t window = 128;
  CutRule rule(window, kNoLimit);
  const auto cuts = cuts_of(rule, loop_body(20000, 1u << 30, 3), window);
  CHECK(cuts.size() > 20000 / window);
  CHECK(cuts.size() < 20000 / (window / 3));
}

// Of a short body a part of the window is enough.
TEST(short_bodies_make_short_programs) {
  for (const size_t period : {1, 5, 25, 64}) {
    CutRule rule(512, kNoLimit);
    const auto cuts = cuts_of(rule, periodic(loop_body(period, 1u << 30, 5), 0, 3000), 512);
    for (size_t i = 1; i < cuts.size(); ++i) {
      CHECK(cuts[i] - cuts[i - 1] <= 128 && cuts[i] - cuts[i - 1] > 128 - period);
      CHECK_EQ((cuts[i] - cuts[i - 1]) % period, size_t{0});
    }
    CHECK(cuts[0] <= 128);
  }
}

// A compiled graph is met again: the program ends before it, whatever is between.
TEST(large_graphs_end_programs_when_they_come_again) {
  CutRule rule(512, kNoLimit);
  for (int turn = 0; turn < 20; ++turn) {
    CHECK_EQ(rule.append(signature(1), 0, 100), turn == 0 ? size_t{0} : size_t{4});
    CHECK_EQ(rule.append(signature(2), 0), size_t{0});
    CHECK_EQ(rule.append(signature(3), 0, 200), size_t{0});
    CHECK_EQ(rule.append(signature(2), 0), size_t{0});
  }
  CHECK(rule.cause() == Cause::kGraph);
  // Small ones are as other ops.
  CutRule other(512, kNoLimit);
  for (int turn = 0; turn < 100; ++turn) CHECK_EQ(other.append(signature(1), 0, 10), size_t{0});
}

TEST(one_op_per_program) {
  CutRule rule(1, kNoLimit);
  for (uint64_t i = 0; i < 10; ++i) CHECK_EQ(rule.append(signature(i), 0), size_t{1});
}

TEST(equal_ops_fill_the_window) {
  CutRule rule(16, kNoLimit);
  // The history of the first ops differs; from then on all look the same and the last one is taken.
  const auto cuts = cuts_of(rule, std::vector<Hash128>(16 * 8, signature(1)), 16);
  CHECK(cuts.size() >= 7);
  for (size_t i = 2; i < cuts.size(); ++i) CHECK_EQ(cuts[i] - cuts[i - 1], size_t{16});
}

TEST(nothing_is_cut_before_the_window_is_full) {
  CutRule rule(100, kNoLimit);
  for (uint64_t i = 0; i < 99; ++i) CHECK_EQ(rule.append(signature(i), 1000), size_t{0});
  CHECK(rule.append(signature(99), 0) > 0);
}

TEST(reset_forgets) {
  CutRule fresh(10, 1000), used(10, 1000);
  for (uint64_t i = 0; i < 7; ++i) CHECK_EQ(used.append(signature(i), 100), size_t{0});
  used.reset();
  for (uint64_t i = 0; i < 40; ++i) {
    CHECK_EQ(used.append(signature(i * i), 1), fresh.append(signature(i * i), 1));
  }
}

TEST(byte_limit) {
  CutRule rule(100, 1000);
  CHECK_EQ(rule.append(signature(1), 600), size_t{0});
  CHECK_EQ(rule.append(signature(2), 400), size_t{0});
  CHECK_EQ(rule.append(signature(3), 1), size_t{3});
  CHECK_EQ(rule.append(signature(4), 2000), size_t{1});
  CHECK_EQ(rule.append(signature(5), 1000), size_t{0});
}

// Only pending ops count towards the limit, not those that were cut off before.
TEST(byte_limit_counts_pending_ops) {
  const size_t window = 32;
  const std::vector<Hash128> stream = loop_body(4000, 1u << 30, 5);
  CutRule unlimited(window, kNoLimit), limited(window, 100 * static_cast<int64_t>(window));
  CHECK(cuts_of(unlimited, stream, window, 100) == cuts_of(limited, stream, window, 100));
}

}  // namespace

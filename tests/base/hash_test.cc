#include "base/hash.h"

#include <bit>
#include <unordered_set>

#include "tests/check.h"

using namespace torch_tpu;

namespace {

Hash128 hash_of(std::initializer_list<uint64_t> words) {
  Hash128 hash;
  for (const uint64_t word : words) hash.append(word);
  return hash;
}

Hash128 hash_of(std::initializer_list<std::string_view> texts) {
  Hash128 hash;
  for (const std::string_view text : texts) hash.append(text);
  return hash;
}

// Keys may be stored: a change of the function is a change of format.
TEST(known_values) {
  CHECK_EQ(Hash128().hex(), std::string("c2b2ae3d27d4eb4f9e3779b97f4a7c15"));
  Hash128 hash;
  hash.append(uint64_t{1});
  hash.append(2.5);
  hash.append(std::string_view("aten::add.Tensor"));
  CHECK_EQ(hash.hex(), std::string("4b482806b0c8776ab6df045b6a83c70c"));
}

TEST(depends_on_order_and_length) {
  CHECK(hash_of({1u, 2u}) == hash_of({1u, 2u}));
  CHECK(!(hash_of({1u, 2u}) == hash_of({2u, 1u})));
  CHECK(!(hash_of({0u}) == hash_of({0u, 0u})));
  CHECK(!(hash_of({0u}) == Hash128()));
}

TEST(texts_keep_their_boundaries) {
  CHECK(!(hash_of({"ab", "c"}) == hash_of({"a", "bc"})));
  CHECK(!(hash_of({""}) == Hash128()));
  CHECK(!(hash_of({"a"}) == hash_of({std::string_view("a\0", 2)})));
  CHECK(!(hash_of({"12345678"}) == hash_of({"123456789"})));
}

TEST(numbers_by_their_bits) {
  Hash128 positive, negative;
  positive.append(0.0);
  negative.append(-0.0);
  CHECK(!(positive == negative));
}

TEST(hash_of_a_hash) {
  Hash128 outer;
  outer.append(hash_of({7u}));
  CHECK(!(outer == hash_of({7u})));
  Hash128 words;
  words.append(hash_of({7u}).low);
  words.append(hash_of({7u}).high);
  CHECK(outer == words);
}

TEST(no_collision_of_small_words) {
  std::unordered_set<Hash128> all;
  std::unordered_set<uint64_t> low, high;
  for (uint64_t a = 0; a < 300; ++a) {
    for (uint64_t b = 0; b < 300; ++b) {
      const Hash128 hash = hash_of({a, b});
      all.insert(hash);
      low.insert(hash.low);
      high.insert(hash.high);
    }
  }
  CHECK_EQ(all.size(), size_t{90000});
  // Either lane alone is as good as random: 90,000 of 2^64.
  CHECK_EQ(low.size(), size_t{90000});
  CHECK_EQ(high.size(), size_t{90000});
}

TEST(one_bit_changes_half_of_the_bits) {
  int64_t changed = 0;
  for (int bit = 0; bit < 64; ++bit) {
    const Hash128 before = hash_of({0x0123456789abcdefull, 5});
    const Hash128 after = hash_of({0x0123456789abcdefull ^ uint64_t{1} << bit, 5});
    changed += std::popcount(before.low ^ after.low) + std::popcount(before.high ^ after.high);
  }
  CHECK(changed > 64 * 54 && changed < 64 * 74);
}

}  // namespace

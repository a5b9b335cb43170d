#include "base/inline_vector.h"

#include <cstdint>
#include <random>

#include "tests/check.h"

using namespace torch_tpu;

namespace {

using Small = InlineVector<int64_t, 3>;
using Plain = std::vector<int64_t>;

bool same(const Small& a, const Plain& b) {
  return a.size() == b.size() && a.empty() == b.empty() && std::equal(a.begin(), a.end(), b.begin());
}

TEST(construction) {
  CHECK(Small().empty());
  CHECK(same(Small(2, 7), {7, 7}));
  CHECK(same(Small(5), {0, 0, 0, 0, 0}));
  CHECK(same(Small{1, 2}, {1, 2}));
  CHECK(same(Small(Plain{1, 2, 3, 4}), {1, 2, 3, 4}));
  const int32_t narrow[] = {5, 6};
  CHECK(same(Small(narrow, narrow + 2), {5, 6}));
  const Plain plain{1, 2, 3, 4};
  CHECK(same(Small(std::span<const int64_t>(plain).subspan(1)), {2, 3, 4}));
  const Small pair{8, 9};
  const std::span<const int64_t> span = pair;
  CHECK(span.data() == pair.data() && span.size() == 2);
}

TEST(copies_are_independent) {
  for (const Plain& content : {Plain{1, 2}, Plain{1, 2, 3, 4, 5}}) {
    Small original(content);
    Small copy(original);
    copy[0] = 9;
    copy.push_back(10);
    CHECK(same(original, content));
    Small assigned{7, 7, 7, 7, 7, 7, 7};
    assigned = original;
    CHECK(same(assigned, content));
    const Small& itself = assigned;
    assigned = itself;
    CHECK(same(assigned, content));
  }
}

TEST(moved_from_is_empty_and_usable) {
  for (const Plain& content : {Plain{1, 2}, Plain{1, 2, 3, 4, 5}}) {
    Small original(content);
    Small moved(std::move(original));
    CHECK(same(moved, content));
    CHECK(original.empty());
    for (int64_t i = 0; i < 9; ++i) original.push_back(i);
    CHECK(same(original, {0, 1, 2, 3, 4, 5, 6, 7, 8}));
    CHECK(same(moved, content));
    original = std::move(moved);
    CHECK(same(original, content));
  }
}

TEST(equality) {
  CHECK(Small({1, 2}) == Small({1, 2}));
  CHECK(!(Small({1, 2}) == Small({1, 3})));
  CHECK(!(Small({1, 2}) == Small({1, 2, 3})));
  Small spilled{1, 2, 3, 4};
  spilled.pop_back();
  CHECK(spilled == Small({1, 2, 3}));
}

// The same random edits on a std::vector.
TEST(behaves_as_std_vector) {
  std::mt19937 random(1);
  const auto below = [&](size_t bound) { return static_cast<size_t>(random() % bound); };
  Small ours;
  Plain theirs;
  for (int step = 0; step < 20000; ++step) {
    const auto value = static_cast<int64_t>(random());
    switch (below(theirs.size() > 12 ? 9 : 7)) {
      case 0:
      case 1:
        ours.push_back(value);
        theirs.push_back(value);
        break;
      case 2: {
        const size_t position = below(theirs.size() + 1);
        ours.insert(position, value);
        theirs.insert(theirs.begin() + static_cast<ptrdiff_t>(position), value);
        break;
      }
      case 3: {
        const size_t count = below(9);
        ours.resize(count, value);
        theirs.resize(count, value);
        break;
      }
      case 4: {
        Small other(std::move(ours));
        ours = other;
        break;
      }
      case 5:
        if (theirs.empty()) break;
        ours.back() = value;
        theirs.back() = value;
        break;
      case 6:
        ours.reserve(below(8));
        break;
      case 7:
        ours.clear();
        theirs.clear();
        break;
      default: {
        const size_t position = below(theirs.size());
        ours.erase(position);
        theirs.erase(theirs.begin() + static_cast<ptrdiff_t>(position));
        ours.pop_back();
        theirs.pop_back();
      }
    }
    if (!same(ours, theirs)) {
      CHECK(same(ours, theirs));
      return;
    }
  }
}

}  // namespace

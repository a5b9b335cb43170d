#include "engine/cut.h"

#include <algorithm>
#include <limits>

namespace torch_tpu::engine {

size_t CutRule::append(const Hash128& signature, int64_t result_bytes) {
  history_.push_back(signature.low);
  if (history_.size() > kHistory) history_.erase(history_.begin());
  Hash128 content;
  for (const uint64_t word : history_) content.append(word);
  // The first ops have a history of their own: no place that is met again.
  const bool is_known = history_.size() == kHistory;
  pending_.push_back({is_known ? content.low : std::numeric_limits<uint64_t>::max(), result_bytes});
  bytes_ += result_bytes;

  if (bytes_ > byte_limit_) {
    const size_t count = pending_.size();
    reset();
    cause_ = Cause::kByteLimit;
    return count;
  }
  const bool is_full = pending_.size() >= window_;
  if (!is_full && (pending_.size() != kShortWindow || !repeats())) return 0;
  cause_ = is_full ? Cause::kFullWindow : Cause::kRepetition;
  return cut_at_minimum();
}

bool CutRule::repeats() const {
  // The first hashes know of ops from before.
  const auto first = pending_.begin() + kHistory;
  const auto same = [](const Pending& a, const Pending& b) { return a.content == b.content; };
  for (auto second = first + 1; second <= first + kShortWindow / 2; ++second) {
    if (std::equal(second, pending_.end(), first, same)) return true;
  }
  return false;
}

size_t CutRule::cut_at_minimum() {
  // The last minimum: distance from the front counts from the reversed end.
  const auto smallest =
      std::min_element(pending_.rbegin(), pending_.rend(),
                       [](const Pending& a, const Pending& b) { return a.content < b.content; });
  const auto end = smallest.base();
  for (auto cut_off = pending_.begin(); cut_off != end; ++cut_off) bytes_ -= cut_off->bytes;
  const auto count = static_cast<size_t>(end - pending_.begin());
  pending_.erase(pending_.begin(), end);
  return count;
}

void CutRule::reset() {
  history_.clear();
  pending_.clear();
  bytes_ = 0;
}

}  // namespace torch_tpu::engine

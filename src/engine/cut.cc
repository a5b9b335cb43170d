#include "engine/cut.h"

#include <algorithm>

namespace torch_tpu::engine {

size_t CutRule::append(const Hash128& signature, int64_t result_bytes) {
  history_.push_back(signature.low);
  if (history_.size() > kHistory) history_.erase(history_.begin());
  Hash128 content;
  for (const uint64_t word : history_) content.append(word);
  pending_.push_back({content.low, result_bytes});
  bytes_ += result_bytes;

  if (bytes_ > byte_limit_) {
    const size_t count = pending_.size();
    reset();
    return count;
  }
  if (pending_.size() < window_) return 0;
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

#include "engine/cut.h"

#include <algorithm>
#include <numeric>

namespace torch_tpu::engine {
namespace {

constexpr uint64_t kVariable = 0x9e3779b97f4a7c15ull;

uint64_t mixed(uint64_t word) {
  Hash128 hash;
  hash.append(word);
  return hash.low;
}

}  // namespace

CutRule::CutRule(size_t window, int64_t byte_limit)
    : window_(window), depth_(2 * window + kContent), byte_limit_(byte_limit), power_(depth_ + 1, 1) {
  for (size_t i = 1; i < power_.size(); ++i) power_[i] = power_[i - 1] * kVariable;
}

size_t CutRule::append(const Hash128& signature, int64_t result_bytes, size_t operators) {
  signatures_.push_back(signature.low);
  prefix_.push_back(prefix_.back() * kVariable + signature.low);
  pending_.push_back({result_bytes, operators});
  bytes_ += result_bytes;
  operators_ += operators;

  if (bytes_ > byte_limit_) {
    const size_t count = pending();
    reset();
    cause_ = Cause::kByteLimit;
    return count;
  }
  if (repeats_graph()) return cut_off(pending() - 1, Cause::kGraph);
  if (pending() >= window_ || operators_ >= kMostOperators) return cut_off(minimum(), Cause::kFullWindow);
  if (pending() == kShortWindow && repeats()) return cut_off(minimum(), Cause::kRepetition);
  return 0;
}

bool CutRule::repeats_graph() const {
  if (pending_.back().operators < kLargeGraph) return false;
  return std::find(signatures_.end() - static_cast<std::ptrdiff_t>(pending()), signatures_.end() - 1,
                   signatures_.back()) != signatures_.end() - 1;
}

bool CutRule::repeats() const {
  const auto first = signatures_.end() - static_cast<std::ptrdiff_t>(pending());
  for (auto second = first + 1; second <= first + kShortWindow / 2; ++second) {
    if (std::equal(second, signatures_.end(), first)) return true;
  }
  return false;
}

bool CutRule::has_smaller_history(size_t a, size_t b) const {
  size_t same = kContent;
  size_t other = std::min(a, depth_) + 1;
  while (other - same > 1) {
    const size_t middle = std::midpoint(same, other);
    (hash_before(a, middle) == hash_before(b, middle) ? same : other) = middle;
  }
  if (same == a || same == depth_) return false;
  return signatures_[a - same - 1] < signatures_[b - same - 1];
}

size_t CutRule::minimum() const {
  const size_t end = signatures_.size();
  const size_t first = end - pending();
  if (end < kContent) return pending();
  size_t smallest = end;
  uint64_t smallest_content = mixed(hash_before(end, kContent));
  // The first ops have a history of their own: no place that is met again.
  for (size_t i = end - 1; i > first && i >= kContent; --i) {
    const uint64_t content = mixed(hash_before(i, kContent));
    if (content > smallest_content) continue;
    if (content == smallest_content && !has_smaller_history(i, smallest)) continue;
    smallest = i;
    smallest_content = content;
  }
  return smallest - first;
}

size_t CutRule::cut_off(size_t count, Cause cause) {
  const auto end = pending_.begin() + static_cast<std::ptrdiff_t>(count);
  for (auto op = pending_.begin(); op != end; ++op) {
    bytes_ -= op->bytes;
    operators_ -= op->operators;
  }
  pending_.erase(pending_.begin(), end);
  forget_oldest();
  cause_ = cause;
  return count;
}

void CutRule::forget_oldest() {
  const size_t kept = depth_ + window_;
  if (signatures_.size() < 2 * kept) return;
  const auto count = static_cast<std::ptrdiff_t>(signatures_.size() - kept);
  signatures_.erase(signatures_.begin(), signatures_.begin() + count);
  prefix_.erase(prefix_.begin(), prefix_.begin() + count);
}

void CutRule::reset() {
  signatures_.clear();
  prefix_.assign(1, 0);
  pending_.clear();
  bytes_ = 0;
  operators_ = 0;
}

}  // namespace torch_tpu::engine

#include "cache/program_cache.h"

namespace torch_tpu::cache {

std::shared_ptr<pjrt::Executable> ProgramCache::find(const Hash128& key) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(key);
  if (found == entries_.end()) return nullptr;
  by_use_.splice(by_use_.begin(), by_use_, found->second);
  return found->second->executable;
}

void ProgramCache::insert(const Hash128& key, std::shared_ptr<pjrt::Executable> executable) {
  const std::lock_guard lock(mutex_);
  if (const auto found = entries_.find(key); found != entries_.end()) {
    found->second->executable = std::move(executable);
    by_use_.splice(by_use_.begin(), by_use_, found->second);
    return;
  }
  by_use_.push_front({key, std::move(executable)});
  entries_.emplace(key, by_use_.begin());
  if (entries_.size() > capacity_) {
    entries_.erase(by_use_.back().key);
    by_use_.pop_back();
  }
}

void ProgramCache::clear() {
  const std::lock_guard lock(mutex_);
  entries_.clear();
  by_use_.clear();
}

size_t ProgramCache::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

}  // namespace torch_tpu::cache

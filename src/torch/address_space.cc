#include "torch/address_space.h"

#include <sys/mman.h>

#include <array>
#include <bit>
#include <cstdint>
#include <mutex>
#include <vector>

namespace torch_tpu {
namespace {

constexpr int kSmallestClass = 6;  // 64 bytes
constexpr int kLargestClass = 40;  // 1 TiB
constexpr int kClasses = kLargestClass - kSmallestClass + 1;
// Of each size class: dry runs hold models of terabytes. All classes together are half of what a process can
// address.
constexpr uint64_t kLeastRegion = uint64_t{1} << 41;

// Slots of one power-of-two size. Freed slots are reused first, so the table stays small.
struct SizeClass {
  uint64_t base = 0;
  uint64_t capacity = 0;
  std::vector<void*> owners;
  std::vector<uint32_t> free_slots;
};

class AddressSpace {
 public:
  AddressSpace() {
    uint64_t total = 0;
    for (int i = 0; i < kClasses; ++i) total += region_bytes(i);
    void* range = mmap(nullptr, total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    // Under an address-space limit use numbers that no process can map: they fault just as well.
    uint64_t next = range != MAP_FAILED ? reinterpret_cast<uint64_t>(range) : uint64_t{1} << 56;
    for (int i = 0; i < kClasses; ++i) {
      classes_[i].base = next;
      classes_[i].capacity = region_bytes(i) >> (i + kSmallestClass);
      next += region_bytes(i);
    }
    begin_ = classes_[0].base;
    end_ = next;
  }

  void* reserve(size_t bytes, void* owner) {
    const int width = std::max<int>(kSmallestClass, std::bit_width(bytes > 0 ? bytes - 1 : 0));
    if (width > kLargestClass) return nullptr;
    const std::lock_guard lock(mutex_);
    SizeClass& size_class = classes_[width - kSmallestClass];
    uint64_t slot = size_class.owners.size();
    if (!size_class.free_slots.empty()) {
      slot = size_class.free_slots.back();
      size_class.free_slots.pop_back();
      size_class.owners[slot] = owner;
    } else if (slot < size_class.capacity) {
      size_class.owners.push_back(owner);
    } else {
      return nullptr;
    }
    return reinterpret_cast<void*>(size_class.base + (slot << width));
  }

  void release(void* address) {
    const std::lock_guard lock(mutex_);
    if (const auto [size_class, slot] = find(address); size_class != nullptr) {
      size_class->owners[slot] = nullptr;
      size_class->free_slots.push_back(static_cast<uint32_t>(slot));
    }
  }

  void* owner(const void* address) {
    const std::lock_guard lock(mutex_);
    const auto [size_class, slot] = find(address);
    return size_class != nullptr ? size_class->owners[slot] : nullptr;
  }

 private:
  static uint64_t region_bytes(int i) { return std::max(kLeastRegion, uint64_t{4} << (i + kSmallestClass)); }

  std::pair<SizeClass*, uint64_t> find(const void* pointer) {
    const auto address = reinterpret_cast<uint64_t>(pointer);
    if (address < begin_ || address >= end_) return {nullptr, 0};
    for (int i = 0; i < kClasses; ++i) {
      SizeClass& size_class = classes_[i];
      if (address - size_class.base >= region_bytes(i)) continue;
      const uint64_t slot = (address - size_class.base) >> (i + kSmallestClass);
      return slot < size_class.owners.size() ? std::pair{&size_class, slot}
                                             : std::pair<SizeClass*, uint64_t>{};
    }
    return {nullptr, 0};
  }

  std::mutex mutex_;
  std::array<SizeClass, kClasses> classes_;
  uint64_t begin_ = 0;
  uint64_t end_ = 0;
};

AddressSpace& address_space() {
  static AddressSpace& instance = *new AddressSpace;  // outlives every storage
  return instance;
}

}  // namespace

void* reserve_address(size_t bytes, void* owner) { return address_space().reserve(bytes, owner); }
void release_address(void* address) { address_space().release(address); }
void* owner_of_address(const void* address) { return address_space().owner(address); }

}  // namespace torch_tpu

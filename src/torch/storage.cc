#include "torch/storage.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "engine/runtime.h"
#include "torch/address_space.h"
#include "torch/device.h"
#include "torch/error.h"
#include "torch/record.h"

namespace torch_tpu {
namespace {

struct Owner {
  StorageContent content;
  void* address = nullptr;
};

// Runs with or without the GIL, on any thread.
void release_owner(void* context) {
  auto* owner = static_cast<Owner*>(context);
  release_address(owner->address);
  delete owner;
}

c10::DataPtr allocate_pointer(size_t bytes, int device_index) {
  const c10::Device device(c10::kPrivateUse1, static_cast<c10::DeviceIndex>(device_index));
  auto owner = std::make_unique<Owner>();
  owner->content.device_index = device_index;
  if (bytes > 0) {
    raise_if_error(queue_of(device_index).check_capacity(static_cast<int64_t>(bytes)));
    owner->address = reserve_address(bytes, owner.get());
    if (owner->address == nullptr) {
      raise({Code::kOutOfMemory,
             "tpu:" + std::to_string(device_index) + " cannot hold " + std::to_string(bytes) + " bytes"});
    }
  }
  void* address = owner->address;
  return {address, owner.release(), &release_owner, device};
}

class DeviceAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override { return allocate_pointer(bytes, current_device()); }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void*, const void*, std::size_t) const override {
    TORCH_CHECK(false, "device memory of tpu cannot be copied by address");
  }
  bool initialized() override { return engine::Runtime::is_created(); }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {}

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    constexpr auto kAggregate = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    const pjrt::MemoryStatistics& statistics = pjrt::memory_statistics(device);
    c10::CachingDeviceAllocator::DeviceStats stats;
    for (auto* bytes :
         {&stats.allocated_bytes, &stats.active_bytes, &stats.requested_bytes, &stats.reserved_bytes}) {
      (*bytes)[kAggregate].current = statistics.live_bytes;
      (*bytes)[kAggregate].peak = statistics.peak_bytes;
    }
    stats.allocation[kAggregate].current = statistics.live_buffers;
    stats.allocation[kAggregate].allocated = statistics.allocations;
    stats.allocation[kAggregate].freed = statistics.allocations - statistics.live_buffers;
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    pjrt::memory_statistics(device).allocations = 0;
  }
  void resetPeakStats(c10::DeviceIndex device) override {
    pjrt::MemoryStatistics& statistics = pjrt::memory_statistics(device);
    statistics.peak_bytes = statistics.live_bytes.load();
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    const int64_t total = queue_of(device).memory_limit_bytes();
    return {static_cast<size_t>(total - pjrt::memory_statistics(device).live_bytes),
            static_cast<size_t>(total)};
  }
};

}  // namespace

c10::Allocator* device_allocator() {
  static DeviceAllocator& instance = *new DeviceAllocator;
  return &instance;
}

StorageContent& content_of(const c10::StorageImpl& storage) {
  const c10::DataPtr& pointer = storage.data_ptr();
  if (pointer.get_deleter() == &release_owner) return static_cast<Owner*>(pointer.get_context())->content;
  // Core builds foreign storages over our address when it pickles a tensor.
  auto* owner = static_cast<Owner*>(owner_of_address(pointer.get()));
  TORCH_CHECK(owner != nullptr, "a tensor on tpu whose storage was not made by torch_tpu cannot be used");
  return owner->content;
}

StorageContent& content_of(const c10::TensorImpl& tensor) {
  return content_of(*tensor.unsafe_storage().unsafeGetStorageImpl());
}

c10::intrusive_ptr<c10::StorageImpl> make_storage(size_t bytes, int device_index) {
  return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                               allocate_pointer(bytes, device_index), device_allocator(),
                                               /*resizable=*/true);
}

void resize_storage(c10::StorageImpl& storage, size_t bytes) {
  TORCH_CHECK(storage.resizable(), "Trying to resize storage that is not resizable");
  if (bytes == storage.nbytes()) return;
  StorageContent& old = content_of(storage);
  c10::DataPtr pointer = allocate_pointer(bytes, old.device_index);
  auto& content = static_cast<Owner*>(pointer.get_context())->content;
  if (old.value != nullptr && bytes > 0) {
    const hlo::DType dtype = old.value->type.dtype;
    // A size that the dtype does not divide is kept as bytes.
    const auto element_bytes = static_cast<size_t>(hlo::byte_size(dtype));
    const hlo::DType kept = bytes % element_bytes == 0 ? dtype : hlo::DType::kU8;
    const auto count = static_cast<int64_t>(bytes) / hlo::byte_size(kept);
    content.value = record_flatten(old.value, old.layout, count, kept);
    content.layout = hlo::Layout::contiguous(hlo::Dims{count});
  }
  storage.set_data_ptr_noswap(std::move(pointer));
  storage.set_nbytes(bytes);
}

REGISTER_ALLOCATOR(c10::kPrivateUse1, device_allocator())

}  // namespace torch_tpu

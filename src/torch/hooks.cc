// The accelerator hooks, and the host allocator whose memory counts as pinned.
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/Storage.h>

#include <mutex>
#include <set>

#include "torch/device.h"
#include "torch/generator.h"
#include "torch/storage.h"

namespace torch_tpu {
namespace {

// Page-aligned host memory from the CPU allocator. XLA:CPU reads it in place; other platforms copy.
class PinnedAllocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    c10::DataPtr memory = c10::GetCPUAllocator()->allocate(bytes);
    auto* block = new Block{std::move(memory), bytes};
    void* address = block->memory.get();
    const std::lock_guard lock(mutex());
    blocks().insert({reinterpret_cast<uintptr_t>(address), block});
    return {address, block, &release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* destination, const void* source, std::size_t count) const override {
    default_copy_data(destination, source, count);
  }
  bool record_event(void*, void*, c10::Stream) override { return true; }
  void empty_cache() override {}
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}

  static bool contains(const void* pointer) {
    const auto address = reinterpret_cast<uintptr_t>(pointer);
    const std::lock_guard lock(mutex());
    auto next = blocks().upper_bound({address, reinterpret_cast<Block*>(~uintptr_t{0})});
    if (next == blocks().begin()) return false;
    const auto& [start, block] = *--next;
    return address < start + std::max<size_t>(block->bytes, 1);
  }

 private:
  struct Block {
    c10::DataPtr memory;
    size_t bytes;
  };
  static std::mutex& mutex() {
    static auto& instance = *new std::mutex;
    return instance;
  }
  static std::set<std::pair<uintptr_t, Block*>>& blocks() {
    static auto& instance = *new std::set<std::pair<uintptr_t, Block*>>;
    return instance;
  }
  static void release(void* context) {
    auto* block = static_cast<Block*>(context);
    {
      const std::lock_guard lock(mutex());
      blocks().erase({reinterpret_cast<uintptr_t>(block->memory.get()), block});
    }
    delete block;
  }
};

PinnedAllocator& pinned_allocator() {
  static PinnedAllocator& instance = *new PinnedAllocator;
  return instance;
}

class Hooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return engine::Runtime::available_devices() > 0; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return engine::Runtime::is_created(); }
  void init() const override { (void)runtime(); }
  c10::DeviceIndex deviceCount() const override {
    return static_cast<c10::DeviceIndex>(engine::Runtime::available_devices());
  }
  void setCurrentDevice(c10::DeviceIndex device) const override { set_current_device(device); }
  c10::DeviceIndex getCurrentDevice() const override {
    return static_cast<c10::DeviceIndex>(current_device());
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    const auto previous = getCurrentDevice();
    if (device != previous) set_current_device(device);
    return previous;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return device < 0 ? getCurrentDevice() : exchangeDevice(device);
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    return default_generator(device < 0 ? current_device() : device);
  }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override {
    return at::make_generator<TpuGenerator>(
        static_cast<c10::DeviceIndex>(device < 0 ? current_device() : device));
  }
  at::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator(); }
  bool isPinnedPtr(const void* pointer) const override { return PinnedAllocator::contains(pointer); }
  at::Device getDeviceFromPtr(void*) const override {
    return {c10::kPrivateUse1, static_cast<c10::DeviceIndex>(current_device())};
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    resize_storage(*storage.unsafeGetStorageImpl(), bytes);
  }
};

const bool kRegistered = [] {
  static Hooks& hooks = *new Hooks;
  at::RegisterPrivateUse1HooksInterface(&hooks);
  return true;
}();

}  // namespace

REGISTER_HOST_ALLOCATOR(at::kPrivateUse1, &pinned_allocator())

}  // namespace torch_tpu

// The device guard: current device, streams and events. Each device has one queue that orders all
// work, so streams are names and an event is a point in that order.
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <atomic>
#include <chrono>

#include "engine/capture.h"
#include "torch/device.h"
#include "torch/error.h"

namespace torch_tpu {
namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::Stream;
using Clock = std::chrono::steady_clock;

thread_local std::vector<c10::StreamId> current_streams;

struct Event {
  DeviceIndex device_index;
  Clock::time_point reached;
};

class GuardImpl final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return c10::kPrivateUse1; }
  Device exchangeDevice(Device device) const override {
    const Device previous = getDevice();
    if (device.index() != previous.index()) setDevice(device);
    return previous;
  }
  Device getDevice() const override {
    return {c10::kPrivateUse1, static_cast<DeviceIndex>(current_device())};
  }
  void setDevice(Device device) const override { set_current_device(device.index()); }
  void uncheckedSetDevice(Device device) const noexcept override {
    set_current_device_unchecked(device.index());
  }
  DeviceIndex deviceCount() const noexcept override {
    return static_cast<DeviceIndex>(engine::Runtime::available_devices());
  }

  Stream getStream(Device device) const noexcept override {
    const auto index = static_cast<size_t>(device.has_index() ? device.index() : current_device());
    const c10::StreamId id = index < current_streams.size() ? current_streams[index] : 0;
    return Stream(Stream::UNSAFE, Device(c10::kPrivateUse1, static_cast<DeviceIndex>(index)), id);
  }
  Stream getDefaultStream(Device device) const override { return Stream(Stream::DEFAULT, device); }
  Stream getNewStream(Device device, int) const override {
    static std::atomic<c10::StreamId> next{1};
    return Stream(Stream::UNSAFE, device, next++);
  }
  Stream getStreamFromGlobalPool(Device device, bool) const override { return getNewStream(device, 0); }
  Stream exchangeStream(Stream stream) const noexcept override {
    const Stream previous = getStream(stream.device());
    const auto index = static_cast<size_t>(stream.device_index());
    if (index >= current_streams.size()) current_streams.resize(index + 1, 0);
    current_streams[index] = stream.id();
    return previous;
  }
  void* getStreamNativeHandle(const Stream) const override { return nullptr; }
  bool queryStream(const Stream&) const override { return true; }
  void synchronizeStream(const Stream& stream) const override { synchronizeDevice(stream.device_index()); }
  void synchronizeDevice(DeviceIndex device_index) const override {
    if (!engine::Runtime::is_created() || engine::is_dry_run()) return;
    raise_if_error(queue_of(device_index < 0 ? current_device() : device_index).synchronize());
  }

  void record(void** event, const Stream& stream, DeviceIndex device_index,
              c10::EventFlag flag) const override {
    if (*event == nullptr) *event = new Event;
    auto* point = static_cast<Event*>(*event);
    point->device_index = device_index < 0 ? stream.device_index() : device_index;
    // Timing is honest only when the work before the event has run. Without it, order is all that an event
    // means.
    if (flag == c10::EventFlag::BACKEND_DEFAULT) synchronizeDevice(point->device_index);
    point->reached = Clock::now();
  }
  void block(void*, const Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void* event, DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) synchronizeDevice(static_cast<Event*>(event)->device_index);
  }
  double elapsedTime(void* start, void* end, DeviceIndex) const override {
    TORCH_CHECK(start != nullptr && end != nullptr,
                "Both events must be recorded before calculating elapsed time.");
    const auto elapsed = static_cast<Event*>(end)->reached - static_cast<Event*>(start)->reached;
    return std::chrono::duration<double, std::milli>(elapsed).count();
  }
  void recordDataPtrOnStream(const c10::DataPtr&, const Stream&) const override {}
};

}  // namespace

C10_REGISTER_GUARD_IMPL(PrivateUse1, GuardImpl)

}  // namespace torch_tpu

#include "torch/device.h"

#include "torch/error.h"

namespace torch_tpu {
namespace {
thread_local int current = 0;
}

int current_device() { return current; }

void set_current_device(int device_index) {
  if (device_index < 0 || device_index >= engine::Runtime::available_devices()) (void)queue_of(device_index);
  current = device_index;
}

void set_current_device_unchecked(int device_index) noexcept { current = device_index; }

engine::Runtime& runtime() { return *value_or_raise(engine::Runtime::get()); }

engine::Queue& queue_of(int device_index) {
  engine::Runtime& instance = runtime();
  if (device_index < 0 || device_index >= instance.device_count()) {
    raise(invalid_argument("invalid device: tpu:" + std::to_string(device_index) + " was asked for, and " +
                           std::to_string(instance.device_count()) + " tpu device(s) exist"));
  }
  return instance.queue(device_index);
}

}  // namespace torch_tpu

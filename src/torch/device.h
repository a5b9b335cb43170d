// The current device of each thread, and the queues behind device indices.
#pragma once

#include "engine/queue.h"
#include "engine/runtime.h"

namespace torch_tpu {

/// The calling thread's current device index.
int current_device();
/// Raises when there is no such device.
void set_current_device(int device_index);
/// Without checks, for destructors.
void set_current_device_unchecked(int device_index) noexcept;

/// The runtime; raises with the reason when it cannot be created.
engine::Runtime& runtime();
/// The queue of a device; raises for an index that does not exist.
engine::Queue& queue_of(int device_index);

}  // namespace torch_tpu

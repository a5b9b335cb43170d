// The C library's heap, from which the XLA:CPU plugin takes its buffers and its scratch memory.
//
// Left to itself the library gives large blocks back to the system whenever they are freed, and a
// program that runs again touches each page anew: a third of the time of a training step.
#pragma once

#include <cstdint>
#include <functional>
#include <thread>

namespace torch_tpu::heap {

/// From now on the process keeps up to `bytes` (at most 2 GiB) of freed memory, in one arena for all
/// threads that start later. Nothing happens for 0, or with another C library than glibc. Thread-safe.
void keep_freed(int64_t bytes);

/// Starts a thread whose blocks come from the arena that keep_freed keeps: what a thread is given may be
/// one that an ended thread left, of which large blocks go back at once. Throws std::system_error as
/// std::thread.
std::thread start_thread(std::function<void()> work);

/// Gives freed memory back to the system. Thread-safe.
void release_freed();

}  // namespace torch_tpu::heap

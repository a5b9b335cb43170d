// Synthetic addresses for device storages. Core insists that a storage has a data pointer; ours lie
// in a reserved range without access rights, so a stray read on the host faults instead of lying.
#pragma once

#include <cstddef>

namespace torch_tpu {

/// A unique range of `bytes` addresses (64-byte aligned) for `owner`. Thread-safe. Null when the
/// request exceeds what any device could hold.
void* reserve_address(size_t bytes, void* owner);
/// Gives the range back; it may be handed out again.
void release_address(void* address);
/// The owner of the live range that contains `address`, or null.
void* owner_of_address(const void* address);

}  // namespace torch_tpu

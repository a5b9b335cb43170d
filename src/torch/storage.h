// What a device storage holds: one immutable engine tensor and the layout in which it fills the
// storage. It hangs on the DataPtr's context, so that it follows the pointer through every path by
// which core makes, swaps or moves storages.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>

#include "engine/tensor.h"
#include "hlo/strided.h"

namespace torch_tpu {

/// Written by the thread that runs an in-place op; as with any torch tensor, concurrent writers
/// must synchronise themselves.
struct StorageContent {
  /// The elements, or null while nothing was written (reads as zeros).
  engine::TensorPtr value;
  /// Sizes are value->type.dims; strides are a permutation of row-major ones; offset 0.
  hlo::Layout layout;
  int device_index = 0;
};

/// The content behind a tensor of ours; also finds it for foreign storages built over our address.
StorageContent& content_of(const c10::TensorImpl& tensor);
StorageContent& content_of(const c10::StorageImpl& storage);

/// The allocator registered for the device: DataPtrs with a synthetic address and empty content.
c10::Allocator* device_allocator();

/// A fresh storage of `bytes` on device `device_index`.
c10::intrusive_ptr<c10::StorageImpl> make_storage(size_t bytes, int device_index);

/// Grows or shrinks, keeping the common prefix of the bytes.
void resize_storage(c10::StorageImpl& storage, size_t bytes);

}  // namespace torch_tpu

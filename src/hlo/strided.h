// Strided views of a dense value: how a (sizes, strides, offset) window of a storage is read from,
// and written into, the storage's value. Contiguous pieces become reshapes and slices; everything
// else a gather or a scatter.
#pragma once

#include "hlo/builder.h"

namespace torch_tpu::hlo {

/// A view in elements of its own dtype. A storage's base layout has offset 0 and strides that are a
/// permutation of its row-major ones (dense, without overlap).
struct Layout {
  Dims sizes;
  Dims strides;
  int64_t offset = 0;

  bool operator==(const Layout&) const = default;
  static Layout contiguous(std::span<const int64_t> sizes) {
    return {Dims(sizes), contiguous_strides(sizes), 0};
  }
};

/// True when the view's elements lie side by side without gaps or overlap, in any dimension order.
bool is_dense(const Layout& layout);

/// The view's elements as a row-major value of `dtype` and dimensions view.sizes. `base` holds the
/// storage's elements with strides `base_strides`. A dtype other than the base's reinterprets bits.
Value read_strided(const Value& base, std::span<const int64_t> base_strides, const Layout& view, DType dtype);

/// `base` with the view's elements replaced by `value` (dimensions view.sizes), in the base's own
/// type and strides. The view must not overlap itself.
Value write_strided(const Value& base, std::span<const int64_t> base_strides, const Layout& view,
                    const Value& value);

/// The storage's elements in memory order as rank 1, cut or zero-padded to `count` elements of
/// `dtype`.
Value flatten_memory(const Value& base, std::span<const int64_t> base_strides, int64_t count, DType dtype);

}  // namespace torch_tpu::hlo

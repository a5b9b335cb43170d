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

/// A view whose place along some dimensions of its base is left to run time, so that x[0], x[1] … are one
/// program: dimensions of more than four elements of which it holds one, and the outermost where it is a
/// window (a batch of a data set).
struct Placement {
  Layout view;  // at the start of these dimensions
  Dims grid;    // the dimensions as which memory is seen, row-major
  Dims dims;    // which of them are left to run time
  Dims starts;  // the first element along each of these
};

/// No more than the view where the view's place is fixed. `base` is the layout of a storage's value of the
/// view's dtype.
Placement place(const Layout& base, const Layout& view);

/// A placement in a program: starts are integers of rank 0.
struct PlacedGrid {
  Dims grid;
  Dims dims;
  Values starts;
};

/// The view's elements as a row-major value of `dtype` and dimensions view.sizes. `base` holds the
/// storage's elements with strides `base_strides`. A dtype other than the base's reinterprets bits.
/// `placed`: of the Placement whose view this is.
Value read_strided(const Value& base, std::span<const int64_t> base_strides, const Layout& view, DType dtype,
                   const PlacedGrid& placed = {});

/// `base` with the view's elements replaced by `value` (dimensions view.sizes), in the base's own
/// type and strides. The view must not overlap itself. `placed` as above.
Value write_strided(const Value& base, std::span<const int64_t> base_strides, const Layout& view,
                    const Value& value, const PlacedGrid& placed = {});

/// The storage's elements in memory order as rank 1, cut or zero-padded to `count` elements of
/// `dtype`.
Value flatten_memory(const Value& base, std::span<const int64_t> base_strides, int64_t count, DType dtype);

}  // namespace torch_tpu::hlo

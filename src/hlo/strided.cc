#include "hlo/strided.h"

#include <algorithm>
#include <numeric>
#include <optional>

namespace torch_tpu::hlo {
namespace {

// One dimension of a view that really moves: size > 1 and a nonzero stride.
struct Axis {
  int64_t size;
  int64_t stride;
  int64_t dim;  // in the view
};

// The moving axes, outermost in memory first.
std::vector<Axis> memory_axes(const Layout& view) {
  std::vector<Axis> axes;
  for (size_t i = 0; i < view.sizes.size(); ++i) {
    if (view.sizes[i] != 1 && view.strides[i] != 0) {
      axes.push_back({view.sizes[i], view.strides[i], static_cast<int64_t>(i)});
    }
  }
  std::stable_sort(axes.begin(), axes.end(),
                   [](const Axis& a, const Axis& b) { return a.stride > b.stride; });
  return axes;
}

Dims sizes_of(const std::vector<Axis>& axes) {
  Dims sizes;
  for (const Axis& axis : axes) sizes.push_back(axis.size);
  return sizes;
}

// Adjacent axes that together walk memory evenly become one: the fewest axes for the same elements.
std::vector<Axis> coalesce(const std::vector<Axis>& axes) {
  std::vector<Axis> merged;
  for (const Axis& axis : axes) {
    if (!merged.empty() && merged.back().stride == axis.size * axis.stride) {
      merged.back().size *= axis.size;
      merged.back().stride = axis.stride;
    } else {
      merged.push_back(axis);
    }
  }
  return merged;
}

// A box of a dense array: per dimension, `count` elements from `start` in steps of `step`.
struct Box {
  Dims grid;  // dimensions of the dense array that memory is seen as
  Dims start, count, step;
};

// Sees memory as `grid` (row-major) and each axis as a walk along one grid dimension of its own.
std::optional<Box> match_grid(const Dims& grid, const std::vector<Axis>& axes, int64_t offset) {
  const Dims strides = contiguous_strides(grid);
  Box box{grid, {}, Dims(grid.size(), 1), Dims(grid.size(), 1)};
  for (size_t d = 0; d < grid.size(); ++d) {
    box.start.push_back(offset / strides[d]);
    offset %= strides[d];
  }
  int64_t previous = -1;
  for (const Axis& axis : axes) {
    int64_t d = previous + 1;
    while (d < static_cast<int64_t>(grid.size()) && strides[d] > axis.stride) ++d;
    if (d == static_cast<int64_t>(grid.size()) || axis.stride % strides[d] != 0) return std::nullopt;
    box.step[d] = axis.stride / strides[d];
    box.count[d] = axis.size;
    if (box.start[d] + (axis.size - 1) * box.step[d] >= grid[d]) return std::nullopt;
    previous = d;
  }
  for (size_t d = 0; d < grid.size(); ++d) {
    if (box.start[d] >= grid[d]) return std::nullopt;
  }
  return box;
}

// The grid whose strides are those of the axes; its first dimension is rounded up.
std::optional<Dims> grid_of_axes(const std::vector<Axis>& axes, int64_t elements) {
  if (axes.empty()) return Dims{elements};
  Dims grid{(elements + axes[0].stride - 1) / axes[0].stride};
  for (size_t i = 0; i + 1 < axes.size(); ++i) {
    if (axes[i].stride % axes[i + 1].stride != 0) return std::nullopt;
    grid.push_back(axes[i].stride / axes[i + 1].stride);
  }
  if (axes.back().stride != 1) grid.push_back(axes.back().stride);
  return grid;
}

Value resize_flat(const Value& flat, int64_t count) {
  const int64_t have = flat.dim(0);
  if (have > count) return slice_dim(flat, 0, 0, count);
  if (have == count) return flat;
  const Value zero = flat.builder->splat(int64_t{0}, {flat.dtype(), {}});
  return pad(flat, zero, Dims{0}, Dims{count - have});
}

Value to_grid(const Value& memory, const Dims& grid) {
  if (memory.type.elements() == element_count(grid)) return reshape(memory, grid);
  return reshape(resize_flat(reshape(memory, Dims{memory.type.elements()}), element_count(grid)), grid);
}

// A box of which the places of some dimensions are `starts`: the window of memory that these dimensions
// cut out, and the box in it.
struct Window {
  Dims sizes;
  Values starts;
  Box box;
};

Window window_of(const Value& grid, const Box& box, const PlacedGrid& placed) {
  Window window{box.grid, Values(box.grid.size(), grid.builder->splat(int64_t{0}, {DType::kS64, {}})), box};
  for (size_t i = 0; i < placed.dims.size(); ++i) {
    const int64_t d = placed.dims[i];
    window.starts[d] = placed.starts[i];
    window.sizes[d] = window.box.grid[d] = box.count[d];
    window.box.start[d] = 0;
  }
  return window;
}

Value read_box(const Value& memory, const Box& box, const PlacedGrid& placed) {
  const Value grid = to_grid(memory, box.grid);
  if (!placed.dims.empty()) {
    const Window window = window_of(grid, box, placed);
    return read_box(dynamic_slice(grid, window.starts, window.sizes), window.box, {});
  }
  Dims limit;
  for (size_t d = 0; d < box.grid.size(); ++d)
    limit.push_back(box.start[d] + (box.count[d] - 1) * box.step[d] + 1);
  return slice(grid, box.start, limit, box.step);
}

Value write_box(const Value& memory, const Box& box, const Value& value, const PlacedGrid& placed) {
  Builder& builder = *memory.builder;
  const Value grid = to_grid(memory, box.grid);
  if (!placed.dims.empty()) {
    const Window window = window_of(grid, box, placed);
    const Value before = dynamic_slice(grid, window.starts, window.sizes);
    const Value after = write_box(before, window.box, value, {});
    return reshape(dynamic_update_slice(grid, after, window.starts), memory.dims());
  }
  const Value update = reshape(value, box.count);
  Value result;
  if (box.count == box.grid) {
    result = update;
  } else if (std::all_of(box.step.begin(), box.step.end(), [](int64_t step) { return step == 1; })) {
    Values starts;
    for (const int64_t start : box.start) starts.push_back(builder.splat(start, {DType::kS64, {}}));
    result = dynamic_update_slice(grid, update, starts);
  } else {
    Dims high, interior;
    for (size_t d = 0; d < box.grid.size(); ++d) {
      high.push_back(box.grid[d] - box.start[d] - ((box.count[d] - 1) * box.step[d] + 1));
      interior.push_back(box.count[d] > 1 ? box.step[d] - 1 : 0);
    }
    const Value zero = builder.splat(int64_t{0}, {value.dtype(), {}});
    const Value no = builder.splat(0.0, {DType::kPred, {}});
    const Value all = builder.splat(1.0, {DType::kPred, box.count});
    result =
        select(pad(all, no, box.start, high, interior), pad(update, zero, box.start, high, interior), grid);
  }
  const int64_t elements = memory.type.elements();
  if (element_count(box.grid) == elements) return reshape(result, memory.dims());
  const Value flat = reshape(result, Dims{element_count(box.grid)});
  return reshape(resize_flat(flat, elements), memory.dims());
}

// The flat positions of all elements of the axes, as [count, 1] for gather and scatter.
Value flat_indices(Builder& builder, const std::vector<Axis>& axes, int64_t offset, int64_t elements) {
  const DType dtype = elements < (int64_t{1} << 31) ? DType::kS32 : DType::kS64;
  const Type type{dtype, sizes_of(axes)};
  Value index = builder.splat(offset, type);
  for (size_t i = 0; i < axes.size(); ++i) {
    index = index + builder.iota(type, static_cast<int64_t>(i)) * static_cast<double>(axes[i].stride);
  }
  return reshape(index, Dims{type.elements(), 1});
}

// The dimensions of a dense layout, outermost in memory first.
Dims outermost_first(std::span<const int64_t> sizes, std::span<const int64_t> strides) {
  Dims permutation(sizes.size());
  std::iota(permutation.begin(), permutation.end(), 0);
  std::stable_sort(permutation.begin(), permutation.end(), [&](int64_t a, int64_t b) {
    const int64_t a_stride = sizes[a] == 1 ? -1 : strides[a];
    const int64_t b_stride = sizes[b] == 1 ? -1 : strides[b];
    return a_stride > b_stride;
  });
  return permutation;
}

// The base transposed so that its dimensions follow memory.
struct Memory {
  Value value;
  Dims permutation;
};

Memory memory_order(const Value& base, std::span<const int64_t> strides) {
  const Dims permutation = outermost_first({base.dims().data(), base.dims().size()}, strides);
  return {transpose(base, permutation), permutation};
}

Dims inverse(const Dims& permutation) {
  Dims result(permutation.size());
  for (size_t i = 0; i < permutation.size(); ++i) result[permutation[i]] = static_cast<int64_t>(i);
  return result;
}

DType unsigned_integer(int64_t bytes) {
  return bytes == 1 ? DType::kU8 : bytes == 2 ? DType::kU16 : bytes == 4 ? DType::kU32 : DType::kU64;
}

// Each element of a rank-1 value as a row of `count` unsigned integers, the lowest bits first. By shifts:
// XLA joins a narrowing bitcast with the one before it, to a shape that it then refuses.
Value split_words(const Value& flat, int64_t count) {
  const int64_t bytes = byte_size(flat.dtype());
  const int64_t part_bytes = bytes / count;
  const Value words = bitcast(flat, {unsigned_integer(bytes), flat.dims()});
  const Type type{words.dtype(), {flat.dim(0), count}};
  const Value shifts = flat.builder->iota(type, 1) * static_cast<double>(8 * part_bytes);
  const Value shifted = binary("shift_right_logical", broadcast_in_dim(words, type.dims, Dims{0}), shifts);
  return convert(shifted, unsigned_integer(part_bytes));
}

// Bits of a rank-1 value seen as another dtype.
Value reinterpret_flat(const Value& flat, DType dtype) {
  if (flat.dtype() == dtype) return flat;
  if (flat.dtype() == DType::kPred) return reinterpret_flat(convert(flat, DType::kU8), dtype);
  if (dtype == DType::kPred) return convert(reinterpret_flat(flat, DType::kU8), DType::kPred);
  if (is_complex(flat.dtype())) {
    const int64_t n = flat.dim(0);
    const Value parts = concatenate({reshape(real(flat), Dims{n, 1}), reshape(imag(flat), Dims{n, 1})}, 1);
    return reinterpret_flat(reshape(parts, Dims{2 * n}), dtype);
  }
  if (is_complex(dtype)) {
    const Value parts = reinterpret_flat(flat, real_type(dtype));
    const int64_t n = parts.dim(0) / 2;
    const Value pairs = reshape(resize_flat(parts, 2 * n), Dims{n, 2});
    const Value re = slice_dim(pairs, 1, 0, 1);
    const Value im = slice_dim(pairs, 1, 1, 2);
    return reshape(complex(re, im), Dims{pairs.dim(0)});
  }
  const int64_t from = byte_size(flat.dtype());
  const int64_t to = byte_size(dtype);
  if (from == to) return bitcast(flat, {dtype, flat.dims()});
  if (from > to) {
    const Value parts = split_words(flat, from / to);
    return reshape(bitcast(parts, {dtype, parts.dims()}), Dims{parts.type.elements()});
  }
  const int64_t group = to / from;
  const Value whole = resize_flat(flat, flat.dim(0) / group * group);
  return bitcast(reshape(whole, Dims{whole.dim(0) / group, group}), {dtype, {whole.dim(0) / group}});
}

Dims without_ones(const Dims& sizes) {
  Dims moving;
  for (const int64_t size : sizes) {
    if (size != 1) moving.push_back(size);
  }
  return moving;
}

// How memory of the given dimensions is seen by the axes, or nothing when only indices describe it.
// `order` receives the axes that the box's dimensions stand for.
std::optional<Box> find_box(const Dims& memory_dims, const std::vector<Axis>& axes, int64_t offset) {
  if (auto box = match_grid(without_ones(memory_dims), axes, offset)) return box;
  const std::vector<Axis> merged = coalesce(axes);
  if (const auto own = grid_of_axes(merged, element_count(memory_dims)))
    return match_grid(*own, merged, offset);
  return std::nullopt;
}

// A base whose memory is too short for the view (after a resize) reads zeros there.
int64_t required_elements(const std::vector<Axis>& axes, int64_t offset) {
  int64_t last = offset;
  for (const Axis& axis : axes) last += (axis.size - 1) * axis.stride;
  return last + 1;
}

// Whether the box's place along dimension d of its grid is left to run time (see Placement).
bool moves(const Box& box, size_t d) {
  constexpr int64_t kFewPlaces = 4;
  const bool is_window = d == 0 && box.step[d] == 1 && box.count[d] < box.grid[d];
  return box.grid[d] > kFewPlaces && (box.count[d] == 1 || is_window);
}

Placement place_in(const Dims& grid, const std::vector<Axis>& axes, const Layout& view) {
  Placement placement{view, grid, {}, {}};
  const auto box = match_grid(grid, axes, view.offset);
  if (!box) return {view, {}, {}, {}};
  const Dims strides = contiguous_strides(grid);
  for (size_t d = 0; d < grid.size(); ++d) {
    if (!moves(*box, d)) continue;
    placement.dims.push_back(static_cast<int64_t>(d));
    placement.starts.push_back(box->start[d]);
    placement.view.offset -= box->start[d] * strides[d];
  }
  return placement.starts.empty() ? Placement{view, {}, {}, {}} : placement;
}

// The box of a view that has one, in the grid where it was placed or else in the simplest one.
std::optional<Box> box_of(const Value& memory, const std::vector<Axis>& axes, int64_t offset,
                          const PlacedGrid& placed) {
  if (placed.grid.empty()) return find_box(memory.dims(), axes, offset);
  auto box = match_grid(placed.grid, axes, offset);
  if (!box) box = match_grid(placed.grid, coalesce(axes), offset);
  if (!box) memory.builder->fail(Code::kInternal, "a view leaves the grid in which it was placed");
  return box;
}

}  // namespace

bool is_dense(const Layout& layout) {
  int64_t expected = 1;
  const std::vector<Axis> axes = memory_axes(layout);
  for (size_t i = axes.size(); i-- > 0;) {
    if (axes[i].stride != expected) return false;
    expected *= axes[i].size;
  }
  return expected == element_count(layout.sizes);
}

Placement place(const Layout& base, const Layout& view) {
  if (element_count(view.sizes) == 0) return {view, {}, {}, {}};
  const std::vector<Axis> axes = memory_axes(view);
  Dims grid;
  for (const int64_t dim :
       outermost_first({base.sizes.data(), base.sizes.size()}, {base.strides.data(), base.strides.size()})) {
    if (base.sizes[dim] != 1) grid.push_back(base.sizes[dim]);
  }
  Placement placement = place_in(grid, axes, view);
  if (!placement.starts.empty()) return placement;
  // A view of a view: x.view(rows, columns)[:, k] of a flat x.
  const auto own = grid_of_axes(coalesce(axes), element_count(grid));
  if (!own || own->size() <= grid.size() || element_count(*own) != element_count(grid)) return placement;
  return place_in(*own, coalesce(axes), view);
}

Value flatten_memory(const Value& base, std::span<const int64_t> base_strides, int64_t count, DType dtype) {
  const Memory memory = memory_order(base, base_strides);
  const Value flat = reshape(memory.value, Dims{base.type.elements()});
  return resize_flat(reinterpret_flat(flat, dtype), count);
}

Value read_strided(const Value& base, std::span<const int64_t> base_strides, const Layout& view, DType dtype,
                   const PlacedGrid& placed) {
  Builder& builder = *base.builder;
  const Type result{dtype, view.sizes};
  if (result.elements() == 0) return builder.splat(int64_t{0}, result);
  const std::vector<Axis> axes = memory_axes(view);
  Value memory = memory_order(base, base_strides).value;
  const int64_t needed = required_elements(axes, view.offset);
  const int64_t available = base.type.bytes() / byte_size(dtype);
  if (base.dtype() != dtype || needed > available) {
    memory = flatten_memory(base, base_strides, std::max(needed, available), dtype);
  }

  Value value;
  if (const auto box = box_of(memory, axes, view.offset, placed)) {
    value = read_box(memory, *box, placed);
  } else {
    const int64_t elements = memory.type.elements();
    const Value flat = reshape(memory, Dims{elements});
    const GatherDims dims{{}, {0}, {0}, {1}, 1};
    value = gather(flat, flat_indices(builder, axes, view.offset, elements), dims);
  }
  // Memory order -> the view's order, then the dimensions of size one and stride zero.
  value = reshape(value, sizes_of(axes));
  Dims order(axes.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return axes[a].dim < axes[b].dim; });
  value = transpose(value, order);
  Dims squeezed = view.sizes;
  bool broadcasts = false;
  for (size_t i = 0; i < view.sizes.size(); ++i) {
    if (view.strides[i] == 0 && view.sizes[i] != 1) {
      squeezed[i] = 1;
      broadcasts = true;
    }
  }
  if (!broadcasts) return reshape(value, view.sizes);
  Dims mapping;
  for (const int64_t i : order) mapping.push_back(axes[i].dim);
  return broadcast_in_dim(value, view.sizes, mapping);
}

Value write_strided(const Value& base, std::span<const int64_t> base_strides, const Layout& view,
                    const Value& value, const PlacedGrid& placed) {
  if (value.type.elements() == 0) return base;
  Builder& builder = *base.builder;
  const std::vector<Axis> axes = memory_axes(view);
  const Memory ordered = memory_order(base, base_strides);
  const bool reinterprets = base.dtype() != value.dtype();
  Value memory = ordered.value;
  if (reinterprets) {
    memory = flatten_memory(base, base_strides, base.type.bytes() / byte_size(value.dtype()), value.dtype());
  }
  Dims order;
  for (const Axis& axis : axes) order.push_back(axis.dim);
  const Dims moving = without_ones(view.sizes);
  // Squeeze, then bring the update into memory order.
  Dims rank_of_dim(view.sizes.size(), 0);
  int64_t rank = 0;
  for (size_t i = 0; i < view.sizes.size(); ++i) {
    rank_of_dim[i] = rank;
    if (view.sizes[i] != 1) ++rank;
  }
  for (int64_t& dim : order) dim = rank_of_dim[dim];
  const Value update = transpose(reshape(value, moving), order);

  Value written;
  if (const auto box = box_of(memory, axes, view.offset, placed)) {
    written = write_box(memory, *box, update, placed);
  } else {
    const int64_t elements = memory.type.elements();
    const Value indices = flat_indices(builder, axes, view.offset, elements);
    const ScatterDims dims{{}, {0}, {0}, 1, true};
    const Value flat =
        scatter(reshape(memory, Dims{elements}), indices, reshape(update, Dims{indices.dim(0)}), dims,
                [](const Values& pair) { return Values{pair[1]}; });
    written = reshape(flat, memory.dims());
  }
  if (reinterprets) {
    const int64_t elements = base.type.elements();
    Value flat = reinterpret_flat(reshape(written, Dims{written.type.elements()}), base.dtype());
    if (const int64_t covered = flat.dim(0); covered < elements) {
      // The rest of the storage is too short for an element of the view's dtype.
      flat = concatenate({flat, slice_dim(reshape(ordered.value, Dims{elements}), 0, covered, elements)}, 0);
    }
    written = reshape(flat, ordered.value.dims());
  }
  return transpose(written, inverse(ordered.permutation));
}

}  // namespace torch_tpu::hlo

// Operations that move elements: whatever changes places must not bring invalid elements among valid ones.
#include <algorithm>

#include "hlo/bounding.h"
#include "hlo/operation_text.h"

namespace torch_tpu::hlo {

// Dimensions form groups of equal products on both sides, of each at most one varies. Within a group elements
// keep their numbers: valid ones stay in front when the varying dimension is the outermost. Otherwise the
// rows of the outer ones are moved together, or apart.
Value Bounding::reshape(const Operation& op) {
  const Extents& from = extents_of(op.operands[0]);
  const Extents& to = extents_of(op.results[0]);
  std::vector<Rows> from_groups, to_groups;
  for (size_t i = 0, k = 0; i < from.size() || k < to.size();) {
    const size_t from_begin = i;
    const size_t to_begin = k;
    std::array<int64_t, 3> from_product{1, 1, 1};
    std::array<int64_t, 3> to_product{1, 1, 1};
    const auto take = [&](const Extent& extent, std::array<int64_t, 3>& product) {
      for (size_t j = 0; j < sizes_.size(); ++j) product[j] *= extent.at(sizes_[j]);
    };
    do {
      if (k == to.size() || (i < from.size() && from_product[0] <= to_product[0])) {
        if (i == from.size()) refuse("a reshape of other groups");
        take(from[i++], from_product);
      } else {
        take(to[k++], to_product);
      }
    } while (from_product != to_product);
    from_groups.push_back(rows_of(from, from_begin, i));
    to_groups.push_back(rows_of(to, to_begin, k));
  }
  Value x = copies_.at(op.operands[0].name);
  for (size_t g = 0; g < from_groups.size(); ++g) {
    if (from_groups[g].count > 1) x = joined(x, from_groups, g);
  }
  for (size_t g = 0; g < to_groups.size(); ++g) {
    if (to_groups[g].count > 1) x = parted(x, to_groups, g);
  }
  return hlo::reshape(x, op.results[0].dims());
}

Bounding::Rows Bounding::rows_of(const Extents& extents, size_t begin, size_t end) const {
  Rows rows;
  for (size_t i = begin; i < end; ++i) {
    const Extent& extent = extents[i];
    if (extent.varies()) {
      if (rows.extent.varies()) refuse("a reshape of two dimensions that vary");
      rows.count = rows.extent.offset;
      rows.extent = extent;
    } else {
      rows.extent = {rows.extent.offset * extent.offset, rows.extent.slope * extent.offset};
    }
  }
  if (!rows.extent.varies()) rows.count = 1;
  if (rows.count > kMostRows) refuse("a reshape of many rows");
  rows.size = rows.extent.at(sizes_[0]);
  return rows;
}

Dims Bounding::around(const Value& x, const std::vector<Rows>& groups, size_t group) {
  int64_t before = 1;
  for (size_t g = 0; g < group; ++g) before *= groups[g].count * groups[g].size;
  const int64_t own = groups[group].count * groups[group].size;
  return {before, groups[group].count, groups[group].size, x.type.elements() / before / own};
}

// Each row covers what is invalid in the one before it.
Value Bounding::joined(const Value& x, const std::vector<Rows>& groups, size_t group) {
  const Dims dims = around(x, groups, group);
  const Value rows = hlo::reshape(x, dims);
  const Value zero = out_.splat(int64_t{0}, {DType::kS32, {}});
  Value flat = hlo::reshape(x, Dims{dims[0], dims[1] * dims[2], dims[3]});
  for (int64_t row = 1; row < dims[1]; ++row) {
    const Value part = hlo::reshape(slice_dim(rows, 1, row, row + 1), Dims{dims[0], dims[2], dims[3]});
    const Extent& extent = groups[group].extent;
    flat = dynamic_update_slice(flat, part, {zero, number({row * extent.offset, row * extent.slope}), zero});
  }
  return flat;
}

Value Bounding::parted(const Value& x, const std::vector<Rows>& groups, size_t group) {
  const Dims dims = around(x, groups, group);
  const Value flat = hlo::reshape(x, Dims{dims[0], dims[1] * dims[2], dims[3]});
  const Value zero = out_.splat(int64_t{0}, {DType::kS32, {}});
  Values rows;
  for (int64_t row = 0; row < dims[1]; ++row) {
    const Extent& extent = groups[group].extent;
    rows.push_back(hlo::dynamic_slice(flat, {zero, number({row * extent.offset, row * extent.slope}), zero},
                                      Dims{dims[0], dims[2], dims[3]}));
  }
  return concatenate(rows, 1);
}

Value Bounding::slice(const std::array<const Operation*, 3>& all) {
  const Operation& op = *all[0];
  const Value& x = op.operands[0];
  std::array<Dims, 3> starts;
  for (size_t i = 0; i < all.size(); ++i) {
    starts[i] = numbers_of(all[i]->attributes, "start_indices");
    if (numbers_of(all[i]->attributes, "strides") != numbers_of(op.attributes, "strides"))
      refuse("other strides");
  }
  const Dims strides = numbers_of(op.attributes, "strides");
  Values run_time_starts;
  bool moves = false;
  for (int64_t i = 0; i < x.rank(); ++i) {
    const Extent start = line({starts[0][i], starts[1][i], starts[2][i]});
    moves = moves || start.varies();
    if (start.slope < 0) refuse("a slice that starts earlier in larger tensors");
    run_time_starts.push_back(number(start));
  }
  if (!moves) return plain(op)[0];
  if (std::any_of(strides.begin(), strides.end(), [](int64_t stride) { return stride != 1; }))
    refuse("a slice with strides");
  return hlo::dynamic_slice(copies_.at(x.name), run_time_starts, op.results[0].dims());
}

// Every part covers what is invalid in the one before it.
Value Bounding::concatenation(const Operation& op) {
  const int64_t dim = numbers_of(op.attributes, "dimension")[0];
  const Value& whole = op.results[0];
  if (!extents_of(whole)[dim].varies()) return plain(op)[0];
  const Value zero = out_.splat(int64_t{0}, {DType::kS32, {}});
  Value result;
  Extent offset;
  for (const Value& part : op.operands) {
    const Value copy = copies_.at(part.name);
    if (result.builder == nullptr) {
      Dims high(whole.dims().size(), 0);
      high[dim] = whole.dim(dim) - part.dim(dim);
      result = hlo::pad(copy, out_.splat(0.0, {part.dtype(), {}}), Dims(high.size(), 0), high);
    } else {
      Values starts(whole.dims().size(), zero);
      starts[dim] = number(offset);
      result = dynamic_update_slice(result, copy, starts);
    }
    const Extent& extent = extents_of(part)[dim];
    if (extent.slope < 0) refuse("a part that shrinks");
    offset = {offset.offset + extent.offset, offset.slope + extent.slope};
  }
  return result;
}

Value Bounding::padding(const std::array<const Operation*, 3>& all) {
  const Operation& op = *all[0];
  const Value& x = op.operands[0];
  std::array<Dims, 3> low;
  for (size_t i = 0; i < all.size(); ++i) low[i] = numbers_of(all[i]->attributes, "edge_padding_low");
  const Dims interior = numbers_of(op.attributes, "interior_padding");
  Values operands{copies_.at(x.name), copies_.at(op.operands[1].name)};
  Value result = again(op, operands)[0];
  for (int64_t i = 0; i < x.rank(); ++i) {
    const Extent below = line({low[0][i], low[1][i], low[2][i]});
    const Extent& extent = extents_of(x)[i];
    if (!extent.varies() && !below.varies()) continue;
    if (below.varies() || interior[i] != 0) refuse("padding that moves");
    const Extent end{extent.offset + below.offset, extent.slope};
    const Value inside = hlo::compare(Compare::kLt, out_.iota({DType::kS32, result.dims()}, i), number(end));
    result = select(inside, result, broadcast_to(operands[1], result.dims()));
  }
  return result;
}

// A window that grows from a start given at run time may leave the operand at the bound, where its start is
// clamped: then what was clamped is moved to the front.
Value Bounding::dynamic_slice(const Operation& op) {
  const Value& x = op.operands[0];
  const Extents& to = extents_of(op.results[0]);
  Value result = plain(op)[0];
  for (int64_t i = 0; i < x.rank(); ++i) {
    const Extent& from = extents_of(x)[i];
    if (!to[i].varies() || to[i] == from) continue;
    if (from.varies() && from.slope < to[i].slope) refuse("a window that grows faster");
    if (from.varies()) continue;  // its last start is no earlier at the bound
    const Value start = copies_.at(op.operands[i + 1].name);
    const Value last = out_.splat(x.dim(i) - result.dim(i), {start.dtype(), {}});
    result = moved_to_front(result, i, convert(start - minimum(start, last), DType::kS32));
  }
  return result;
}

Value Bounding::moved_to_front(const Value& x, int64_t dim, const Value& count) {
  Dims high(x.dims().size(), 0);
  high[dim] = x.dim(dim);
  const Value longer = hlo::pad(x, out_.splat(0.0, {x.dtype(), {}}), Dims(high.size(), 0), high);
  Values starts(x.dims().size(), out_.splat(int64_t{0}, {DType::kS32, {}}));
  starts[dim] = count;
  return hlo::dynamic_slice(longer, starts, x.dims());
}

Value Bounding::reversed(const Operation& op) {
  Value result = plain(op)[0];
  for (const int64_t i : numbers_of(op.attributes, "dimensions")) {
    const Extent& extent = extents_of(op.operands[0])[i];
    if (extent.varies())
      result = moved_to_front(result, i, number({result.dim(i) - extent.offset, -extent.slope}));
  }
  return result;
}

// An update that grows from a start given at run time: what it does not cover is written back as it was.
Value Bounding::update_slice(const Operation& op) {
  const Value& whole = op.operands[0];
  const Value& part = op.operands[1];
  Dims growing;
  for (int64_t i = 0; i < whole.rank(); ++i) {
    const Extent& extent = extents_of(part)[i];
    if (extent.varies() && !(extent == extents_of(whole)[i])) growing.push_back(i);
  }
  if (growing.empty()) return plain(op)[0];
  if (growing.size() > 1) refuse("an update that grows in two dimensions");
  const int64_t dim = growing[0];
  const Extent& around = extents_of(whole)[dim];
  if (around.varies() && around.slope < extents_of(part)[dim].slope) refuse("an update that grows faster");
  Values starts;
  for (size_t i = 2; i < op.operands.size(); ++i) starts.push_back(copies_.at(op.operands[i].name));
  const Value last = out_.splat(whole.dim(dim) - part.dim(dim), {starts[dim].dtype(), {}});
  const Value start = starts[dim];
  starts[dim] = minimum(start, last);
  const Value shift = convert(start - starts[dim], DType::kS32);
  const Value before = hlo::dynamic_slice(copies_.at(whole.name), starts, part.dims());
  const Value positions = out_.iota({DType::kS32, part.dims()}, dim);
  const Value end = shift + number(extents_of(part)[dim]);
  const Value covered = hlo::compare(Compare::kGe, positions, broadcast_to(shift, part.dims())) &
                        hlo::compare(Compare::kLt, positions, broadcast_to(end, part.dims()));
  const Value moved = moved_back(copies_.at(part.name), dim, shift);
  return dynamic_update_slice(copies_.at(whole.name), select(covered, moved, before), starts);
}

Value Bounding::moved_back(const Value& x, int64_t dim, const Value& count) {
  Dims low(x.dims().size(), 0);
  low[dim] = x.dim(dim);
  const Value longer = hlo::pad(x, out_.splat(0.0, {x.dtype(), {}}), low, Dims(low.size(), 0));
  Values starts(x.dims().size(), out_.splat(int64_t{0}, {DType::kS32, {}}));
  starts[dim] = out_.splat(x.dim(dim), {DType::kS32, {}}) - count;
  return hlo::dynamic_slice(longer, starts, x.dims());
}

}  // namespace torch_tpu::hlo

// Operators that read elements by index, and the gathers and scatters they share with others.
#include <limits>

#include "ops/indexing.h"
#include "ops/pointwise.h"
#include "ops/promotion.h"
#include "ops/require.h"

namespace torch_tpu::ops {

std::string_view scalar_type_name(DType dtype) {
  switch (dtype) {
    case DType::kPred:
      return "Bool";
    case DType::kU8:
      return "Byte";
    case DType::kU16:
      return "UInt16";
    case DType::kU32:
      return "UInt32";
    case DType::kU64:
      return "UInt64";
    case DType::kS8:
      return "Char";
    case DType::kS16:
      return "Short";
    case DType::kS32:
      return "Int";
    case DType::kS64:
      return "Long";
    case DType::kF16:
      return "Half";
    case DType::kBF16:
      return "BFloat16";
    case DType::kF32:
      return "Float";
    case DType::kF64:
      return "Double";
    case DType::kC64:
      return "ComplexFloat";
    case DType::kC128:
      return "ComplexDouble";
    default:
      return hlo::name(dtype);
  }
}

std::string_view cpp_name(DType dtype) {
  switch (dtype) {
    case DType::kPred:
      return "bool";
    case DType::kS8:
      return "signed char";
    case DType::kU8:
      return "unsigned char";
    case DType::kS16:
      return "short";
    case DType::kS32:
      return "int";
    case DType::kS64:
      return "long";
    case DType::kF16:
      return "c10::Half";
    case DType::kBF16:
      return "c10::BFloat16";
    case DType::kF32:
      return "float";
    case DType::kF64:
      return "double";
    default:
      return scalar_type_name(dtype);
  }
}

DType offset_dtype(int64_t bound) {
  return bound <= std::numeric_limits<int32_t>::max() ? DType::kS32 : DType::kS64;
}

Value offsets(const Value& index, int64_t size) { return hlo::convert(index, offset_dtype(size)); }

Value wrapped_offsets(const Value& index, int64_t size) {
  const Value plain = offsets(index, size);
  return select(compare(hlo::Compare::kLt, plain, 0.0), plain + static_cast<double>(size), plain);
}

Value flatten(const Value& x) { return reshape(x, Dims{x.type.elements()}); }
Value at_least_1d(const Value& x) { return x.rank() == 0 ? reshape(x, Dims{1}) : x; }
hlo::Region replace() {
  return [](const Values& pair) -> Values { return {pair[1]}; };
}

namespace {

// Gathers whose result or operand is empty never reach XLA, which refuses slices of empty dimensions.
bool is_empty_gather(const Value& x, int64_t count) {
  if (count > 0 && x.type.elements() == 0) {
    x.builder->fail(Code::kIndexError, "index is out of bounds for dimension with size 0");
  }
  return count == 0;
}

}  // namespace

Value take_slices(const Value& x, int64_t dim, const Value& index) {
  Type type{x.dtype(), {}};
  hlo::GatherDims dims;
  dims.slice_sizes = x.dims();
  dims.slice_sizes[dim] = 1;
  dims.collapsed_slice_dims = {dim};
  dims.start_index_map = {dim};
  dims.index_vector_dim = index.rank();
  for (int64_t i = 0; i < x.rank(); ++i) {
    if (i == dim) {
      for (const int64_t size : index.dims()) type.dims.push_back(size);
    } else {
      dims.offset_dims.push_back(type.rank());
      type.dims.push_back(x.dim(i));
    }
  }
  if (is_empty_gather(x, type.elements())) return x.builder->splat(0.0, type);
  return gather(x, offsets(index, x.dim(dim)), dims);
}

Value take_elements(const Value& x, const Value& offsets) { return take_slices(flatten(x), 0, offsets); }

Value element_offsets(const Value& index, const Dims& dims, int64_t dim) {
  const int64_t count = hlo::element_count(dims);
  const Dims strides = hlo::contiguous_strides(dims);
  const Type type{offset_dtype(count), index.dims()};
  Value result = offsets(index, count);
  if (strides[dim] != 1) result = result * static_cast<double>(strides[dim]);
  for (int64_t i = 0; i < index.rank(); ++i) {
    if (i == dim || index.dim(i) <= 1) continue;
    const Value place = index.builder->iota(type, i);
    result = result + (strides[i] == 1 ? place : place * static_cast<double>(strides[i]));
  }
  return result;
}

Value take_along(const Value& x, int64_t dim, const Value& index) {
  return take_elements(x, element_offsets(index, x.dims(), dim));
}

Value written_once(const Value& x, const Value& updates, const Value& written) {
  constexpr int64_t kFew = 8;  // of so many elements, one
  return updates.type.elements() * kFew <= x.type.elements() ? opaque(written) : written;
}

Value scatter_slices(const Value& x, int64_t dim, const Value& index, const Value& updates,
                     const hlo::Region& combine) {
  if (updates.type.elements() == 0 || x.type.elements() == 0) return x;
  hlo::ScatterDims dims;
  for (int64_t i = 0; i < x.rank(); ++i) {
    if (i != dim) dims.update_window_dims.push_back(i);
  }
  dims.inserted_window_dims = {dim};
  dims.scatter_dims_to_operand_dims = {dim};
  dims.index_vector_dim = 1;
  return written_once(x, updates, scatter(x, offsets(index, x.dim(dim)), updates, dims, combine));
}

Value scatter_elements(const Value& x, const Value& offsets, const Value& updates,
                       const hlo::Region& combine) {
  return reshape(scatter_slices(flatten(x), 0, flatten(offsets), flatten(updates), combine), x.dims());
}

OP("aten::index_select", .distinct = true) {
  const Value self = op.tensor(0);
  if (op.tensor(2).rank() > 1) op.fail(Code::kIndexError, "index_select(): Index is supposed to be a vector");
  const Value index = at_least_1d(op.tensor(2));
  const int64_t dim = op.dim(1, self.rank());
  const int64_t size = at_least_1d(self).dim(dim);
  // The CPU has a kernel of its own for the first dimension.
  if (dim == 0) {
    check_range(op, index, 0, size, Code::kIndexError, "index out of range in self: {}");
  } else if (self.type.elements() > 0) {
    check_range(op, index, 0, size, Code::kInvalidArgument,
                "INDICES element is out of DATA bounds, id={} axis_dim=" + std::to_string(size));
  }
  const Value result = take_slices(at_least_1d(self), dim, index);
  return {self.rank() == 0 ? reshape(result, {}) : result};
}

OP("aten::gather", .distinct = true, .aligned = {2}) {
  const Value self = op.tensor(0);
  const Value index = op.tensor(2);
  const int64_t dim = op.dim(1, self.rank());
  check_indices(op, index, dim, at_least_1d(self).dim(dim), false, Code::kInvalidArgument);
  return {reshape(take_along(at_least_1d(self), dim, at_least_1d(index)), index.dims())};
}

OP("aten::take", .distinct = true) {
  const Value self = op.tensor(0);
  check_flat_indices(op, op.tensor(1), self.type.elements());
  return {take_elements(self, wrapped_offsets(op.tensor(1), self.type.elements()))};
}

namespace {

// What x[indices] touches: the operand in a shape fit for one gather or scatter, the index, and
// where the dimensions of the index stand in the result.
struct Selection {
  Value operand;
  Value index;             // [shape...], or [shape..., n] for n separate dimensions
  int64_t shape_rank = 0;  // the number of dimensions of the broadcast indices
  Dims indexed;            // dimensions of `operand` that the index names
  Dims window;             // positions in the result of the dimensions not indexed
  Type result;
};

// Adjacent indexed dimensions act as one: a single offset instead of a vector of them.
void select_merged(Selection& selection, const Value& self, const Values& indices, const Dims& indexed,
                   const Dims& shape) {
  int64_t count = 1;
  for (const int64_t dim : indexed) count *= self.dim(dim);
  Value offset;
  for (const int64_t dim : indexed) {
    const Value place = hlo::convert(wrapped_offsets(indices[dim], self.dim(dim)), offset_dtype(count));
    offset = offset ? offset * static_cast<double>(self.dim(dim)) + place : place;
  }
  const int64_t first = indexed[0];
  Dims merged;
  for (int64_t i = 0; i < self.rank(); ++i) {
    if (i < first || i > indexed.back()) merged.push_back(self.dim(i));
    if (i == first) merged.push_back(count);
  }
  selection.operand = reshape(self, merged);
  selection.index = broadcast_to(offset, shape);
  selection.indexed = {first};
}

// Other indexed dimensions keep an index each, side by side in a last dimension.
void select_apart(Selection& selection, const Value& self, const Values& indices, const Dims& indexed,
                  const Dims& shape) {
  DType dtype = DType::kS32;
  for (const int64_t dim : indexed) {
    if (offset_dtype(self.dim(dim)) == DType::kS64) dtype = DType::kS64;
  }
  Dims column = shape;
  column.push_back(1);
  Values columns;
  for (const int64_t dim : indexed) {
    const Value place = hlo::convert(wrapped_offsets(indices[dim], self.dim(dim)), dtype);
    columns.push_back(reshape(broadcast_to(place, shape), column));
  }
  selection.operand = self;
  selection.index = hlo::concatenate(columns, selection.shape_rank);
  selection.indexed = indexed;
}

// torch's placement rule: the index dimensions replace the indexed ones where those are adjacent,
// and come first otherwise.
Selection select_elements(const Value& self, const Values& indices) {
  Dims indexed;
  Dims shape;
  for (size_t i = 0; i < indices.size(); ++i) {
    if (indices[i].builder == nullptr) continue;
    indexed.push_back(static_cast<int64_t>(i));
    shape = hlo::broadcast_dims(*self.builder, shape, indices[i].dims());
  }
  const bool adjacent = indexed.back() - indexed[0] + 1 == static_cast<int64_t>(indexed.size());
  Selection selection;
  selection.shape_rank = static_cast<int64_t>(shape.size());
  selection.result.dtype = self.dtype();
  const auto append_shape = [&] {
    for (const int64_t size : shape) selection.result.dims.push_back(size);
  };
  if (!adjacent) append_shape();
  size_t next = 0;
  for (int64_t i = 0; i < self.rank(); ++i) {
    if (next < indexed.size() && indexed[next] == i) {
      if (adjacent && next == 0) append_shape();
      ++next;
    } else {
      selection.window.push_back(selection.result.rank());
      selection.result.dims.push_back(self.dim(i));
    }
  }
  (adjacent ? select_merged : select_apart)(selection, self, indices, indexed, shape);
  return selection;
}

bool selects_nothing(const Values& indices) {
  for (const Value& index : indices) {
    if (index) return false;
  }
  return true;
}

// Each index against the dimension that it stands for.
void check_selected(Lowering& op, const Value& self, const Values& indices) {
  for (size_t i = 0; i < indices.size(); ++i) {
    const auto dim = static_cast<int64_t>(i);
    if (indices[i]) check_indices(op, indices[i], dim, self.dim(dim), true);
  }
}

Value index(Lowering& op, const Value& self, const Values& indices) {
  if (selects_nothing(indices)) return self;
  const Selection selection = select_elements(self, indices);
  if (selection.result.elements() > 0) check_selected(op, self, indices);
  if (is_empty_gather(self, selection.result.elements())) return self.builder->splat(0.0, selection.result);
  hlo::GatherDims dims;
  dims.offset_dims = selection.window;
  dims.collapsed_slice_dims = selection.indexed;
  dims.start_index_map = selection.indexed;
  dims.slice_sizes = selection.operand.dims();
  for (const int64_t dim : selection.indexed) dims.slice_sizes[dim] = 1;
  dims.index_vector_dim = selection.shape_rank;
  return gather(selection.operand, selection.index, dims);
}

void require_index_dtypes(Lowering& op, const Values& indices) {
  for (const Value& index : indices) {
    if (index.builder == nullptr) continue;
    const DType dtype = index.dtype();
    if (dtype != DType::kS64 && dtype != DType::kS32 && dtype != DType::kU8 && dtype != DType::kPred) {
      op.fail(Code::kIndexError, "tensors used as indices must be long, int, byte or bool tensors");
    }
  }
}

// The one mask of an index that holds nothing else, or an empty value. Other masks were replaced by integers.
Value only_mask(const Values& indices, int64_t& dim) {
  for (size_t i = 0; i < indices.size(); ++i) {
    if (indices[i].builder == nullptr) continue;
    dim = static_cast<int64_t>(i);
    const bool is_mask = indices[i].dtype() == DType::kPred || indices[i].dtype() == DType::kU8;
    return is_mask ? hlo::convert(indices[i], DType::kPred) : Value{};
  }
  return {};
}

Value index_put(Lowering& op, bool checks) {
  const Value self = op.tensor(0);
  const Values indices = op.tensors(1);
  const Value values = op.tensor(2);
  const bool accumulate = op.flag(3);
  require_index_dtypes(op, indices);
  int64_t mask_dim = 0;
  const Value mask = only_mask(indices, mask_dim);
  // ATen fills by a mask, which converts.
  const bool converts = values.wrapped || (mask && !hlo::is_complex(values.dtype()));
  if (values.dtype() != self.dtype() && !converts) {
    self.builder->fail("Index put requires the source and destination dtypes match, got " +
                       std::string(scalar_type_name(self.dtype())) + " for the destination and " +
                       std::string(scalar_type_name(values.dtype())) + " for the source.");
  }
  const Value source = hlo::convert(values, self.dtype());
  if (selects_nothing(indices)) {
    const Value all = broadcast_to(source, self.dims());
    return accumulate ? self + all : all;
  }
  if (mask) {
    Dims places;
    for (int64_t i = 0; i < mask.rank(); ++i) places.push_back(mask_dim + i);
    return select(broadcast_in_dim(mask, self.dims(), places), reshape(source, {}), self);
  }
  const Selection selection = select_elements(self, indices);
  const Value updates = broadcast_to(source, selection.result.dims);
  if (selection.result.elements() == 0) return self;
  if (checks) check_selected(op, self, indices);
  if (self.type.elements() == 0) is_empty_gather(self, selection.result.elements());
  hlo::ScatterDims dims;
  dims.update_window_dims = selection.window;
  dims.inserted_window_dims = selection.indexed;
  dims.scatter_dims_to_operand_dims = selection.indexed;
  dims.index_vector_dim = selection.shape_rank;
  if (accumulate) {
    const Value sum = scatter(to_compute(selection.operand), selection.index, to_compute(updates), dims,
                              hlo::combiner(hlo::Reduction::kSum));
    return reshape(hlo::convert(sum, self.dtype()), self.dims());
  }
  const Value written = scatter(selection.operand, selection.index, updates, dims, replace());
  return written_once(self, updates, reshape(written, self.dims()));
}

}  // namespace

OP("aten::index.Tensor", .distinct = true) { return {index(op, op.tensor(0), op.tensors(1))}; }
OP("aten::index_put", .distinct = true, .aligned = {0}) { return {index_put(op, true)}; }
// `unsafe` calls come from gradients, whose indices were checked in the forward.
OP("aten::_index_put_impl", .distinct = true) { return {index_put(op, !op.flag(4))}; }

}  // namespace torch_tpu::ops

// Operators that rearrange or join tensors without computing.
#include "ops/indexing.h"
#include "ops/promotion.h"

namespace torch_tpu::ops {
namespace {

using hlo::Compare;
using hlo::Reduction;

Value zero(const Value& x) { return x.builder->splat(0.0, {x.dtype(), {}}); }

// True where column - row relates to `diagonal` as asked, over [rows, columns].
Value triangle(Builder& builder, int64_t rows, int64_t columns, const Value& diagonal, Compare direction) {
  const Type type{offset_dtype(rows + columns), {rows, columns}};
  const double bound = static_cast<double>(rows + columns);
  const Value offset = maximum(minimum(diagonal, hlo::like(diagonal, bound)), hlo::like(diagonal, -bound));
  return compare(direction, builder.iota(type, 1), builder.iota(type, 0) + hlo::convert(offset, type.dtype));
}

Value keep_triangle(Lowering& op, Compare direction) {
  const Value x = op.tensor(0);
  const Value mask = triangle(op.builder(), x.dim(-2), x.dim(-1), op.scalar(1, DType::kS64), direction);
  return select(broadcast_to(mask, x.dims()), x, broadcast_to(zero(x), x.dims()));
}

// Concatenation with torch's promotion; [0]-shaped tensors join anything.
Value join(Lowering& op, const Values& tensors, int64_t dim) {
  const DType dtype = result_type(op, tensors);
  Values parts;
  for (const Value& tensor : tensors) {
    if (tensor.rank() == 1 && tensor.dim(0) == 0) continue;
    parts.push_back(hlo::convert(tensor, dtype));
  }
  if (parts.empty()) return hlo::convert(tensors[0], dtype);
  return hlo::concatenate(parts, op.wrap_dim(dim, parts[0].rank()));
}

}  // namespace

OP("aten::cat", .distinct = true) { return {join(op, op.tensors(0), op.integer(1))}; }

OP("aten::stack") {
  const Values tensors = op.tensors(0);
  const int64_t dim = op.dim(1, tensors[0].rank() + 1);
  const DType dtype = result_type(op, tensors);
  Values parts;
  for (const Value& tensor : tensors) {
    Dims dims = tensor.dims();
    dims.insert(dim, 1);
    parts.push_back(reshape(hlo::convert(tensor, dtype), dims));
  }
  return {hlo::concatenate(parts, dim)};
}

// Each tensor is padded to whole chunks along `dim`, cut into `chunks` rows, and the rows are joined.
OP("aten::_chunk_cat") {
  const Values tensors = op.tensors(0);
  const int64_t dim = op.dim(1, tensors[0].rank());
  const int64_t chunks = op.integer(2);
  const DType dtype = result_type(op, tensors);
  Values parts;
  for (const Value& tensor : tensors) {
    const Value x = hlo::convert(tensor, dtype);
    Dims high(x.dims().size(), 0);
    high[dim] = (x.dim(dim) + chunks - 1) / chunks * chunks - x.dim(dim);
    const Value padded = pad(x, zero(x), Dims(x.dims().size(), 0), high);
    Dims dims(padded.dims().begin(), padded.dims().begin() + dim);
    const int64_t outer = hlo::element_count(dims) * chunks;
    dims.push_back(chunks);
    dims.push_back(outer == 0 ? 0 : padded.type.elements() / outer);
    parts.push_back(reshape(padded, dims));
  }
  return {hlo::concatenate(parts, dim + 1)};
}

OP("aten::flip") {
  const Value x = op.tensor(0);
  return {reverse(x, op.dims(1, x.rank()))};
}

OP("aten::roll") {
  const Value x = op.tensor(0);
  const std::vector<int64_t> shifts = op.integers(1);
  const std::vector<int64_t> dims = op.integers(2);
  const bool flat = dims.empty();
  Value result = flat ? flatten(x) : x;
  if (x.type.elements() == 0) return {x};
  for (size_t i = 0; i < shifts.size(); ++i) {
    const int64_t dim = flat ? 0 : op.wrap_dim(dims[i], x.rank());
    if (result.rank() == 0) break;
    const int64_t size = result.dim(dim);
    const int64_t start = ((-shifts[i]) % size + size) % size;
    if (start == 0) continue;
    result = hlo::concatenate({slice_dim(result, dim, start, size), slice_dim(result, dim, 0, start)}, dim);
  }
  return {reshape(result, x.dims())};
}

OP("aten::repeat") {
  const Value x = op.tensor(0);
  const std::vector<int64_t> repeats = op.integers(1);
  const size_t added = repeats.size() - x.dims().size();
  // [r0, d0, r1, d1, ...]: every repeat is a dimension in front of the one it repeats.
  Dims wide, mapping, dims;
  for (size_t i = 0; i < repeats.size(); ++i) {
    const int64_t size = i < added ? 1 : x.dims()[i - added];
    wide.push_back(repeats[i]);
    if (i >= added) {
      mapping.push_back(static_cast<int64_t>(wide.size()));
      wide.push_back(size);
    }
    dims.push_back(repeats[i] * size);
  }
  return {reshape(broadcast_in_dim(x, wide, mapping), dims)};
}

OP("aten::tril", .runtime = {1}) { return {keep_triangle(op, Compare::kLe)}; }
OP("aten::triu", .runtime = {1}) { return {keep_triangle(op, Compare::kGe)}; }

OP("aten::trace") {
  const Value x = op.tensor(0);
  const int64_t columns = x.dim(1);
  const int64_t count = std::min(x.dim(0), columns);
  const int64_t limit = count == 0 ? 0 : (count - 1) * (columns + 1) + 1;
  const Value diagonal = slice_dim(flatten(x), 0, 0, limit, columns + 1);
  const bool exact = hlo::is_inexact(x.dtype());
  const Value sum =
      reduce(exact ? to_compute(diagonal) : hlo::convert(diagonal, DType::kS64), Reduction::kSum, Dims{0});
  return {exact ? hlo::convert(sum, x.dtype()) : sum};
}

OP("aten::narrow_copy") {
  const Value x = op.tensor(0);
  const int64_t dim = op.dim(1, x.rank());
  const int64_t start = op.integer(2) < 0 ? op.integer(2) + x.dim(dim) : op.integer(2);
  return {slice_dim(x, dim, start, start + op.integer(3))};
}

OP("aten::channel_shuffle") {
  const Value x = op.tensor(0);
  const int64_t groups = op.integer(1);
  Dims split = x.dims();
  split[1] = x.dim(1) / groups;
  split.insert(1, groups);
  Dims order;
  for (size_t i = 0; i < split.size(); ++i) order.push_back(static_cast<int64_t>(i));
  std::swap(order[1], order[2]);
  return {reshape(transpose(reshape(x, split), order), x.dims())};
}

OP("aten::block_diag") {
  const Values tensors = op.tensors(0);
  const DType dtype = result_type(op, tensors);
  Values blocks;
  int64_t columns = 0;
  for (const Value& tensor : tensors) {
    Dims dims = tensor.dims();
    while (dims.size() < 2) dims.insert(0, 1);
    blocks.push_back(reshape(hlo::convert(tensor, dtype), dims));
    columns += dims[1];
  }
  int64_t start = 0;
  for (Value& block : blocks) {
    const int64_t width = block.dim(1);
    block = pad(block, zero(block), Dims{0, start}, Dims{0, columns - start - width});
    start += width;
  }
  return {hlo::concatenate(blocks, 0)};
}

namespace {

// `base` with the diagonal `offset` of (dim1, dim2) replaced by `values`, whose last dimension runs
// along the diagonal. Where the diagonal starts below the corner, its elements are addressed by column,
// else by row: in both cases the values start at zero.
Value put_diagonal(const Value& base, const Value& values, int64_t offset, int64_t dim1, int64_t dim2) {
  const int64_t along = offset >= 0 ? dim1 : dim2;
  const int64_t size = base.dim(along);
  Dims low(values.dims().size(), 0);
  Dims high = low;
  high.back() = size - values.dim(-1);
  const Value padded = pad(values, zero(values), low, high);
  Dims mapping;
  for (int64_t i = 0; i < base.rank(); ++i) {
    if (i != dim1 && i != dim2) mapping.push_back(i);
  }
  mapping.push_back(along);
  // broadcast_in_dim takes its operand dimensions in any order.
  const Value spread = broadcast_in_dim(padded, base.dims(), mapping);
  const Value mask = triangle(*base.builder, base.dim(dim1), base.dim(dim2),
                              base.builder->splat(offset, {DType::kS64, {}}), Compare::kEq);
  return select(broadcast_in_dim(mask, base.dims(), Dims{dim1, dim2}), spread, base);
}

std::string list(const Dims& dims) {
  std::string text = "[";
  for (const int64_t size : dims) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

void check_slice(Lowering& op, const Value& source, const Dims& dims) {
  if (source.dims() == dims) return;
  op.fail("expected src to have a size equal to the slice of self. src size = " + list(source.dims()) +
          ", slice size = " + list(dims));
}

Value zeros(const Value& x, const Dims& dims) { return x.builder->splat(0.0, {x.dtype(), dims}); }

}  // namespace

OP("aten::diag_embed") {
  const Value x = op.tensor(0);
  const int64_t offset = op.integer(1);
  const int64_t dim1 = op.dim(2, x.rank() + 1);
  const int64_t dim2 = op.dim(3, x.rank() + 1);
  const int64_t size = x.dim(-1) + std::abs(offset);
  Dims dims(x.dims().begin(), x.dims().end() - 1);
  dims.insert(std::min(dim1, dim2), size);
  dims.insert(std::max(dim1, dim2), size);
  return {put_diagonal(zeros(x, dims), x, offset, dim1, dim2)};
}

OP("aten::diagonal_backward") {
  const Value grad = op.tensor(0);
  const Dims dims(op.integers(1));
  const int64_t rank = static_cast<int64_t>(dims.size());
  return {put_diagonal(zeros(grad, dims), grad, op.integer(2), op.dim(3, rank), op.dim(4, rank))};
}

OP("aten::diagonal_scatter") {
  const Value self = op.tensor(0);
  const Value source = hlo::convert(op.tensor(1), self.dtype());
  const int64_t offset = op.integer(2);
  const int64_t dim1 = op.dim(3, self.rank());
  const int64_t dim2 = op.dim(4, self.rank());
  const int64_t rows = self.dim(dim1) + std::min<int64_t>(offset, 0);
  const int64_t columns = self.dim(dim2) - std::max<int64_t>(offset, 0);
  Dims part;
  for (int64_t i = 0; i < self.rank(); ++i) {
    if (i != dim1 && i != dim2) part.push_back(self.dim(i));
  }
  part.push_back(std::max<int64_t>(std::min(rows, columns), 0));
  check_slice(op, source, part);
  return {put_diagonal(self, source, offset, dim1, dim2)};
}

namespace {

// How a slice of `count` elements lies in a dimension, as edge and interior padding.
struct Placement {
  Dims low, high, interior;

  Placement(const Dims& dims, int64_t dim, int64_t start, int64_t step, int64_t count)
      : low(dims.size(), 0), high(low), interior(low) {
    low[dim] = start;
    high[dim] = dims[dim] - start - (count == 0 ? 0 : (count - 1) * step + 1);
    interior[dim] = step - 1;
  }
  Value pad(const Value& x, const Value& fill) const { return hlo::pad(x, fill, low, high, interior); }
};

int64_t slice_start(int64_t start, int64_t size) {
  return std::clamp(start < 0 ? start + size : start, int64_t{0}, size);
}

Value put_slice(const Value& self, const Value& source, int64_t dim, int64_t start, int64_t step) {
  const int64_t count = source.dim(dim);
  if (source.type.elements() == 0) return self;
  if (source.dims() == self.dims()) return source;
  if (step == 1 || count == 1) {
    Values starts;
    for (int64_t i = 0; i < self.rank(); ++i) {
      starts.push_back(self.builder->splat(i == dim ? start : int64_t{0}, {DType::kS32, {}}));
    }
    return dynamic_update_slice(self, source, starts);
  }
  const Placement placement(self.dims(), dim, start, step, count);
  const Placement along(Dims{self.dim(dim)}, 0, start, step, count);
  Builder& builder = *self.builder;
  const Value mask =
      along.pad(builder.splat(1.0, {DType::kPred, {count}}), builder.splat(0.0, {DType::kPred, {}}));
  return select(broadcast_in_dim(mask, self.dims(), Dims{dim}), placement.pad(source, zero(source)), self);
}

}  // namespace

OP("aten::slice_backward") {
  const Value grad = op.tensor(0);
  const Dims dims(op.integers(1));
  const int64_t dim = op.dim(2, grad.rank());
  if (grad.type.elements() == 0) return {zeros(grad, dims)};
  const int64_t start = slice_start(op.integer(3), dims[dim]);
  return {Placement(dims, dim, start, op.integer(5), grad.dim(dim)).pad(grad, zero(grad))};
}

OP("aten::select_backward") {
  const Dims dims(op.integers(1));
  const int64_t dim = op.dim(2, static_cast<int64_t>(dims.size()));
  const int64_t index = op.integer(3) < 0 ? op.integer(3) + dims[dim] : op.integer(3);
  Dims thin = dims;
  thin[dim] = 1;
  const Value grad = reshape(op.tensor(0), thin);
  return {Placement(dims, dim, index, 1, 1).pad(grad, zero(grad))};
}

OP("aten::slice_scatter") {
  const Value self = op.tensor(0);
  const Value source = hlo::convert(op.tensor(1), self.dtype());
  const int64_t dim = op.dim(2, self.rank());
  const int64_t size = self.dim(dim);
  const int64_t start = slice_start(op.integer_or(3, 0), size);
  const int64_t end = std::max(start, slice_start(op.integer_or(4, size), size));
  const int64_t step = op.integer(5);
  Dims part = self.dims();
  part[dim] = (end - start + step - 1) / step;
  check_slice(op, source, part);
  return {put_slice(self, source, dim, start, step)};
}

OP("aten::select_scatter") {
  const Value self = op.tensor(0);
  const Value source = hlo::convert(op.tensor(1), self.dtype());
  const int64_t dim = op.dim(2, self.rank());
  const int64_t index = op.integer(3) < 0 ? op.integer(3) + self.dim(dim) : op.integer(3);
  Dims part = self.dims();
  part.erase(dim);
  check_slice(op, source, part);
  part.insert(dim, 1);
  return {put_slice(self, reshape(source, part), dim, index, 1)};
}

// Windows overlap where step < size, so their elements are added up.
OP("aten::unfold_backward") {
  const Value grad = op.tensor(0);
  const Dims dims(op.integers(1));
  const int64_t dim = op.dim(2, static_cast<int64_t>(dims.size()));
  if (dims.empty()) return {reshape(grad, {})};
  const int64_t size = op.integer(3);
  const int64_t windows = grad.dim(dim);
  // [.., window, .., size] -> [.., window, size, ..] -> one dimension of positions
  Dims order;
  for (int64_t i = 0; i + 1 < grad.rank(); ++i) {
    order.push_back(i);
    if (i == dim) order.push_back(grad.rank() - 1);
  }
  Dims merged = dims;
  merged[dim] = windows * size;
  const Value updates = to_compute(reshape(transpose(grad, order), merged));
  const Type type{offset_dtype(dims[dim] + size), {windows, size}};
  const Value first = op.builder().iota(type, 0) * static_cast<double>(op.integer(4));
  const Value index = flatten(first + op.builder().iota(type, 1));
  const Value sums =
      scatter_slices(zeros(updates, dims), dim, index, updates, hlo::combiner(Reduction::kSum));
  return {hlo::convert(sums, grad.dtype())};
}

}  // namespace torch_tpu::ops

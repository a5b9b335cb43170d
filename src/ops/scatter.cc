// Operators that write elements by index. Where several writes meet, sums and the like are computed in
// the compute dtype and rounded once; plain writes keep the last one.
#include <functional>

#include "ops/indexing.h"
#include "ops/promotion.h"
#include "ops/require.h"

namespace torch_tpu::ops {
namespace {

using hlo::Compare;
using hlo::Reduction;
using hlo::Region;

// Combines updates into x at places fixed by the operator.
using Scatter = std::function<Value(const Value& x, const Value& updates, const Region& combine)>;

Value accumulate(const Value& self, const Value& source, Reduction kind, const Scatter& scatter) {
  const Value result =
      scatter(to_compute(self), to_compute(hlo::convert(source, self.dtype())), hlo::combiner(kind));
  return hlo::convert(result, self.dtype());
}

Value divide_by_count(const Value& sum, const Value& count) {
  const Value divisor = hlo::convert(hlo::maximum(count, hlo::like(count, 1)), sum.dtype());
  const Value quotient = sum / divisor;
  if (!hlo::is_integer(sum.dtype()) || hlo::is_unsigned(sum.dtype())) return quotient;
  // torch rounds integer means down, XLA towards zero.
  const Value rest = compare(Compare::kLt, sum - quotient * divisor, 0.0);
  return quotient - hlo::convert(rest, sum.dtype());
}

Value scatter_mean(const Value& base, const Value& source, bool include_self, const Scatter& scatter) {
  const Value sum = scatter(to_compute(base), to_compute(source), hlo::combiner(Reduction::kSum));
  Builder& builder = *base.builder;
  const Value start = builder.splat(include_self ? 1.0 : 0.0, {DType::kS32, base.dims()});
  const Value ones = builder.splat(1.0, {DType::kS32, source.dims()});
  const Value count = scatter(start, ones, hlo::combiner(Reduction::kSum));
  return hlo::convert(divide_by_count(sum, count), base.dtype());
}

Value scatter_reduce(Lowering& op, const Value& self, const Value& updates, const std::string& reduce,
                     bool include_self, const Scatter& scatter) {
  const Value source = hlo::convert(updates, self.dtype());
  const bool mean = reduce == "mean";
  Reduction kind = Reduction::kSum;
  if (reduce == "prod" || reduce == "multiply") {
    kind = Reduction::kProduct;
  } else if (reduce == "amax") {
    kind = Reduction::kMax;
  } else if (reduce == "amin") {
    kind = Reduction::kMin;
  } else if (reduce != "sum" && reduce != "add" && !mean) {
    op.fail("reduce argument must be either sum, prod, mean, amax or amin, got " + reduce);
  }
  Value base = self;
  if (!include_self) {
    const Value start = neutral(op.builder(), kind, self.dtype());
    base = scatter(self, broadcast_to(start, source.dims()), replace());
  }
  return mean ? scatter_mean(base, source, include_self, scatter) : accumulate(base, source, kind, scatter);
}

// torch.scatter addresses elements: self and index have one rank, source is at least as large as index.
struct Elements {
  Value self;
  Value index;
  int64_t dim;
  Value offsets;

  explicit Elements(Lowering& op) : self(op.tensor(0)), index(at_least_1d(op.tensor(2))) {
    dim = op.dim(1, self.rank());
    const Dims dims = at_least_1d(self).dims();
    check_indices(op, index, dim, dims[dim], false, Code::kInvalidArgument);
    offsets = element_offsets(index, dims, dim);
  }
  Scatter scatter() const {
    return [this](const Value& x, const Value& updates, const Region& combine) {
      return scatter_elements(x, offsets, updates, combine);
    };
  }
  /// The part of a source tensor that has an index.
  Value source(const Value& all) const {
    const Value x = at_least_1d(all);
    return slice(x, Dims(index.dims().size(), 0), index.dims());
  }
  Value source(const Lowering& op, int position) const {
    return broadcast_to(op.scalar(position, self.dtype()), index.dims());
  }
  Value write(const Value& updates) const {
    return scatter_elements(self, offsets, hlo::convert(updates, self.dtype()), replace());
  }
};

}  // namespace

OP("aten::scatter.src", .distinct = true, .aligned = {0}) {
  const Elements elements(op);
  return {elements.write(elements.source(op.tensor(3)))};
}

OP("aten::scatter.value", .accept = accept_convertible<3>, .distinct = true, .aligned = {0}) {
  const Elements elements(op);
  return {elements.write(elements.source(op, 3))};
}

OP("aten::scatter.reduce", .distinct = true, .aligned = {0}) {
  const Elements elements(op);
  return {
      scatter_reduce(op, elements.self, elements.source(op.tensor(3)), op.text(4), true, elements.scatter())};
}

OP("aten::scatter.value_reduce", .distinct = true, .aligned = {0}) {
  const Elements elements(op);
  return {scatter_reduce(op, elements.self, elements.source(op, 3), op.text(4), true, elements.scatter())};
}

OP("aten::scatter_add", .distinct = true, .aligned = {0}) {
  const Elements elements(op);
  return {accumulate(elements.self, elements.source(op.tensor(3)), Reduction::kSum, elements.scatter())};
}

OP("aten::scatter_reduce.two", .distinct = true, .aligned = {0}) {
  const Elements elements(op);
  const Value source = elements.source(op.tensor(3));
  return {scatter_reduce(op, elements.self, source, op.text(4), op.flag(5), elements.scatter())};
}

namespace {

// torch.index_add and its kin address slices of one dimension by a rank-1 index. A scalar counts as
// one slice.
struct Slices {
  Value self;
  int64_t dim;
  Value index;

  Slices(Lowering& op, const std::string& name)
      : self(op.tensor(0)), dim(op.dim(1, self.rank())), index(flatten(op.tensor(2))) {
    if (index.dtype() == DType::kS64 || index.dtype() == DType::kS32) return;
    op.fail(name + "_(): Expected dtype int32/int64 for index but got: " +
            std::string(scalar_type_name(index.dtype())));
  }
  /// Indices are checked where they write something.
  void check(Lowering& op, Code code, const std::string& message) const {
    if (self.type.elements() > 0) check_range(op, index, 0, size(), code, message);
  }
  int64_t size() const { return at_least_1d(self).dim(dim); }
  std::string bounds() const {
    return "index {} is out of bounds for dimension " + std::to_string(dim) + " with size " +
           std::to_string(size());
  }
  Value source(const Value& all) const {
    Dims dims = at_least_1d(self).dims();
    dims[dim] = index.dim(0);
    return reshape(all, dims);
  }
  Value apply(const Value& x, const Value& updates, const Region& combine) const {
    return reshape(scatter_slices(at_least_1d(x), dim, index, updates, combine), x.dims());
  }
  Scatter scatter() const {
    return [this](const Value& x, const Value& updates, const Region& combine) {
      return apply(x, updates, combine);
    };
  }
};

}  // namespace

OP("aten::index_add", .special = {1.0}, .distinct = true, .aligned = {0}) {
  const Slices slices(op, "index_add");
  if (slices.self.rank() > 1) {
    slices.check(op, Code::kInvalidArgument, slices.bounds());
  } else {
    slices.check(op, Code::kIndexError, "index out of range in self: {}");
  }
  Value source = to_compute(hlo::convert(slices.source(op.tensor(3)), slices.self.dtype()));
  if (op.number(4) != 1.0) source = source * op.scalar(4, source.dtype());
  const Value sum = slices.apply(to_compute(slices.self), source, hlo::combiner(Reduction::kSum));
  return {hlo::convert(sum, slices.self.dtype())};
}

OP("aten::index_copy", .distinct = true, .aligned = {0}) {
  const Slices slices(op, "index_copy");
  slices.check(op, Code::kIndexError, "index_copy_(): " + slices.bounds());
  return {
      slices.apply(slices.self, hlo::convert(slices.source(op.tensor(3)), slices.self.dtype()), replace())};
}

OP("aten::index_reduce", .distinct = true) {
  const Slices slices(op, "index_reduce");
  slices.check(op, Code::kIndexError, "index out of range in self: {}");
  const Value source = slices.source(op.tensor(3));
  return {scatter_reduce(op, slices.self, source, op.text(4), op.flag(5), slices.scatter())};
}

namespace {

// A mask over the indexed slices and one select: cheaper than scattering whole slices.
Value index_fill(Lowering& op, const Value& value) {
  const Value self = at_least_1d(op.tensor(0));
  const int64_t dim = op.dim(1, self.rank());
  const int64_t size = self.dim(dim);
  if (self.type.elements() > 0) check_indices(op, op.tensor(2), dim, size, true);
  const Value index = wrapped_offsets(flatten(op.tensor(2)), size);
  Builder& builder = op.builder();
  const Value mask = scatter_slices(builder.splat(0.0, {DType::kPred, {size}}), 0, index,
                                    builder.splat(1.0, {DType::kPred, index.dims()}), replace());
  const Value filled = select(broadcast_in_dim(mask, self.dims(), Dims{dim}), value, self);
  return reshape(filled, op.tensor(0).dims());
}

}  // namespace

OP("aten::index_fill.int_Scalar", .accept = accept_convertible<3>, .distinct = true, .aligned = {0}) {
  return {index_fill(op, op.scalar(3, op.tensor(0).dtype()))};
}
OP("aten::index_fill.int_Tensor", .distinct = true, .aligned = {0}) {
  return {index_fill(op, hlo::convert(reshape(op.tensor(3), {}), op.tensor(0).dtype()))};
}

OP("aten::put", .distinct = true) {
  const Value self = op.tensor(0);
  check_flat_indices(op, op.tensor(1), self.type.elements());
  const Value index = flatten(wrapped_offsets(op.tensor(1), self.type.elements()));
  const Value source = flatten(hlo::convert(op.tensor(2), self.dtype()));
  if (source.dim(0) != index.dim(0)) {
    op.fail(Code::kIndexError,
            "put_(): Expected source and index to have the same number of elements, but got "
            "source.numel() = " +
                std::to_string(source.dim(0)) + ", index.numel() = " + std::to_string(index.dim(0)));
  }
  const Scatter scatter = [&](const Value& x, const Value& updates, const Region& combine) {
    return scatter_elements(x, index, updates, combine);
  };
  if (op.flag(3)) return {accumulate(self, source, Reduction::kSum, scatter)};
  return {scatter(self, source, replace())};
}

OP("aten::masked_scatter") {
  if (const DType dtype = op.tensor(1).dtype(); dtype != DType::kPred) {
    op.fail("masked_scatter_ only supports boolean masks, but got mask with dtype " +
            std::string(scalar_type_name(dtype)));
  }
  const Value mask_argument = hlo::convert(op.tensor(1), DType::kPred);
  const Dims dims = broadcast_dims(op.builder(), op.tensor(0).dims(), mask_argument.dims());
  const Value self = broadcast_to(op.tensor(0), dims);
  const Value mask = flatten(broadcast_to(mask_argument, dims));
  const Value source = flatten(op.tensor(2));
  const Value ones = hlo::convert(mask, DType::kS64);
  const Value written = reduce(ones, Reduction::kSum, Dims{0});
  op.check(compare(Compare::kGt, written, static_cast<double>(source.dim(0))), Code::kInvalidArgument,
           "Number of elements of source < number of ones in mask");
  if (source.type.elements() == 0 || self.type.elements() == 0) return {self};
  const Value taken = take_elements(source, compact_offsets(mask, source.dim(0)));
  return {reshape(select(mask, hlo::convert(taken, self.dtype()), flatten(self)), dims)};
}

// The gradient for `source`: the masked elements packed to the front, zeros behind.
OP("aten::masked_scatter_backward") {
  const Value grad = op.tensor(0);
  const Value mask = flatten(broadcast_to(hlo::convert(op.tensor(1), DType::kPred), grad.dims()));
  const Dims dims(op.integers(2));
  const int64_t count = hlo::element_count(dims);
  const Value zeros = op.builder().splat(0.0, {grad.dtype(), {count}});
  return {reshape(scatter_slices(zeros, 0, compact_offsets(mask, count), flatten(grad), replace()), dims)};
}

}  // namespace torch_tpu::ops

// Operators that look values up in sorted or unsorted lists.
#include "ops/indexing.h"
#include "ops/promotion.h"
#include "ops/require.h"

namespace torch_tpu::ops {

using hlo::Compare;
using hlo::Reduction;

// The halving of torch's lower_bound and upper_bound, also on what is not ordered (NaN): an element
// lies before the place unless it is >= (or, for `right`, >) the value.
Value binary_search(const Value& sorted, const Value& values, bool right) {
  Builder& builder = *values.builder;
  const int64_t rows = sorted.dim(0);
  const int64_t size = sorted.dim(1);
  const Type type{offset_dtype(sorted.type.elements() + 1), values.dims()};
  if (size == 0 || values.type.elements() == 0) return builder.splat(0.0, type);
  int64_t rounds = 0;
  while (size >> rounds > 0) ++rounds;
  const Type counter{DType::kS32, {}};
  const Values state{builder.splat(0.0, counter), builder.splat(0.0, type), builder.splat(size, type), sorted,
                     values};
  const auto condition = [&](const Values& s) -> Values {
    return {compare(Compare::kLt, s[0], static_cast<double>(rounds))};
  };
  const auto body = [&](const Values& s) -> Values {
    const Value& low = s[1];
    const Value& high = s[2];
    const Value middle = (low + high) / 2.0;
    Value place = middle;
    if (rows > 1) place = place + builder.iota(type, 0) * static_cast<double>(size);
    const Value element = take_elements(s[3], place);
    const Value reached = compare(right ? Compare::kGt : Compare::kGe, element, s[4]);
    // Once low meets high the element at `high` may be past the end, and nothing may move.
    const Value open = compare(Compare::kLt, low, high);
    return {s[0] + 1.0, select(open & !reached, middle + 1.0, low), select(open & reached, middle, high),
            s[3], s[4]};
  };
  return while_loop(state, condition, body)[1];
}

namespace {

Value result_indices(const Value& places, const Dims& dims, bool narrow) {
  return hlo::convert(reshape(places, dims), narrow ? DType::kS32 : DType::kS64);
}

Value search(Lowering& op, const Value& sequence, const Value& values, bool narrow, bool right) {
  const auto [sorted, wanted] = promote(op, sequence, values);
  const int64_t size = sorted.dim(-1);
  // A rank-1 sequence serves all values; otherwise rows correspond.
  const int64_t rows =
      sorted.rank() == 1 ? 1 : hlo::element_count(std::span(sorted.dims()).first(sorted.rank() - 1));
  const int64_t columns = rows == 0 ? 0 : wanted.type.elements() / rows;
  const Value places =
      binary_search(reshape(sorted, Dims{rows, size}), reshape(wanted, Dims{rows, columns}), right);
  return result_indices(places, values.dims(), narrow);
}

Value searchsorted(Lowering& op) {
  Value sequence = op.tensor(0);
  if (op.has(5)) {
    check_range(op, op.tensor(5), 0, sequence.dim(-1), Code::kInvalidArgument,
                "torch.searchsorted(): sorter index out of range: {}");
    sequence = take_along(sequence, sequence.rank() - 1, op.tensor(5));
  }
  const bool right = op.flag(3) || op.text(4) == "right";
  return search(op, sequence, op.tensor(1), op.flag(2), right);
}

Value bucketize(Lowering& op) {
  const Value boundaries = op.tensor(1);
  if (boundaries.rank() != 1) {
    op.fail("boundaries tensor must be 1 dimension, but got dim(" + std::to_string(boundaries.rank()) + ")");
  }
  return search(op, boundaries, op.tensor(0), op.flag(2), op.flag(3));
}

}  // namespace

OP("aten::searchsorted.Tensor") { return {searchsorted(op)}; }
OP("aten::searchsorted.Scalar") { return {searchsorted(op)}; }
OP("aten::bucketize.Tensor") { return {bucketize(op)}; }
OP("aten::bucketize.Scalar") { return {bucketize(op)}; }

namespace {

// Up to this many elements are compared one by one; more are sorted and searched.
constexpr int64_t kFewElements = 128;

Value is_in(const Value& elements, const Value& list) {
  const int64_t count = elements.type.elements();
  const int64_t size = list.type.elements();
  if (size <= kFewElements || hlo::is_complex(elements.dtype())) {
    const Value equal =
        compare(Compare::kEq, reshape(elements, Dims{count, 1}), reshape(list, Dims{1, size}));
    return reduce(equal, Reduction::kOr, Dims{1});
  }
  // Keys have one order for NaN as well, which then equals nothing.
  const Value keys = order_key(flatten(elements));
  const Value sorted = hlo::sort({order_key(flatten(list))}, 0, false, [](const Values& pair) -> Values {
    return {compare(Compare::kLt, pair[0], pair[1])};
  })[0];
  const Value place = binary_search(reshape(sorted, Dims{1, size}), reshape(keys, Dims{1, count}), false);
  const Value found = compare(Compare::kEq, take_elements(sorted, flatten(place)), keys);
  return hlo::is_float(elements.dtype()) ? found & !is_nan(flatten(elements)) : found;
}

Value is_in(Lowering& op) {
  const auto [elements, list] = promote(op, op.tensor(0), op.tensor(1));
  const Value found = reshape(is_in(elements, list), elements.dims());
  return op.flag(3) ? !found : found;
}

}  // namespace

OP("aten::isin.Tensor_Tensor") { return {is_in(op)}; }
OP("aten::isin.Tensor_Scalar") { return {is_in(op)}; }
OP("aten::isin.Scalar_Tensor") { return {is_in(op)}; }

}  // namespace torch_tpu::ops

// sort and topk. Floats are sorted through integers of the same order, which XLA compares faster than
// floats in a total order.
#include "ops/indexing.h"
#include "ops/promotion.h"

namespace torch_tpu::ops {
namespace {

using hlo::Compare;

DType signed_type(int64_t bytes) {
  switch (bytes) {
    case 1:
      return DType::kS8;
    case 2:
      return DType::kS16;
    case 4:
      return DType::kS32;
    default:
      return DType::kS64;
  }
}

DType key_dtype(DType dtype) {
  const bool wide = hlo::byte_size(dtype) == 8 || dtype == DType::kU32;
  return wide ? DType::kS64 : DType::kS32;
}

hlo::Region first_less() {
  return [](const Values& pair) -> Values { return {compare(Compare::kLt, pair[0], pair[1])}; };
}

Value s64(Builder& builder, int64_t number) { return builder.splat(number, {DType::kS64, {}}); }

}  // namespace

Value order_key(const Value& x) {
  Builder& builder = *x.builder;
  if (x.dtype() == DType::kU64) {
    const Value bits = bitcast(x, {DType::kS64, x.dims()});
    return bits ^ builder.lowest(bits.type);
  }
  if (!hlo::is_float(x.dtype())) return hlo::convert(x, key_dtype(x.dtype()));
  // Integer operations throughout: float ones would take denormals for zero.
  const Type type{signed_type(hlo::byte_size(x.dtype())), x.dims()};
  const Value bits = bitcast(x, type);
  const Value highest = builder.highest(type);
  const Value magnitude = bits & highest;
  const Value infinity = bitcast(builder.highest(x.type), type);
  const Value zero = hlo::like(bits, 0);
  const Value negative = compare(Compare::kLt, bits, zero);
  const Value ordered = select(negative, zero - magnitude, bits);
  return hlo::convert(select(compare(Compare::kGt, magnitude, infinity), highest, ordered),
                      key_dtype(x.dtype()));
}

std::pair<Value, Value> sort_with_indices(const Value& x, int64_t dim, bool descending) {
  Builder& builder = *x.builder;
  const Type index_type{DType::kS64, x.dims()};
  if (x.rank() == 0 || x.dim(dim) <= 1 || x.type.elements() == 0) return {x, builder.splat(0.0, index_type)};
  const Value key = descending ? !order_key(x) : order_key(x);
  Value sorted, index;
  if (key.dtype() == DType::kS32) {
    // Key and position in one word: a single operand, and no two are equal.
    const Value word = binary("shift_left", hlo::convert(key, DType::kS64), s64(builder, 32)) |
                       builder.iota(index_type, dim);
    const Value result = hlo::sort({word}, dim, false, first_less())[0];
    sorted = binary("shift_right_arithmetic", result, s64(builder, 32));
    index = result & s64(builder, 0xffffffff);
  } else {
    const Value position = builder.iota({offset_dtype(x.dim(dim)), x.dims()}, dim);
    const Values result = hlo::sort({key, position}, dim, true, first_less());
    sorted = result[0];
    index = hlo::convert(result[1], DType::kS64);
  }
  if (hlo::is_float(x.dtype()) || x.dtype() == DType::kU64) return {take_along(x, dim, index), index};
  return {hlo::convert(descending ? !sorted : sorted, x.dtype()), index};
}

OP("aten::sort.stable") {
  const Value self = op.tensor(0);
  if (hlo::is_complex(self.dtype())) op.fail("Sort does not support complex dtypes");
  const auto [values, indices] = sort_with_indices(self, op.dim(2, self.rank()), op.flag(3));
  return {values, indices};
}

namespace {

// Dtypes that f32 holds exactly.
bool fits_f32(DType dtype) {
  return dtype == DType::kF32 || (hlo::byte_size(dtype) <= 2 && dtype != DType::kS64);
}

// The k largest of the last dimension by XLA's top_k, which orders floats by their bits: the sign of
// NaN decides whether it comes first or last.
std::pair<Value, Value> top_k(const Value& x, int64_t k, bool largest) {
  Builder& builder = *x.builder;
  Value input = hlo::convert(x, DType::kF32);
  if (hlo::is_float(x.dtype())) {
    const Value nan = bitcast(builder.splat(int64_t{largest ? 0x7fc00000 : 0xffc00000}, {DType::kU32, {}}),
                              {DType::kF32, {}});
    input = select(is_nan(input), nan, largest ? input : -input);
  } else if (!largest) {
    input = -input;
  }
  Dims dims = x.dims();
  dims.back() = k;
  const Values result = builder.emit("chlo.top_k", {input}, {{DType::kF32, dims}, {DType::kS32, dims}},
                                     "k = " + std::to_string(k) + " : i64");
  return {hlo::convert(largest ? result[0] : -result[0], x.dtype()), hlo::convert(result[1], DType::kS64)};
}

}  // namespace

OP("aten::topk") {
  const Value self = op.tensor(0);
  const int64_t k = op.integer(1);
  const int64_t dim = op.dim(2, self.rank());
  const bool largest = op.flag(3);
  if (hlo::is_complex(self.dtype())) op.fail("topk does not support complex dtypes");
  Builder& builder = op.builder();
  if (self.rank() == 0) return {self, builder.splat(0.0, {DType::kS64, {}})};
  const int64_t size = self.dim(dim);
  if (k > 0 && self.type.elements() > 0 && fits_f32(self.dtype()) && k <= std::max<int64_t>(size / 4, 64)) {
    Dims last;
    for (int64_t i = 0; i < self.rank(); ++i) last.push_back(i);
    std::swap(last[dim], last[self.rank() - 1]);
    const auto [values, indices] = top_k(transpose(self, last), k, largest);
    return {transpose(values, last), transpose(indices, last)};
  }
  const auto [values, indices] = sort_with_indices(self, dim, largest);
  return {slice_dim(values, dim, 0, k), slice_dim(indices, dim, 0, k)};
}

}  // namespace torch_tpu::ops

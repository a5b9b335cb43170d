// Order statistics: median, k-th value, mode.
#include <limits>

#include "ops/op.h"
#include "ops/promotion.h"
#include "ops/require.h"
#include "ops/scan.h"

namespace torch_tpu::ops {
namespace {

using hlo::Compare;
using hlo::Reduction;

/// Keys that sort as the values do under a plain integer comparison, with NaN last: integers
/// themselves, floats as their bits with the order of negative numbers reversed (self-inverse).
Value flip_negative(const Value& bits) {
  const double sign_position = static_cast<double>(hlo::byte_size(bits.dtype()) * 8 - 1);
  const Value negative = hlo::binary("shift_right_arithmetic", bits, hlo::like(bits, sign_position));
  return bits ^ (negative & bits.builder->highest(bits.type));
}

DType key_dtype(DType dtype) {
  if (dtype == DType::kF64) return DType::kS64;
  if (hlo::is_float(dtype)) return DType::kS32;
  return hlo::byte_size(dtype) < 8 && dtype != DType::kU32 ? DType::kS32 : dtype;
}

Value to_key(const Value& x) {
  const DType key = key_dtype(x.dtype());
  if (!hlo::is_float(x.dtype())) return hlo::convert(x, key);
  const Value wide = to_compute(x);
  const Value one_nan = hlo::like(wide, std::numeric_limits<double>::quiet_NaN());
  // + 0 makes -0 and 0 the same key.
  const Value canonical = hlo::select(hlo::is_nan(wide), one_nan, wide + 0.0);
  return flip_negative(hlo::bitcast(canonical, {key, x.dims()}));
}

Value from_key(const Value& key, DType dtype) {
  if (!hlo::is_float(dtype)) return hlo::convert(key, dtype);
  return hlo::convert(hlo::bitcast(flip_negative(key), {compute_dtype(dtype), key.dims()}), dtype);
}

struct Sorted {
  Value keys;
  Value indices;  // s64
};

/// The keys of x in ascending order along `dim`, equal ones in order of appearance.
Sorted sorted(const Value& x, int64_t dim) {
  Builder& builder = *x.builder;
  const Value key = to_key(x);
  const auto less = [](const Values& v) -> Values { return {hlo::compare(Compare::kLt, v[0], v[1])}; };
  if (hlo::byte_size(key.dtype()) == 8) {
    const Values both = hlo::sort({key, builder.iota({DType::kS64, x.dims()}, dim)}, dim, true, less);
    return {both[0], both[1]};
  }
  // Key and position in one 64-bit number sort faster than a pair.
  const Type wide{DType::kS64, x.dims()};
  const Value high =
      hlo::binary("shift_left", hlo::convert(key, DType::kS64), builder.splat(int64_t{32}, wide));
  const Value packed = hlo::sort({high | builder.iota(wide, dim)}, dim, false, less)[0];
  const Value keys = hlo::binary("shift_right_arithmetic", packed, builder.splat(int64_t{32}, wide));
  return {hlo::convert(keys, key.dtype()), packed & builder.splat(int64_t{0xffffffff}, wide)};
}

/// The element of x at `position` (size one along `dim`).
Value pick(const Value& x, int64_t dim, const Value& position) {
  const Value hit = hlo::compare(Compare::kEq, x.builder->iota({position.dtype(), x.dims()}, dim), position);
  return hlo::reduce_keep(hlo::select(hit, x, hlo::like(x, 0.0)), Reduction::kSum, Dims{dim});
}

/// Values with their positions, of size one along `dim`, as the op's results.
Values finish(const Value& key, const Value& index, DType dtype, int64_t dim, bool keepdim) {
  Dims dims = key.dims();
  if (!keepdim) dims.erase(dim);
  return {hlo::reshape(from_key(key, dtype), dims), hlo::reshape(hlo::convert(index, DType::kS64), dims)};
}

Values zero_dim(const Value& x) { return {x, x.builder->splat(int64_t{0}, {DType::kS64, {}})}; }

Value nan_count(const Value& x, int64_t dim) {
  Dims kept = x.dims();
  kept[dim] = 1;
  if (!hlo::is_float(x.dtype())) return x.builder->splat(int64_t{0}, {DType::kS32, kept});
  return hlo::reduce_keep(hlo::convert(hlo::is_nan(x), DType::kS32), Reduction::kSum, Dims{dim});
}

/// The lower median, or NaN where there is one unless `ignore_nan`.
Values median(const Value& x, int64_t dim, bool keepdim, bool ignore_nan) {
  if (x.rank() == 0) return zero_dim(x);
  const Sorted s = sorted(x, dim);
  const int64_t size = x.dim(dim);
  if (!hlo::is_float(x.dtype())) {
    const int64_t middle = (size - 1) / 2;
    return finish(hlo::slice_dim(s.keys, dim, middle, middle + 1),
                  hlo::slice_dim(s.indices, dim, middle, middle + 1), x.dtype(), dim, keepdim);
  }
  const Value nans = nan_count(x, dim);
  const Value zero = hlo::like(nans, 0.0);
  const Value numbers = static_cast<double>(size) - nans;
  Value position = hlo::maximum((numbers - 1.0) / 2.0, zero);
  // NaN sorts last: the first one is behind the numbers.
  if (!ignore_nan) position = hlo::select(hlo::compare(Compare::kGt, nans, zero), numbers, position);
  return finish(pick(s.keys, dim, position), pick(s.indices, dim, position), x.dtype(), dim, keepdim);
}

/// No order for complex numbers, and torch refuses bools too.
void require_median_dtype(const Lowering& op, const Value& x) {
  if (x.dtype() == DType::kPred) require_floating(op, x, "median");
  require_ordered(op, x, "median");
}

Values median_along(const Lowering& op, bool ignore_nan) {
  const Value x = op.tensor(0);
  const int64_t dim = op.dim(1, x.rank());
  require_elements(op, x, dim, "median");
  require_median_dtype(op, x);
  return median(x, dim, op.flag(2), ignore_nan);
}

Value full_median(const Lowering& op, bool ignore_nan) {
  const Value x = op.tensor(0);
  require_median_dtype(op, x);
  const int64_t size = x.type.elements();
  if (size == 0) {
    const Type type{x.dtype(), {}};
    return hlo::is_float(x.dtype()) ? x.builder->splat(std::numeric_limits<double>::quiet_NaN(), type)
                                    : x.builder->lowest(type);
  }
  return median(hlo::reshape(x, Dims{size}), 0, false, ignore_nan)[0];
}

}  // namespace

OP("aten::median") { return {full_median(op, false)}; }
OP("aten::nanmedian") { return {full_median(op, true)}; }
OP("aten::median.dim", .distinct = true) { return median_along(op, false); }
OP("aten::nanmedian.dim", .distinct = true) { return median_along(op, true); }

OP("aten::kthvalue", .distinct = true) {
  const Value x = op.tensor(0);
  const int64_t dim = op.dim(2, x.rank());
  const int64_t k = op.integer(1);
  require_elements(op, x, dim, "kthvalue");
  require_ordered(op, x, "kthvalue");
  const int64_t size = x.rank() == 0 ? 1 : x.dim(dim);
  if (k < 1 || k > size)
    op.fail("kthvalue(): selected number k out of range for dimension " + std::to_string(dim));
  if (x.rank() == 0) return zero_dim(x);
  const Sorted s = sorted(x, dim);
  return finish(hlo::slice_dim(s.keys, dim, k - 1, k), hlo::slice_dim(s.indices, dim, k - 1, k), x.dtype(),
                dim, op.flag(3));
}

// The most frequent value, the smallest of several, at its last position.
OP("aten::mode") {
  const Value x = op.tensor(0);
  const int64_t dim = op.dim(1, x.rank());
  require_elements(op, x, dim, "mode");
  require_ordered(op, x, "mode");
  if (x.rank() == 0) return zero_dim(x);
  const int64_t size = x.dim(dim);
  const Sorted s = sorted(x, dim);
  Builder& builder = op.builder();
  const Value place = builder.iota({DType::kS32, x.dims()}, dim);
  if (size == 1) return finish(s.keys, s.indices, x.dtype(), dim, op.flag(2));
  const Value same = hlo::compare(Compare::kEq, hlo::slice_dim(s.keys, dim, 0, size - 1),
                                  hlo::slice_dim(s.keys, dim, 1, size));
  const Value no = builder.splat(0.0, {DType::kPred, {}});
  Dims one_before(x.dims().size(), 0);
  one_before[dim] = 1;
  const Dims none(x.dims().size(), 0);
  const Value continues = hlo::pad(same, no, one_before, none);
  const Value start = scan(hlo::select(continues, hlo::like(place, 0.0), place), dim, Reduction::kMax);
  const Value length = place - start;
  // The first place with the greatest length so far ends the first of the longest runs.
  const Value longest = hlo::reduce_keep(length, Reduction::kMax, Dims{dim});
  const Value at_end = hlo::compare(Compare::kEq, length, longest);
  const Value end =
      hlo::reduce_keep(hlo::select(at_end, place, builder.highest(place.type)), Reduction::kMin, Dims{dim});
  return finish(pick(s.keys, dim, end), pick(s.indices, dim, end), x.dtype(), dim, op.flag(2));
}

}  // namespace torch_tpu::ops

#include "ops/promotion.h"

namespace torch_tpu::ops {
namespace {

// bool < integer < float < complex
int category(DType dtype) {
  if (hlo::is_complex(dtype)) return 3;
  if (hlo::is_float(dtype)) return 2;
  return dtype == DType::kPred ? 0 : 1;
}

DType promote_integers(DType a, DType b) {
  const int64_t a_bytes = hlo::byte_size(a);
  const int64_t b_bytes = hlo::byte_size(b);
  if (hlo::is_unsigned(a) == hlo::is_unsigned(b)) return a_bytes >= b_bytes ? a : b;
  const DType signed_type = hlo::is_unsigned(a) ? b : a;
  const DType unsigned_type = hlo::is_unsigned(a) ? a : b;
  if (hlo::byte_size(signed_type) > hlo::byte_size(unsigned_type)) return signed_type;
  // Only u8 has a next larger signed type by torch's table.
  return unsigned_type == DType::kU8 ? DType::kS16 : signed_type;
}

DType promote_floats(DType a, DType b) {
  if (a == b) return a;
  const auto is_half = [](DType t) { return t == DType::kF16 || t == DType::kBF16; };
  if (is_half(a) && is_half(b)) return DType::kF32;
  return hlo::byte_size(a) >= hlo::byte_size(b) ? a : b;
}

}  // namespace

DType promote_types(DType a, DType b) {
  if (a == b || b == DType::kInvalid) return a;
  if (a == DType::kInvalid) return b;
  const int a_category = category(a);
  const int b_category = category(b);
  if (a_category == 3 || b_category == 3) {
    const bool wide = a == DType::kC128 || b == DType::kC128 || a == DType::kF64 || b == DType::kF64;
    return wide ? DType::kC128 : DType::kC64;
  }
  if (a_category != b_category) return a_category > b_category ? a : b;
  return a_category == 2 ? promote_floats(a, b) : promote_integers(a, b);
}

DType result_type(const Lowering& op, const Values& values) {
  DType dimensioned = DType::kInvalid;
  DType zero_dim = DType::kInvalid;
  DType number = DType::kInvalid;
  for (const Value& value : values) {
    DType dtype = value.dtype();
    if (value.wrapped) {
      // A Python float has the default dtype, a Python complex the matching complex one.
      if (hlo::is_complex(dtype)) dtype = hlo::complex_type(op.default_dtype());
      if (hlo::is_float(dtype)) dtype = op.default_dtype();
      number = promote_types(number, dtype);
    } else if (value.rank() == 0) {
      zero_dim = promote_types(zero_dim, dtype);
    } else {
      dimensioned = promote_types(dimensioned, dtype);
    }
  }
  const auto combine = [](DType high, DType low) {
    if (high == DType::kInvalid) return low;
    if (low == DType::kInvalid) return high;
    if (category(low) <= category(high)) return high;
    // A complex number keeps the width of the higher-priority float.
    if (hlo::is_complex(low) && hlo::is_float(high)) {
      return high == DType::kF64 ? DType::kC128 : DType::kC64;
    }
    return promote_types(high, low);
  };
  return combine(combine(dimensioned, zero_dim), number);
}

std::pair<Value, Value> promote(const Lowering& op, const Value& a, const Value& b) {
  const DType dtype = result_type(op, {a, b});
  return {hlo::convert(a, dtype), hlo::convert(b, dtype)};
}

Value to_inexact(const Lowering& op, const Value& x) {
  if (x.wrapped)
    return hlo::convert(x, result_type(op, {x}) == DType::kC64 ? DType::kC64 : op.default_dtype());
  return hlo::is_inexact(x.dtype()) ? x : hlo::convert(x, op.default_dtype());
}

DType compute_dtype(DType dtype) {
  return hlo::is_float(dtype) && hlo::byte_size(dtype) < 4 ? DType::kF32 : dtype;
}

Value to_compute(const Value& x) { return hlo::convert(x, compute_dtype(x.dtype())); }

}  // namespace torch_tpu::ops

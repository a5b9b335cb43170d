// torch's type promotion, from the dtypes, ranks and "Python number" marks of values.
#pragma once

#include "ops/op.h"

namespace torch_tpu::ops {

/// The smallest dtype that holds both, by torch's table (int64 + float16 = float16).
DType promote_types(DType a, DType b);
/// The result dtype of an operation on `values`: dimensioned tensors outrank 0-dim tensors, which
/// outrank Python numbers, unless of a higher category (bool < int < float < complex).
DType result_type(const Lowering& op, const Values& values);
/// Both operands converted to their common dtype.
std::pair<Value, Value> promote(const Lowering& op, const Value& a, const Value& b);
/// The operand as a float or complex value: integers become the default dtype.
Value to_inexact(const Lowering& op, const Value& x);
/// The dtype in which to compute: f32 for f16, bf16 and f8, else the dtype itself. torch computes
/// reduced precision in f32 and rounds once at the end of each op.
DType compute_dtype(DType dtype);
/// x converted to compute_dtype(x.dtype()).
Value to_compute(const Value& x);

}  // namespace torch_tpu::ops

// The uniform and exponential numbers that the random operators build on.
#pragma once

#include <string_view>

#include "ops/op.h"

namespace torch_tpu::ops {

/// u32 random words.
Value random_words(Lowering& op, const Dims& dims);
/// Uniform in [0, 1), for the compute dtype (f32 or f64) `dtype`: as many bits as its mantissa has, so that
/// rounding never gives 1.
Value unit_uniform(Lowering& op, DType dtype, const Dims& dims);
/// Uniform in (0, 1], fine near zero: for logarithms.
Value positive_uniform(Lowering& op, DType dtype, const Dims& dims);
/// Exponential with rate one, never zero (others divide by it).
Value standard_exponential(Lowering& op, DType dtype, const Dims& dims);

}  // namespace torch_tpu::ops

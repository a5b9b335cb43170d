// What batch, layer and group normalization share.
#pragma once

#include "ops/op.h"

namespace torch_tpu::ops {

/// The dtype in which a normalization of `input` returns its statistics: float32 where the first parameter
/// that is given is float32 and the input has reduced precision, else the input's. Refuses other mixtures.
DType statistics_dtype(const Lowering& op, const Value& input, const Values& parameters);

}  // namespace torch_tpu::ops

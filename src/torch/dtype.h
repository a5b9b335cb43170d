// at::ScalarType <-> hlo::DType.
#pragma once

#include <c10/core/ScalarType.h>

#include "hlo/types.h"

namespace torch_tpu {

/// Raises TypeError for dtypes that no program can hold (quantised types, bits).
hlo::DType to_hlo(c10::ScalarType type);
c10::ScalarType to_scalar_type(hlo::DType dtype);

}  // namespace torch_tpu

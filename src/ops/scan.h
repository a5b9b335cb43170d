// Inclusive scans along one dimension.
#pragma once

#include "ops/op.h"

namespace torch_tpu::ops {

/// x[..., i, ...] becomes the combination of x[..., 0..i, ...] along `dim`; `combine` is associative
/// with the neutral element `init` (rank 0).
Value scan(const Value& x, int64_t dim, const Value& init, const hlo::Region& combine);
Value scan(const Value& x, int64_t dim, hlo::Reduction kind);
/// The same over several operands of equal dimensions; `combine` gets the earlier ones, then the later ones.
Values scan(const Values& operands, int64_t dim, const Values& inits, const hlo::Region& combine);

}  // namespace torch_tpu::ops

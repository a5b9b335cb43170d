// Asks ATen's Meta kernel about a call: its exceptions reach the user, its result types are checked
// against the lowering's, its strides are given to fresh results. Once per signature.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>
#include <vector>

#include "torch/binding.h"

namespace torch_tpu {

struct MetaResult {
  bool defined = false;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  std::vector<int64_t> sizes, strides;
};

/// The results that the operator has on Meta copies of `values`, or nothing when it has no Meta
/// kernel. Raises what the kernel raises.
std::optional<std::vector<MetaResult>> run_meta(const Binding& binding, const c10::IValue* values);

}  // namespace torch_tpu

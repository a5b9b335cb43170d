// Asks ATen's own kernels about a call, once per signature. The Meta kernel: its exceptions reach the
// user, its result types are checked against the lowering's, its strides are given to fresh results.
// The CPU kernel: whether it writes tensors of another dtype than the results'.
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
/// kernel. Raises what the kernel raises. An out= form is asked without its out= tensors.
std::optional<std::vector<MetaResult>> run_meta(const Binding& binding, const c10::IValue* values);

/// Raises what the CPU kernel raises on arguments of these shapes and dtypes, if it does: the wording and
/// the type of exception that users know. For calls that are known to be wrong: it computes.
void raise_cpu_refusal(const Binding& binding, const c10::IValue* values);

/// Raises what the CPU kernel raises of written tensors (out= or in place) whose dtypes are not those of
/// call.outputs: some kernels convert, some where a cast is safe, some refuse, and nothing else tells.
void check_written_dtypes(const Binding& binding, const c10::IValue* values, const ops::Call& call);

}  // namespace torch_tpu

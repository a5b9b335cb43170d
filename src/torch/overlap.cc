#include "torch/overlap.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>

#include "torch/record.h"

namespace torch_tpu {
namespace {

void check_pair(const at::Tensor& written, const at::Tensor& input, bool distinct) {
  if (!input.defined() || !is_tpu(input) || !written.storage().is_alias_of(input.storage())) return;
  if (distinct) {
    at::assert_no_overlap(written, input);
  } else {
    at::assert_no_partial_overlap(written, input);
  }
}

}  // namespace

void check_overlap(const Binding& binding, const c10::IValue* values) {
  for (const int position : binding.writes_before) {
    // Lists are left alone: every pair of their elements would have to be looked at.
    if (!values[position].isTensor()) continue;
    const at::Tensor& written = values[position].toTensor();
    if (!written.defined() || !is_tpu(written)) continue;
    const bool is_out = binding.arguments[position].is_out;
    for (int i = 0; i < binding.op_arguments; ++i) {
      if (i == position) continue;
      const ArgKind kind = binding.arguments[i].kind;
      if (kind == ArgKind::kTensor && values[i].isTensor()) {
        check_pair(written, values[i].toTensor(), binding.op->traits.distinct);
      } else if (kind == ArgKind::kTensorList && is_out && !values[i].isNone()) {
        for (const c10::IValue& element : values[i].toListRef()) {
          if (!element.isNone()) check_pair(written, element.toTensor(), binding.op->traits.distinct);
        }
      }
    }
  }
}

}  // namespace torch_tpu

#include "torch/overlap.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>

#include "torch/record.h"

namespace torch_tpu {
namespace {

// Whether argument `i` may be the whole of an out= tensor although the op's results read other places: the
// tensor that an in-place form would change may, and so may all where ATen's kernel fills `out` by a copy.
bool may_be_out(const Binding& binding, int i) {
  const std::vector<int>& aligned = binding.op->traits.aligned;
  if (std::find(aligned.begin(), aligned.end(), i) != aligned.end()) return true;
  if (!binding.has_out()) return false;
  return (i == 0 && binding.has_in_place) ||
         binding.handle.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd);
}

void check_pair(const Binding& binding, int i, const at::Tensor& written, const at::Tensor& input) {
  if (!input.defined() || !is_tpu(input) || !written.storage().is_alias_of(input.storage())) return;
  if (binding.op->traits.distinct && !may_be_out(binding, i)) {
    at::assert_no_overlap(written, input);
  } else {
    at::assert_no_partial_overlap(written, input);
  }
}

// No two elements of a written tensor, or of the tensors of a list, may share memory.
void check_within(const c10::IValue& written) {
  if (written.isTensor()) {
    if (written.toTensor().defined()) at::assert_no_internal_overlap(written.toTensor());
  } else if (written.isList()) {
    for (const c10::IValue& element : written.toListRef()) check_within(element);
  }
}

}  // namespace

void check_overlap(const Binding& binding, const c10::IValue* values) {
  if (!binding.op->traits.fills) {
    for (const std::vector<int>* positions : {&binding.writes_before, &binding.writes_after}) {
      for (const int position : *positions) check_within(values[position]);
    }
  }
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
        check_pair(binding, i, written, values[i].toTensor());
      } else if (kind == ArgKind::kTensorList && (is_out || binding.op->traits.distinct) &&
                 !values[i].isNone()) {
        for (const c10::IValue& element : values[i].toListRef()) {
          if (!element.isNone()) check_pair(binding, i, written, element.toTensor());
        }
      }
    }
  }
}

}  // namespace torch_tpu

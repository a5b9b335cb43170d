// Reading and writing tensors as engine values, and recording calls on them: what every kernel in
// this folder is made of.
#pragma once

#include <ATen/core/Tensor.h>

#include <initializer_list>

#include "engine/queue.h"
#include "hlo/strided.h"
#include "ops/call.h"
#include "torch/storage.h"

namespace torch_tpu {

inline bool is_tpu(const at::Tensor& tensor) { return tensor.device().type() == c10::kPrivateUse1; }

/// The tensor's (sizes, strides, offset).
hlo::Layout layout_of(const at::Tensor& tensor);

/// The tensor's elements as a value of its dtype and sizes, with lazy conjugation and negation
/// applied; records a strided read where the
/// storage's value has another layout.
engine::TensorPtr read(const at::Tensor& tensor);

/// Replaces the tensor's elements: `value` has its dtype and sizes. All aliases see it. Elements at one
/// place, of an expanded tensor, must be equal.
void write(const at::Tensor& tensor, engine::TensorPtr value);

/// A fresh tensor over `value`, row-major or with the given dense strides.
at::Tensor make_tensor(engine::TensorPtr value);
at::Tensor make_tensor(engine::TensorPtr value, c10::IntArrayRef strides);

/// An uninitialised tensor, row-major or with the given strides.
at::Tensor make_empty(c10::IntArrayRef sizes, c10::ScalarType dtype, int device_index);
at::Tensor make_empty(c10::IntArrayRef sizes, c10::IntArrayRef strides, c10::ScalarType dtype,
                      int device_index);

/// A tensor over (part of) an existing storage.
at::Tensor tensor_over(c10::Storage storage, c10::IntArrayRef sizes, c10::IntArrayRef strides, int64_t offset,
                       c10::ScalarType dtype);

/// The memoised call with this hash, or null.
ops::CallPtr find_call(const Hash128& hash);
/// Infers the result types of `call`, whose hash is set, and memoises it. Raises what the op refuses.
ops::CallPtr intern_call(ops::Call call);

/// Records an operator on the device of its inputs (at least one); TensorArg i is inputs[i]. `integers` are
/// the run-time numbers of a ScalarListArg among the arguments: all others are structural.
engine::TensorPtr record_internal(std::string_view op, std::initializer_list<engine::TensorPtr> inputs,
                                  std::vector<ops::Arg> args, std::span<const int64_t> integers = {});
/// The same for an operator with several results, of which those that exist are returned.
std::vector<engine::TensorPtr> record_results(std::string_view op,
                                              std::initializer_list<engine::TensorPtr> inputs,
                                              std::vector<ops::Arg> args);

engine::TensorPtr record_flatten(const engine::TensorPtr& value, const hlo::Layout& layout, int64_t count,
                                 hlo::DType dtype);
engine::TensorPtr record_convert(const engine::TensorPtr& value, hlo::DType dtype);
/// NumPy broadcasting to `sizes`.
engine::TensorPtr record_broadcast(const engine::TensorPtr& value, std::span<const int64_t> sizes);

}  // namespace torch_tpu

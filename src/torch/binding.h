// How one dispatcher operator maps onto an op of the registry: the kind of each argument, and where
// results go. Built once per operator when the kernels are registered.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <vector>

#include "ops/op.h"

namespace torch_tpu {

/// What to do with an argument of a schema.
enum class ArgKind : uint8_t {
  kTensor,
  kTensorList,  // also lists of optional tensors
  kScalar,      // Scalar or float: a run-time number unless the op says otherwise
  kInteger,
  kFlag,
  kIntegers,
  kNumbers,
  kFlags,
  kScalars,  // Scalar[]
  kDType,
  kText,
  kGenerator,
  kIgnored,  // layout, device, memory format, pin_memory
};

struct Argument {
  ArgKind kind = ArgKind::kIgnored;
  bool structural = false;
  bool special = false;  // Scalar whose special values are structural
  bool is_out = false;   // an out= tensor: only its dtype reaches the lowering
};

struct Binding {
  const ops::Op* op = nullptr;
  c10::OperatorHandle handle;
  std::vector<Argument> arguments;  // by position in the dispatcher's schema
  int op_arguments = 0;             // leading positions that the registry's op has too
  /// Per schema return: the position of the argument that it aliases, or -1 for a fresh result.
  std::vector<int> returns;
  /// Positions of tensors (or lists) that receive results: before the fresh ones for in-place and
  /// out= forms, after them for what the op writes beside its schema.
  std::vector<int> writes_before, writes_after;
  bool has_in_place = false;      // the dispatcher has an in-place form of the operator
  bool is_foreach = false;        // acts on the elements of lists one by one
  bool returns_list = false;      // the single return is a fresh Tensor[]
  bool is_gradient = false;       // starts with a gradient; all results are gradients too
  bool expands_masks = false;     // boolean index tensors become integer ones first
  mutable bool has_meta = false;  // ATen can check arguments and tell strides
  Hash128 identity;               // of the dispatcher's operator name
  /// For an out= form: the operator without out=, when the dispatcher has it.
  std::optional<c10::OperatorHandle> functional;

  bool has_out() const { return !writes_before.empty() && arguments[writes_before[0]].is_out; }

  explicit Binding(c10::OperatorHandle handle) : handle(std::move(handle)) {}
};

/// The dispatcher's operator with the name of `op`.
std::optional<c10::OperatorHandle> own_operator(const ops::Op& op);

/// The binding of `handle` to `op`: the op's own schema, or an in-place or out= form of it.
Binding make_binding(const c10::OperatorHandle& handle, const ops::Op& op);

/// True when `variant` is the in-place or out= form of `functional`: equal arguments apart from out
/// tensors.
bool is_variant(const c10::FunctionSchema& functional, const c10::FunctionSchema& variant);

/// Runs the call on the stack: the boxed kernel of every bound operator.
void run_binding(const Binding& binding, torch::jit::Stack& stack);
/// The same for an operator that returns one tensor: gives that, undefined where it is one of `values`, which
/// are parallel to the schema's arguments.
at::Tensor run_for_tensor(const Binding& binding, c10::IValue* values);

}  // namespace torch_tpu

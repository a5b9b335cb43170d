// The immutable description of one operator call: which op, which arguments are tensors, which are
// numbers known only at run time, and every attribute that shapes the program.
#pragma once

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "hlo/types.h"

namespace torch_tpu::ops {

struct Op;

/// Argument kinds. A tensor argument names an input of the call, a scalar argument a run-time slot.
struct TensorArg {
  int input;
};
/// Inputs of a tensor list; -1 stands for None.
struct TensorListArg {
  std::vector<int> inputs;
};
/// A Python number or a 0-dim CPU tensor, delivered at run time: changing it compiles nothing.
struct ScalarArg {
  int slot;
};
/// The same for a list of numbers.
struct ScalarListArg {
  std::vector<int> slots;
};

/// std::monostate is None (or a default that the lowering may ignore). `double` and
/// `complex<double>` are numbers that the op declared structural, or one of its special values.
using Arg =
    std::variant<std::monostate, TensorArg, TensorListArg, ScalarArg, ScalarListArg, int64_t, double, bool,
                 std::vector<int64_t>, std::vector<double>, std::vector<bool>, hlo::DType, std::string>;

/// Calls `visit` with each integer of an argument (`Arg&` or `const Arg&`), which `visit` may change.
template <class SomeArg, class Visit>
void visit_integers(SomeArg& arg, Visit& visit) {
  if (auto* number = std::get_if<int64_t>(&arg)) visit(*number);
  if (auto* numbers = std::get_if<std::vector<int64_t>>(&arg)) {
    for (auto& number : *numbers) visit(number);
  }
}

/// Appends an argument to `hash`, all of it or all but the values of its integers.
void append(Hash128& hash, const Arg& arg);
void append_without_integers(Hash128& hash, const Arg& arg);

/// The run-time slot of a ScalarArg. Integers and booleans travel as 64-bit integers, floats as
/// doubles, complex numbers as two doubles.
struct ScalarSlot {
  hlo::DType dtype = hlo::DType::kF64;
  /// A Python number: promotes by category only. False for a 0-dim CPU tensor.
  bool wrapped = true;

  bool is_integer() const { return !hlo::is_inexact(dtype); }
  int words() const { return hlo::is_complex(dtype) ? 2 : 1; }
};
/// The slot of a random op's seed, and of its offset.
inline constexpr ScalarSlot kRandomSlot{hlo::DType::kS64, true};

/// What an op asserts about run-time values (Lowering::check): the error when it does not hold. "{}" in
/// the message stands for the number that breaks it.
struct Check {
  Code code;
  std::string message;
};

struct Body;

/// Results and side information of a lowering that ran once.
struct Call {
  const Op* op = nullptr;
  std::vector<Arg> args;            // by position in the op's schema
  std::vector<hlo::Type> inputs;    // tensor inputs in order of appearance
  std::vector<ScalarSlot> scalars;  // run-time numbers in order of appearance
  /// torch.get_default_dtype(): what integers become under true division and the like.
  hlo::DType default_dtype = hlo::DType::kF32;
  /// What a graph call (graph_call) computes; null for all others.
  std::shared_ptr<const Body> body;
  Hash128 hash;  // of all of the above

  /// Filled by infer(): the types of the results, and which of the lowering's results exist (an
  /// empty Value is None, for example a gradient that output_mask leaves out).
  std::vector<hlo::Type> outputs;
  std::vector<bool> returned;
  /// 64-bit blocks of random bits that the call draws from its generator; filled by infer().
  int64_t random_blocks = 0;
  /// The op's assertions about run-time values, in the order of Lowered::offenders; filled by infer().
  std::vector<Check> checks;

  /// Words that the scalars of one call take in the engine's packed parameters.
  int scalar_words() const {
    int words = 0;
    for (const ScalarSlot& slot : scalars) words += slot.words();
    return words;
  }
  /// What all results take.
  int64_t result_bytes() const {
    int64_t bytes = 0;
    for (const hlo::Type& type : outputs) bytes += type.bytes();
    return bytes;
  }
};

using CallPtr = std::shared_ptr<const Call>;

/// Calls that are one: the operator "tpu::graph".
struct Body {
  struct Step {
    CallPtr call;
    /// Parallel to call->inputs: the result of an earlier step by its number among all of them, or input
    /// -1 - reference of the graph.
    std::vector<int32_t> references;
    std::string source;  // the user's line, only when debugging
  };
  std::vector<Step> steps;
  std::vector<uint32_t> results;  // the numbers of those that the graph gives
  std::vector<int32_t> updates;   // parallel to results: the input whose memory it may take, or -1
};

/// The call of `body` on inputs of these types. Its scalars are those of all steps in order; after those of a
/// random step come its seed and offset.
Call graph_call(Body body, std::vector<hlo::Type> inputs);

/// How many operators a call stands for.
inline size_t operators_of(const Call& call) { return call.body == nullptr ? 1 : call.body->steps.size(); }

}  // namespace torch_tpu::ops

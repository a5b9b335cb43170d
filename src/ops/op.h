// How an operator is declared: one OP block holds its name and what it means in StableHLO.
//
//   OP("aten::silu") {
//     const Value x = op.tensor(0);
//     return {x * logistic(x)};
//   }
//
// Inside the block, `op` is the Lowering: the arguments of the call by schema position, and the
// builder. The block runs once per new signature to learn the result types, and once per program
// that contains the call. Nothing outside the block names the operator: the in-place and out=
// forms, the dispatcher registration and the documentation are derived from the registry.
#pragma once

#include <complex>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "hlo/builder.h"
#include "ops/call.h"
#include "ops/numbers.h"

namespace torch_tpu::ops {

using hlo::Builder;
using hlo::Dims;
using hlo::DType;
using hlo::Type;
using hlo::Value;
using hlo::Values;

/// What an op may declare beside its lowering.
struct Traits {
  /// Schema positions of numbers (Scalar, float) that shape the program: they are part of its key
  /// and reach the lowering as constants (Lowering::number). Others are run-time inputs.
  std::vector<int> structural = {};
  /// Values of Scalar arguments worth a program of their own (pow by 2): Lowering::number sees them.
  std::vector<double> special = {};
  /// Schema positions of integers (int, int[]) that do not shape the program: run-time inputs
  /// (Lowering::scalar, scalars).
  std::vector<int> runtime = {};
  /// Judges the numbers of a call before it is recorded.
  Accept accept = nullptr;
  /// Draws random bits (Lowering::random_bits) from the generator argument or the device's default.
  bool random = false;
  /// Schema positions of tensors (or tensor lists) that the op changes although its schema does not
  /// return them: the results past the schema's returns are written into them, in order.
  std::vector<int> writes = {};
  /// An out= or in-place form may share no memory with the inputs, not even all of it: the results read
  /// elements at other places (gather, cat, matmul).
  bool distinct = false;
  /// Schema positions of tensors that a distinct op reads where it writes only: they may be the written one.
  std::vector<int> aligned = {};
  /// Gives every element the same value: elements of a written tensor may share memory (an expanded one).
  bool fills = false;
  /// Counts the elements of an out= tensor only: one of another shape with as many stays as it is.
  bool keeps_out_shape = false;
  /// Schema position of a dtype that is the one of the out= tensor where it is not given (cumsum).
  int out_dtype = -1;
  /// The in-place form gives the tensor the shape of the result, as out= forms do (addbmm_).
  bool resizes_self = false;
  /// How many of the first results ATen's Meta kernel describes as the CPU gives them; what it says of the
  /// others is CUDA's (statistics of normalizations). Negative for all of them.
  int meta_results = -1;
};

class Lowering;
using LowerFunction = Values (*)(Lowering& op);  // an empty Value among the results is None

struct Op {
  std::string name;  // "aten::add.Tensor"
  Traits traits;
  LowerFunction lower = nullptr;
  Hash128 identity;  // of the name: the op's part of every key
};

/// The registry, filled by static initialisers of src/ops.
const std::vector<const Op*>& all_ops();
/// Names that were declared more than once (the first declaration counts): a mistake, reported at
/// registration.
const std::vector<std::string>& duplicate_ops();
/// Null where no op has this name.
const Op* find_op(std::string_view name);

/// The run-time numbers of a call, of rank 0.
struct RunTimeNumbers {
  Values scalars;      // parallel to call.scalars
  Value seed, offset;  // s64, of a random op
};
/// Takes those of `call` in order: `next(slot)` gives each.
template <class Next>
RunTimeNumbers run_time_numbers(const Call& call, Next next) {
  RunTimeNumbers numbers;
  for (const ScalarSlot& slot : call.scalars) numbers.scalars.push_back(next(slot));
  if (call.op->traits.random) {
    numbers.seed = next(kRandomSlot);
    numbers.offset = next(kRandomSlot);
  }
  return numbers;
}

/// The arguments of one call while its lowering runs.
class Lowering {
 public:
  /// `inputs` is parallel to call.inputs.
  Lowering(Builder& builder, const Call& call, const Values& inputs, const RunTimeNumbers& numbers)
      : builder_(builder), call_(call), inputs_(inputs), numbers_(numbers) {}

  Builder& builder() { return builder_; }
  const Call& call() const { return call_; }
  /// Raises the error on the user's line. The default code becomes a RuntimeError.
  [[noreturn]] void fail(const std::string& message) const { builder_.fail(message); }
  [[noreturn]] void fail(Code code, const std::string& message) const { builder_.fail(code, message); }

  int size() const { return static_cast<int>(call_.args.size()); }
  /// False for None.
  bool has(int i) const { return !std::holds_alternative<std::monostate>(call_.args[i]); }
  /// A tensor argument. A 0-dim CPU tensor or a wrapped number comes as a rank-0 value with its own
  /// dtype (s64, f64, c128 or pred) and `wrapped` set for Python numbers.
  Value tensor(int i) const;
  /// The same, or an empty Value for None.
  Value optional_tensor(int i) const { return has(i) ? tensor(i) : Value{}; }
  /// The tensors of a list argument; an empty Value for None.
  Values tensors(int i) const;
  /// A Scalar or float argument as a rank-0 value of `dtype`, whether structural or not.
  Value scalar(int i, DType dtype) const;
  /// The same in the Python number's own category: s64, f64, c128 or pred, marked as wrapped.
  Value scalar(int i) const;
  /// The numbers of a list, as scalar(i) gives them.
  Values scalars(int i) const;
  /// The constant behind a structural argument or special value; nothing for run-time numbers.
  std::optional<double> number(int i) const;
  /// number(i), which must be there.
  double constant(int i) const;
  int64_t integer(int i) const;
  int64_t integer_or(int i, int64_t fallback) const { return has(i) ? integer(i) : fallback; }
  bool flag(int i) const;
  std::vector<int64_t> integers(int i) const;
  std::vector<double> numbers(int i) const;
  std::vector<bool> flags(int i) const;
  std::string text(int i) const;
  /// A ScalarType argument, or nothing for None.
  std::optional<DType> dtype(int i) const;

  /// A dimension argument wrapped into [0, rank); IndexError outside, as torch words it. Rank 0
  /// counts as rank 1.
  int64_t dim(int i, int64_t rank) const;
  int64_t wrap_dim(int64_t dim, int64_t rank) const;
  /// A list of dimensions, wrapped; None or an empty list means all of them. Duplicates are refused.
  Dims dims_or_all(int i, int64_t rank) const;
  Dims dims(int i, int64_t rank) const;

  DType default_dtype() const { return call_.default_dtype; }

  /// All inputs and run-time numbers, parallel to those of the call.
  const Values& inputs() const { return inputs_; }
  const Values& scalar_values() const { return numbers_.scalars; }
  /// Takes over what another lowering asserts.
  void adopt(const std::vector<Check>& checks, const Values& offenders);

  /// `count` uniformly random 32-bit words as u32[count]: Threefry-2x32 over a counter. The stream
  /// depends on seed and offset only: the same numbers on every platform and in every mode.
  Value random_bits(int64_t count);
  /// Blocks drawn so far by this lowering.
  int64_t random_blocks() const { return random_blocks_; }

  /// Asserts that no element of `bad` (pred) is set; the error is raised at the next host read, with one
  /// of the integers of `values` (dimensions of `bad`) that are bad in the place of "{}", or its halves of
  /// 32 bits in the places of two. Not inside regions. The CPU platform always checks, a TPU on request
  /// (TORCH_TPU_CHECK_VALUES).
  void check(const Value& bad, const Value& values, Code code, std::string message);
  void check(const Value& bad, Code code, std::string message);
  const std::vector<Check>& checks() const { return checks_; }
  /// One rank-0 s64 per check: kNoOffender when it holds, an offending number when not.
  const Values& offenders() const { return offenders_; }

 private:
  Builder& builder_;
  const Call& call_;
  const Values& inputs_;
  const RunTimeNumbers& numbers_;
  int64_t random_blocks_ = 0;
  std::vector<Check> checks_;
  Values offenders_;
};

inline constexpr int64_t kNoOffender = std::numeric_limits<int64_t>::min();

/// What a lowering made: the existing results only (parallel to call.outputs), and the outcomes of its
/// checks (parallel to call.checks).
struct Lowered {
  Values results;
  Values offenders;
};

/// Runs the lowering inside `builder`. `source`: the user's line, for a comment. The Status carries what the
/// op refused.
Result<Lowered> lower(Builder& builder, const Call& call, const Values& inputs, const RunTimeNumbers& numbers,
                      const std::string& source);
/// Runs the lowering in a scratch builder to fill call.outputs, call.random_blocks and call.checks.
Status infer(Call& call);

struct Registrar {
  Registrar(const char* name, Traits traits, LowerFunction lower);
};

}  // namespace torch_tpu::ops

/// OP("aten::name.overload") { body }  or  OP("aten::name", .structural = {1}) { body }
#define OP(...) OP_IMPL(TPU_CONCAT(lower_, __COUNTER__), __VA_ARGS__)
#define OP_IMPL(function, name, ...)                                                         \
  static ::torch_tpu::ops::Values function([[maybe_unused]] ::torch_tpu::ops::Lowering& op); \
  static const ::torch_tpu::ops::Registrar TPU_CONCAT(registrar_, function)(                 \
      name, ::torch_tpu::ops::Traits{__VA_ARGS__}, function);                                \
  static ::torch_tpu::ops::Values function([[maybe_unused]] ::torch_tpu::ops::Lowering& op)

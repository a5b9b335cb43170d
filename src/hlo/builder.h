// A builder that appends StableHLO text and computes result types. Pure: no device, no plugin.
//
// Values are cheap handles into the builder that made them; arithmetic on them appends operations.
// A misuse (dtype or shape mismatch) throws LoweringError, which the callers of lowerings
// (ops::lower) turn into a Status: a lowering body stays free of error plumbing.
#pragma once

#include <complex>
#include <functional>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/status.h"
#include "hlo/types.h"

namespace torch_tpu::hlo {

class Builder;

/// Thrown by builders and lowerings; caught by ops::lower, nowhere else.
class LoweringError : public std::runtime_error {
 public:
  LoweringError(Code code, const std::string& message) : std::runtime_error(message), code(code) {}
  const Code code;
};

/// One SSA value: valid while its builder lives.
struct Value {
  Builder* builder = nullptr;
  std::string name;  // "%12", "%arg0"
  Type type;
  /// True for a Python number (or a 0-dim tensor made of one): it takes part in type promotion with
  /// its category only.
  bool wrapped = false;

  explicit operator bool() const { return builder != nullptr; }
  DType dtype() const { return type.dtype; }
  const Dims& dims() const { return type.dims; }
  int64_t rank() const { return type.rank(); }
  int64_t dim(int64_t i) const { return type.dims[static_cast<size_t>(i < 0 ? i + rank() : i)]; }
};

using Values = std::vector<Value>;
/// Builds the inside of a region from its block arguments.
using Region = std::function<Values(const Values&)>;

enum class Compare { kEq, kNe, kLt, kLe, kGt, kGe };

/// The reductions with a region of their own. kMax and kMin let NaN win, as torch does.
enum class Reduction { kSum, kProduct, kMax, kMin, kAnd, kOr };

struct DotDims {
  Dims lhs_batch, rhs_batch, lhs_contract, rhs_contract;
};

/// Window of convolutions and window reductions; one entry per spatial dimension (convolution) or
/// per dimension (reduce_window). Empty members mean "all ones" or "no padding".
struct Window {
  Dims size, strides, padding_low, padding_high, base_dilation, window_dilation;
};

/// Where the batch, feature and spatial dimensions are; as StableHLO spells them: "[b, f, 0, 1]".
struct ConvolutionDims {
  std::string input, kernel, output;
};

struct GatherDims {
  Dims offset_dims, collapsed_slice_dims, start_index_map, slice_sizes;
  int64_t index_vector_dim = 0;
};

struct ScatterDims {
  Dims update_window_dims, inserted_window_dims, scatter_dims_to_operand_dims;
  int64_t index_vector_dim = 0;
  bool unique_indices = false;
};

/// Who multiplies matrices and convolves: the compiler's kernels, or on the CPU platform host kernels
/// wherever they are faster.
enum class Products { kCompiler, kHost };

/// The host kernel of two row-major inputs [batches..., k, m] and [batches..., k, n], which sums over k. With
/// the integer attribute transpose_rhs the second one is [batches..., n, k].
inline constexpr std::string_view kMatrixProduct = "torch_tpu.matrix_product";
/// The host kernels of a convolution x[n, c, ...] * w[o, c, ...] -> y[n, o, ...], without groups: (x, w) to
/// y, (dy, w) to dx and (x, dy) to dw. Integer attributes for each spatial dimension i: "stride<i>",
/// "padding<i>" on both sides, "dilation<i>" of w.
inline constexpr std::string_view kConvolution = "torch_tpu.convolution";
inline constexpr std::string_view kConvolutionInputGradient = "torch_tpu.convolution_input_gradient";
inline constexpr std::string_view kConvolutionWeightGradient = "torch_tpu.convolution_weight_gradient";

/// Appends operations to the body of @main; not thread-safe.
class Builder {
 public:
  /// `name_prefix` begins the names of values. With `keeps_operations`, operations() tells what was appended.
  explicit Builder(std::string name_prefix = {}, bool keeps_operations = false,
                   Products products = Products::kCompiler)
      : name_prefix_(std::move(name_prefix)), keeps_operations_(keeps_operations), products_(products) {}
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;

  [[noreturn]] void fail(const std::string& message) const { fail(Code::kInvalidArgument, message); }
  [[noreturn]] void fail(Code code, const std::string& message) const;

  Products products() const { return products_; }

  /// Adds a parameter of @main. Where `result` is not negative, the execution may consume it and put that
  /// result, of the same type, in its memory.
  Value parameter(const Type& type, int result = -1);
  /// The finished module: `results` become the results of @main, in order.
  std::string module(const Values& results);
  /// The parameters in order, and the results whose memory they may become (-1: none).
  struct Parameter {
    Value value;
    int result;
  };
  const std::vector<Parameter>& parameters() const { return parameters_; }
  /// An operation of @main, outside of regions and functions.
  struct Operation {
    std::string name;
    Values operands, results;
    std::string attributes;
    std::vector<std::string> regions;
  };
  const std::vector<Operation>& operations() const { return operations_; }
  /// Takes over the functions of `other`, for calls that are copied from it.
  void copy_functions(const Builder& other) { function_text_ = other.function_text_; }
  /// Adds a comment line to the text, e.g. the Python line that the next operations come from.
  void comment(std::string_view text);

  // --- constants -------------------------------------------------------------------------------
  /// All elements equal to `number`, converted to the dtype (true for any nonzero pred).
  Value splat(double number, const Type& type);
  Value splat(int64_t number, const Type& type);
  Value splat(std::complex<double> number, const Type& type);
  /// A rank-1 constant of integers.
  Value integers(std::span<const int64_t> numbers, DType dtype);
  /// A constant of any dtype given as numbers in row-major order.
  Value array(std::span<const double> numbers, const Type& type);
  Value iota(const Type& type, int64_t dim);
  /// The largest and smallest value of the dtype (infinities for floats, bounds for integers).
  Value highest(const Type& type);
  Value lowest(const Type& type);

  // --- the general form, for operations without a function of their own -------------------------
  /// Appends `"operation"(operands) regions {attributes} : (types) -> results`.
  Values emit(std::string_view operation, const Values& operands, const std::vector<Type>& results,
              std::string_view attributes = {}, const std::vector<std::string>& regions = {});
  Value emit_one(std::string_view operation, const Values& operands, const Type& result,
                 std::string_view attributes = {}, const std::vector<std::string>& regions = {});
  /// The text of a region with block arguments of `types`.
  std::string region(const std::vector<Type>& types, const Region& body);
  /// Remembers that `result` is `source` transposed, for whoever can read the source in its own order.
  void note_transposed(const Value& result, const Value& source, std::span<const int64_t> permutation);
  struct Transposed {
    Value source;
    Dims permutation;
  };
  /// What note_transposed said of `result`, or null.
  const Transposed* transposed_source(const Value& result) const;
  /// Calls a private function that is emitted once per module and argument types.
  Values call(const std::string& function, const Values& arguments, const Region& body);

 private:
  std::string fresh_name();

  const std::string name_prefix_;
  const bool keeps_operations_;
  const Products products_;
  std::vector<Parameter> parameters_;
  std::vector<Operation> operations_;
  int depth_ = 0;  // of regions and functions around what is appended now
  std::string body_;
  int next_name_ = 0;
  std::unordered_map<std::string, Transposed> transposed_;
  struct Function {
    std::string name;
    std::vector<Type> results;
  };
  std::map<std::string, Function> functions_;
  std::string function_text_;
};

/// "array<i64: 1, 2>"
std::string i64_array(std::span<const int64_t> numbers);

// --- conversion and shape ------------------------------------------------------------------------
/// Value conversion with torch's rules: to pred is "!= 0"; complex to real drops the imaginary part.
Value convert(const Value& x, DType dtype);
Value bitcast(const Value& x, const Type& type);
Value reshape(const Value& x, std::span<const int64_t> dims);
/// Result dimension i is operand dimension permutation[i].
Value transpose(const Value& x, std::span<const int64_t> permutation);
/// Operand dimension i becomes result dimension mapping[i].
Value broadcast_in_dim(const Value& x, std::span<const int64_t> dims, std::span<const int64_t> mapping);
/// NumPy broadcasting to `dims`; fails where a dimension neither matches nor is one.
Value broadcast_to(const Value& x, std::span<const int64_t> dims);
Dims broadcast_dims(Builder& builder, std::span<const int64_t> a, std::span<const int64_t> b);
Value slice(const Value& x, std::span<const int64_t> start, std::span<const int64_t> limit,
            std::span<const int64_t> strides = {});
/// The part [start, limit) with `step` of one dimension.
Value slice_dim(const Value& x, int64_t dim, int64_t start, int64_t limit, int64_t step = 1);
Value pad(const Value& x, const Value& fill, std::span<const int64_t> low, std::span<const int64_t> high,
          std::span<const int64_t> interior = {});
Value concatenate(const Values& parts, int64_t dim);
Value reverse(const Value& x, std::span<const int64_t> dims);
/// `starts`: one rank-0 integer per dimension; out-of-range starts are clamped.
Value dynamic_slice(const Value& x, const Values& starts, std::span<const int64_t> sizes);
Value dynamic_update_slice(const Value& x, const Value& update, const Values& starts);

// --- elementwise ---------------------------------------------------------------------------------
// Binary forms broadcast as NumPy does; dtypes must be equal.
Value operator+(const Value& a, const Value& b);
Value operator-(const Value& a, const Value& b);
Value operator*(const Value& a, const Value& b);
Value operator/(const Value& a, const Value& b);
Value operator-(const Value& a);
Value operator+(const Value& a, double b);
Value operator-(const Value& a, double b);
Value operator*(const Value& a, double b);
Value operator/(const Value& a, double b);
Value operator+(double a, const Value& b);
Value operator-(double a, const Value& b);
Value operator*(double a, const Value& b);
Value operator/(double a, const Value& b);
/// Bitwise on integers, logical on pred.
Value operator&(const Value& a, const Value& b);
Value operator|(const Value& a, const Value& b);
Value operator^(const Value& a, const Value& b);
// The operation, not a test for emptiness: that is `value.builder == nullptr`.
Value operator!(const Value& a);
/// Any StableHLO or CHLO binary operation of equal operand and result types, by its short name
/// ("power", "remainder", "atan2", "shift_left", "maximum").
Value binary(std::string_view operation, const Value& a, const Value& b);
/// Any StableHLO unary operation of equal operand and result type ("tanh", "sine"); with the
/// prefix "chlo." the CHLO one ("chlo.erf").
Value unary(std::string_view operation, const Value& x);
Value maximum(const Value& a, const Value& b);
Value minimum(const Value& a, const Value& b);
Value power(const Value& a, const Value& b);
Value remainder(const Value& a, const Value& b);
Value exp(const Value& x);
Value log(const Value& x);
Value log1p(const Value& x);
Value expm1(const Value& x);
Value sqrt(const Value& x);
Value rsqrt(const Value& x);
Value tanh(const Value& x);
Value logistic(const Value& x);
Value sin(const Value& x);
Value cos(const Value& x);
Value floor(const Value& x);
Value ceil(const Value& x);
Value sign(const Value& x);
/// The modulus for complex operands.
Value abs(const Value& x);
Value erf(const Value& x);
Value real(const Value& x);
Value imag(const Value& x);
Value complex(const Value& re, const Value& im);
Value is_finite(const Value& x);
Value is_nan(const Value& x);
Value compare(Compare direction, const Value& a, const Value& b);
Value compare(Compare direction, const Value& a, double b);
/// Elementwise choice; all three broadcast, a and b have equal dtypes.
Value select(const Value& predicate, const Value& a, const Value& b);
/// A splat with the dtype and dimensions of `x`.
Value like(const Value& x, double number);

// --- reductions, dots, windows -------------------------------------------------------------------
/// Removes `dims`.
Value reduce(const Value& x, Reduction kind, std::span<const int64_t> dims);
/// Reduces `dims` to size one.
Value reduce_keep(const Value& x, Reduction kind, std::span<const int64_t> dims);
/// The general reduction over several operands of equal dimensions; `body` gets the accumulators,
/// then the elements.
Values reduce(const Values& operands, const Values& inits, std::span<const int64_t> dims, const Region& body);
/// Batch dims, then the free dims of lhs, then those of rhs. Full precision unless `precision`.
Value dot_general(const Value& lhs, const Value& rhs, const DotDims& dims, DType result);
/// The same, by the host where the builder has Products::kHost and that is faster. Not for operands that a
/// compiler would lay out as it likes, as those of convolutions: the host reads them row-major.
Value product(const Value& lhs, const Value& rhs, const DotDims& dims, DType result);
/// A call of a host kernel, which reads and writes row-major memory; only where the builder has
/// Products::kHost.
Value host_call(std::string_view kernel, const Values& inputs, const Type& result,
                std::span<const std::pair<std::string, int64_t>> attributes);
Value convolution(const Value& input, const Value& kernel, const Window& window, const ConvolutionDims& dims,
                  int64_t feature_groups, int64_t batch_groups, const Type& result);
Value reduce_window(const Value& x, Reduction kind, const Window& window);
Values reduce_window(const Values& operands, const Values& inits, const Window& window, const Region& body);
Value gather(const Value& x, const Value& indices, const GatherDims& dims, bool sorted = false);
/// `combine` gets (old, update).
Value scatter(const Value& x, const Value& indices, const Value& updates, const ScatterDims& dims,
              const Region& combine);
/// Sorts all operands together along `dim`; `less` gets the pairs (a0, b0, a1, b1, ...).
Values sort(const Values& operands, int64_t dim, bool stable, const Region& less);
Values while_loop(const Values& state, const Region& condition, const Region& body);
/// A region that applies one binary reduction to its two arguments.
Region combiner(Reduction kind);
/// The neutral element of the reduction, rank 0.
Value neutral(Builder& builder, Reduction kind, DType dtype);

// --- collectives ---------------------------------------------------------------------------------
/// All groups of replicas, one after the other; each replica is in one.
struct ReplicaGroups {
  std::vector<int64_t> replicas;
  size_t size = 1;  // of each group
};
/// The reduction of x over the replicas of a group.
Value all_reduce(const Value& x, Reduction kind, const ReplicaGroups& groups);
/// The x of the group's replicas one after the other along `dim`.
Value all_gather(const Value& x, int64_t dim, const ReplicaGroups& groups);
/// The replica's own part along `dim` of the reduction; the group's size divides it.
Value reduce_scatter(const Value& x, Reduction kind, int64_t dim, const ReplicaGroups& groups);
/// Part i of x along `dim` goes to replica i of the group; the parts received lie in the replicas' order.
Value all_to_all(const Value& x, int64_t dim, const ReplicaGroups& groups);
/// u32, rank 0.
Value replica_id(Builder& builder);

}  // namespace torch_tpu::hlo

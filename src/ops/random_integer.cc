// Random whole numbers and permutations.
#include "ops/indexing.h"
#include "ops/pointwise.h"
#include "ops/random.h"
#include "ops/require.h"

namespace torch_tpu::ops {
namespace {

using hlo::convert;
using hlo::like;
using hlo::select;

Value shift_right(const Value& x, int bits) { return hlo::binary("shift_right_logical", x, like(x, bits)); }
Value shift_left(const Value& x, int bits) { return hlo::binary("shift_left", x, like(x, bits)); }

Value low_half(const Value& x) { return x & x.builder->splat(int64_t{0xffffffff}, {x.dtype(), {}}); }

/// The upper 64 bits of the product of two u64, by halves.
Value high_product(const Value& a, const Value& b) {
  const Value a_high = shift_right(a, 32), a_low = low_half(a);
  const Value b_high = shift_right(b, 32), b_low = low_half(b);
  const Value middle = a_high * b_low + shift_right(a_low * b_low, 32);
  const Value rest = a_low * b_high + low_half(middle);
  return a_high * b_high + shift_right(middle, 32) + shift_right(rest, 32);
}

Value random_s64(Lowering& op, const Dims& dims) {
  const Value high = convert(random_words(op, dims), DType::kS64);
  return shift_left(high, 32) | convert(random_words(op, dims), DType::kS64);
}

/// Whether no range within the dtype is longer than 2^32.
bool is_narrow(DType dtype) {
  return hlo::is_float(dtype) ? dtype == DType::kF16 : hlo::byte_size(dtype) <= 4;
}

/// Uniform whole numbers in [from, from + range) as s64: `from` s64, `range` u64, both of rank 0; a range of
/// zero means all 64 bits. The upper bits of a product are cheaper than a remainder, and as fair.
Value whole_numbers(Lowering& op, const Dims& dims, const Value& from, const Value& range, bool narrow) {
  if (narrow) {
    const Value word = convert(random_words(op, dims), DType::kU64);
    return convert(shift_right(word * range, 32), DType::kS64) + from;
  }
  const Value word = convert(random_s64(op, dims), DType::kU64);
  const Value number = select(equal(range, 0.0), word, high_product(word, range));
  return convert(number, DType::kS64) + from;
}

/// The largest whole number up to which all are exact.
int64_t last_whole_number(DType dtype) {
  if (hlo::is_float(dtype)) return int64_t{1} << (hlo::width_bits(dtype) + 1);
  if (dtype == DType::kPred) return 1;
  const int64_t bits = hlo::byte_size(dtype) * 8 - (hlo::is_unsigned(dtype) ? 0 : 1);
  return bits >= 63 ? INT64_MAX : (int64_t{1} << bits) - 1;
}

Value constant(Lowering& op, uint64_t number, DType dtype) {
  return op.builder().splat(static_cast<int64_t>(number), {dtype, {}});
}

void require_real(Lowering& op, const Value& x) {
  if (!hlo::is_complex(x.dtype())) return;
  op.fail("check_random_bounds handles only integral, floating-point and boolean types");
}

/// Whole numbers in [from, to), bounds that are known when the program runs.
Value random_between(Lowering& op, const Value& from, const Value& to) {
  const Value x = op.tensor(0);
  require_real(op, x);
  const Value range = convert(to - from, DType::kU64);
  const Value number = convert(whole_numbers(op, x.dims(), from, range, is_narrow(x.dtype())), x.dtype());
  if (!hlo::is_float(x.dtype())) return number;
  // Rounding can reach the excluded end.
  const Value excluded = hlo::compare(hlo::Compare::kGe, convert(number, DType::kS64), to);
  return select(excluded, convert(from, x.dtype()), number);
}

Status require_representable(int64_t number, DType dtype, const std::string& name) {
  const bool fits = hlo::is_float(dtype) ? require_convertible(number, dtype).ok()
                    : dtype == DType::kPred
                        ? number == 0 || number == 1
                        : require_convertible(number, dtype).ok() && !(hlo::is_unsigned(dtype) && number < 0);
  if (fits) return {};
  return invalid_argument(name + " is out of bounds for " + std::string(cpp_name(dtype)));
}

Status accept_between(const Numbers& numbers, int64_t from, int64_t to) {
  if (from >= to) {
    return invalid_argument("random_ expects 'from' to be less than 'to', but got from=" +
                            std::to_string(from) + " >= to=" + std::to_string(to));
  }
  RETURN_IF_ERROR(require_representable(from, numbers.dtype, "from"));
  return require_representable(to - 1, numbers.dtype, "to - 1");
}

// The smallest number of all stands for all 64 bits.
Status accept_all_bits(DType dtype) {
  if (dtype == DType::kS64 || (hlo::is_float(dtype) && dtype != DType::kF16)) return {};
  const bool unknown = dtype == DType::kF16 || dtype == DType::kPred;
  return {unknown ? Code::kUnimplemented : Code::kInvalidArgument,
          "random_ over all 64 bits handles only int64, double, float and bfloat16"};
}

Status accept_from(const Numbers& numbers) {
  const int64_t from = numbers.integer(1);
  if (numbers.has(2)) return accept_between(numbers, from, numbers.integer(2));
  if (from == INT64_MIN) return accept_all_bits(numbers.dtype);
  const int64_t last = last_whole_number(numbers.dtype);
  if (hlo::is_float(numbers.dtype) && from >= last) {
    return invalid_argument(
        "random_ expects 'from' casted to dtype to be less than or equal to 'to_inc' casted to dtype, but "
        "got from=" +
        std::to_string(from) + " > to_inc=" + std::to_string(last));
  }
  return require_representable(from, numbers.dtype, "from");
}

/// Refuses dtypes in which the numbers below n are not all different. torch lets bfloat16 pass.
void require_permutable(Lowering& op, int64_t n, DType dtype) {
  const std::string name(scalar_type_name(dtype));
  if (dtype == DType::kPred || hlo::is_complex(dtype)) {
    op.fail(Code::kUnimplemented, "\"randperm\" not implemented for '" + name + "'");
  }
  if (const Status status = require_convertible(n, dtype); !status.ok()) {
    op.fail(status.code(), status.message());
  }
  const int64_t limit = last_whole_number(dtype);
  if (!hlo::is_float(dtype) || dtype == DType::kBF16 || n - 1 <= limit) return;
  op.fail("n cannot be greater than " + std::to_string(limit + 1) + " for " + name + " type.");
}

Status accept_to(const Numbers& numbers) { return accept_between(numbers, 0, numbers.integer(1)); }

}  // namespace

OP("aten::random.from", .runtime = {1, 2}, .accept = accept_from, .random = true) {
  const Value from = op.scalar(1, DType::kS64);
  if (op.has(2)) return {random_between(op, from, op.scalar(2, DType::kS64))};
  // Everything from `from` on, the last number included.
  const Value x = op.tensor(0);
  require_real(op, x);
  const uint64_t end = static_cast<uint64_t>(last_whole_number(x.dtype())) + 1;
  const Value rest = constant(op, end, DType::kU64) - convert(from, DType::kU64);
  const Value all_bits = equal(from, static_cast<double>(INT64_MIN));
  const Value range = select(all_bits, constant(op, 0, DType::kU64), rest);
  return {convert(whole_numbers(op, x.dims(), from, range, is_narrow(x.dtype())), x.dtype())};
}
OP("aten::random.to", .runtime = {1}, .accept = accept_to, .random = true) {
  return {random_between(op, constant(op, 0, DType::kS64), op.scalar(1, DType::kS64))};
}
OP("aten::random", .random = true) {
  const Value x = op.tensor(0);
  require_ordered(op, x, "random_kernel_cpu");
  const uint64_t range = static_cast<uint64_t>(last_whole_number(x.dtype())) + 1;
  const bool narrow = range <= uint64_t{1} << 32;
  const Value zero = constant(op, 0, DType::kS64);
  return {convert(whole_numbers(op, x.dims(), zero, constant(op, range, DType::kU64), narrow), x.dtype())};
}

OP("aten::randperm.generator_out", .random = true) {
  // Random keys with the index in their low bits: one sort of one array.
  const int64_t n = op.integer(0);
  const DType dtype = op.dtype(2).value();
  require_permutable(op, n, dtype);
  const Type type{DType::kS64, {n}};
  if (n < 2) return {convert(op.builder().iota(type, 0), dtype)};
  int index_bits = 1;
  while ((int64_t{1} << index_bits) < n) ++index_bits;
  const int64_t mask = (int64_t{1} << index_bits) - 1;
  const Value random = random_s64(op, type.dims);
  const Value keys = (random & op.builder().splat(~mask, type)) | op.builder().iota(type, 0);
  const Value sorted =
      hlo::sort({keys}, 0, false, [](const Values& x) -> Values { return {less(x[0], x[1])}; })[0];
  return {convert(sorted & op.builder().splat(mask, type), dtype)};
}

}  // namespace torch_tpu::ops

#include "ops/require.h"

#include "ops/indexing.h"

namespace torch_tpu::ops {
namespace {

[[noreturn]] void refuse(const Lowering& op, const Value& x, std::string_view kernel) {
  std::string message = "\"";
  message += kernel;
  message += "\" not implemented for '";
  message += scalar_type_name(x.dtype());
  op.fail(Code::kUnimplemented, message + "'");
}

}  // namespace

void require_floating(const Lowering& op, const Value& x, std::string_view kernel) {
  if (!hlo::is_float(x.dtype())) refuse(op, x, kernel);
}

void require_ordered(const Lowering& op, const Value& x, std::string_view kernel) {
  if (hlo::is_complex(x.dtype())) refuse(op, x, kernel);
}

void require_elements(const Lowering& op, const Value& x, int64_t dim, std::string_view kernel) {
  if (x.rank() == 0 || x.dim(dim) > 0) return;
  op.fail(Code::kIndexError, std::string(kernel) + "(): Expected reduction dim " + std::to_string(dim) +
                                 " to have non-zero size.");
}

void check_range(Lowering& op, const Value& index, int64_t low, int64_t high, Code code,
                 const std::string& message) {
  if (index.type.elements() == 0) return;
  const Value wide = hlo::convert(index, DType::kS64);
  const auto bound = [&](int64_t number) { return op.builder().splat(number, {DType::kS64, {}}); };
  const Value bad =
      compare(hlo::Compare::kLt, wide, bound(low)) | compare(hlo::Compare::kGe, wide, bound(high));
  op.check(bad, wide, code, message);
}

void check_indices(Lowering& op, const Value& index, int64_t dim, int64_t size, bool wraps, Code code) {
  check_range(op, index, wraps ? -size : 0, size, code,
              "index {} is out of bounds for dimension " + std::to_string(dim) + " with size " +
                  std::to_string(size));
}

void check_flat_indices(Lowering& op, const Value& index, int64_t elements) {
  check_range(
      op, index, -elements, elements, Code::kIndexError,
      "out of range: tried to access index {} on a tensor of " + std::to_string(elements) + " elements.");
}

void check_divisor(Lowering& op, const Value& divisor) {
  if (!hlo::is_integer(divisor.dtype()) || divisor.type.elements() == 0) return;
  op.check(compare(hlo::Compare::kEq, divisor, 0.0), Code::kInvalidArgument, "ZeroDivisionError");
}

void check_unit_interval(Lowering& op, const Value& x, const std::string& message) {
  const Value inside = compare(hlo::Compare::kGe, x, 0.0) & compare(hlo::Compare::kLe, x, 1.0);
  op.check(!inside, Code::kInvalidArgument, message);
}

}  // namespace torch_tpu::ops

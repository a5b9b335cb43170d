#include "ops/require.h"

namespace torch_tpu::ops {
namespace {

/// c10::toString of the scalar type.
std::string_view torch_name(DType dtype) {
  switch (dtype) {
    case DType::kPred:
      return "Bool";
    case DType::kS8:
      return "Char";
    case DType::kS16:
      return "Short";
    case DType::kS32:
      return "Int";
    case DType::kS64:
      return "Long";
    case DType::kU8:
      return "Byte";
    case DType::kU16:
      return "UInt16";
    case DType::kU32:
      return "UInt32";
    case DType::kU64:
      return "UInt64";
    case DType::kC64:
      return "ComplexFloat";
    case DType::kC128:
      return "ComplexDouble";
    default:
      return hlo::name(dtype);
  }
}

[[noreturn]] void refuse(const Lowering& op, const Value& x, std::string_view kernel) {
  std::string message = "\"";
  message += kernel;
  message += "\" not implemented for '";
  message += torch_name(x.dtype());
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

}  // namespace torch_tpu::ops

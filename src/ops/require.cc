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

}  // namespace torch_tpu::ops

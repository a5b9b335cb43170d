#include "torch/error.h"

#include <c10/util/Exception.h>

namespace torch_tpu {

void raise(const Status& status) {
  const std::string& message = status.message();
  switch (status.code()) {
    case Code::kIndexError:
      TORCH_CHECK_INDEX(false, message);
      break;
    case Code::kLinearAlgebra:
      TORCH_CHECK_LINALG(false, message);
      break;
    case Code::kTypeError:
      TORCH_CHECK_TYPE(false, message);
      break;
    case Code::kUnimplemented:
      TORCH_CHECK_NOT_IMPLEMENTED(false, message);
      break;
    case Code::kOutOfMemory:
      TORCH_CHECK_WITH(OutOfMemoryError, false, message);
      break;
    default:
      TORCH_CHECK(false, message);
  }
  __builtin_unreachable();
}

}  // namespace torch_tpu

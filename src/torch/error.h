// The edge: a Status becomes the exception that Python users expect.
#pragma once

#include "base/status.h"

namespace torch_tpu {

/// Throws the c10 exception of the status' code: IndexError, TypeError, NotImplementedError,
/// OutOfMemoryError, else Error (RuntimeError).
[[noreturn]] void raise(const Status& status);

inline void raise_if_error(const Status& status) {
  if (!status.ok()) raise(status);
}

template <typename T>
T value_or_raise(Result<T> result) {
  if (!result.ok()) raise(result.status());
  return std::move(result).value();
}

}  // namespace torch_tpu

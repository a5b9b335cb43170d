// Status and Result<T>: errors as values. Everything below src/torch returns these and never throws.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace torch_tpu {

/// What kind of failure a Status reports; src/torch maps each to one Python exception.
enum class Code {
  kOk,
  kInvalidArgument,  // RuntimeError
  kTypeError,        // TypeError
  kIndexError,       // IndexError
  kLinearAlgebra,    // torch.linalg.LinAlgError
  kOutOfMemory,      // torch.OutOfMemoryError
  kUnimplemented,    // NotImplementedError
  kNotFound,         // RuntimeError: a file, a symbol, a plugin
  kUnavailable,      // RuntimeError: the device or the plugin cannot be used now
  kInternal,         // RuntimeError: a fault of ours or of the plugin
};

/// Success, or a code with one sentence for the user.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }

  /// The same failure with "context: " before its message; success stays success.
  Status with_context(const std::string& context) const {
    return ok() ? *this : Status(code_, context + ": " + message_);
  }

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

inline Status invalid_argument(std::string message) { return {Code::kInvalidArgument, std::move(message)}; }
inline Status internal_error(std::string message) { return {Code::kInternal, std::move(message)}; }

/// A value or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : content_(std::move(value)) {}
  Result(Status status) : content_(std::move(status)) {}

  bool ok() const { return std::holds_alternative<T>(content_); }
  Status status() const { return ok() ? Status() : std::get<Status>(content_); }
  T& value() & { return std::get<T>(content_); }
  const T& value() const& { return std::get<T>(content_); }
  T&& value() && { return std::get<T>(std::move(content_)); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }

 private:
  std::variant<T, Status> content_;
};

}  // namespace torch_tpu

#define TPU_CONCAT_INNER(a, b) a##b
#define TPU_CONCAT(a, b) TPU_CONCAT_INNER(a, b)

/// Returns from the calling function when `expression` (a Status) is a failure.
#define RETURN_IF_ERROR(expression)                                  \
  do {                                                               \
    if (::torch_tpu::Status status_ = (expression); !status_.ok()) { \
      return status_;                                                \
    }                                                                \
  } while (0)

/// Declares `target` from a Result, or returns its Status.
#define ASSIGN_OR_RETURN(target, expression) \
  ASSIGN_OR_RETURN_IMPL(TPU_CONCAT(result_, __LINE__), target, expression)
#define ASSIGN_OR_RETURN_IMPL(result, target, expression) \
  auto result = (expression);                             \
  if (!result.ok()) {                                     \
    return result.status();                               \
  }                                                       \
  target = std::move(result).value()

// The Python numbers of a call, which an op may look at before the call is recorded: what they may be is
// refused on the user's line, and costs the device nothing.
#pragma once

#include <complex>
#include <string>
#include <variant>
#include <vector>

#include "base/status.h"
#include "hlo/types.h"

namespace torch_tpu::ops {

/// std::monostate: None, or no number. Booleans are integers.
using Number = std::variant<std::monostate, int64_t, double, std::complex<double>>;

struct Numbers {
  /// Of the first tensor.
  hlo::DType dtype = hlo::DType::kF32;
  /// By schema position.
  std::vector<Number> values;

  bool has(int i) const { return !std::holds_alternative<std::monostate>(values[i]); }
  int64_t integer(int i) const { return std::get<int64_t>(values[i]); }
  /// The real part.
  double real(int i) const;
  /// As C++ streams print it.
  std::string text(int i) const;
};

/// Traits::accept: success, or what the user is told.
using Accept = Status (*)(const Numbers& numbers);

/// "value cannot be converted to type int8_t without overflow" unless `dtype` can hold the number, as
/// c10::Scalar::to judges it: fractions and rounding are fine, and negative integers wrap.
Status require_convertible(const Number& number, hlo::DType dtype);
/// For an op whose argument `position` must be convertible to the dtype of the first tensor.
template <int position>
Status accept_convertible(const Numbers& numbers) {
  return require_convertible(numbers.values[position], numbers.dtype);
}

}  // namespace torch_tpu::ops

#include "ops/numbers.h"

#include <cmath>
#include <limits>
#include <sstream>

#include "ops/indexing.h"

namespace torch_tpu::ops {
namespace {

using hlo::DType;

double largest(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return 65504.0;
    case DType::kBF16:
      return 0x1.fep127;
    case DType::kF32:
      return std::numeric_limits<float>::max();
    case DType::kF64:
      return std::numeric_limits<double>::max();
    default:
      return INFINITY;  // the small floats saturate
  }
}

struct Bounds {
  int64_t low;
  uint64_t high;
};

Bounds integer_bounds(DType dtype) {
  const int bits = static_cast<int>(hlo::byte_size(dtype)) * 8 - (hlo::is_unsigned(dtype) ? 0 : 1);
  const uint64_t high = bits == 64 ? UINT64_MAX : (uint64_t{1} << bits) - 1;
  return {hlo::is_unsigned(dtype) ? 0 : -static_cast<int64_t>(high) - 1, high};
}

bool overflows(int64_t number, DType dtype) {
  if (dtype == DType::kPred) return false;
  if (hlo::is_inexact(dtype)) return std::abs(static_cast<double>(number)) > largest(dtype);
  const Bounds bounds = integer_bounds(dtype);
  const uint64_t size = number < 0 ? -static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
  if (number > 0 || hlo::is_unsigned(dtype)) return size > bounds.high;
  return number < bounds.low;
}

bool overflows(double number, DType dtype) {
  if (dtype == DType::kPred) return false;
  if (hlo::is_inexact(dtype)) return !std::isinf(number) && std::abs(number) > largest(dtype);
  const Bounds bounds = integer_bounds(dtype);
  return !(number >= static_cast<double>(bounds.low) && number <= static_cast<double>(bounds.high));
}

bool overflows(const Number& number, DType dtype) {
  if (const auto* integer = std::get_if<int64_t>(&number)) return overflows(*integer, hlo::real_type(dtype));
  if (const auto* real = std::get_if<double>(&number)) return overflows(*real, hlo::real_type(dtype));
  const auto* complex = std::get_if<std::complex<double>>(&number);
  if (complex == nullptr || dtype == DType::kPred) return false;
  if (!hlo::is_complex(dtype)) return complex->imag() != 0 || overflows(complex->real(), dtype);
  return overflows(complex->real(), hlo::real_type(dtype)) ||
         overflows(complex->imag(), hlo::real_type(dtype));
}

std::string type_name(DType dtype) {
  const std::string name(cpp_name(hlo::real_type(dtype)));
  if (hlo::is_complex(dtype)) return "c10::complex<" + name + ">";
  if (!hlo::is_integer(dtype) || dtype == DType::kS32) return name;
  return (hlo::is_unsigned(dtype) ? "uint" : "int") + std::to_string(8 * hlo::byte_size(dtype)) + "_t";
}

}  // namespace

double Numbers::real(int i) const {
  if (const auto* integer = std::get_if<int64_t>(&values[i])) return static_cast<double>(*integer);
  if (const auto* complex = std::get_if<std::complex<double>>(&values[i])) return complex->real();
  return std::get<double>(values[i]);
}

std::string Numbers::text(int i) const {
  if (const auto* integer = std::get_if<int64_t>(&values[i])) return std::to_string(*integer);
  std::ostringstream stream;
  stream << real(i);
  return stream.str();
}

Status require_convertible(const Number& number, DType dtype) {
  if (!overflows(number, dtype)) return {};
  return invalid_argument("value cannot be converted to type " + type_name(dtype) + " without overflow");
}

}  // namespace torch_tpu::ops

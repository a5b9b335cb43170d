// Elementwise operations: unary, binary, comparisons, conversion.
#include <array>

#include "hlo/builder.h"

namespace torch_tpu::hlo {
namespace {

constexpr std::array<std::string_view, 6> kDirections{"EQ", "NE", "LT", "LE", "GT", "GE"};

std::string full_name(std::string_view operation) {
  if (operation.find('.') != std::string_view::npos) return std::string(operation);
  return "stablehlo." + std::string(operation);
}

Value scalar_of(const Value& x, double number) { return x.builder->splat(number, {x.dtype(), {}}); }

std::pair<Value, Value> broadcast_pair(const Value& a, const Value& b) {
  if (a.dtype() != b.dtype()) {
    a.builder->fail(Code::kInternal, "a lowering mixed " + a.type.text() + " and " + b.type.text());
  }
  const Dims dims = broadcast_dims(*a.builder, a.dims(), b.dims());
  return {broadcast_to(a, dims), broadcast_to(b, dims)};
}

}  // namespace

namespace {

/// A float as an integer, with x86's rules as torch has them: what is out of range, and NaN, becomes the
/// smallest 32-bit or 64-bit integer, and smaller integers are the low bits of those. XLA saturates.
Value truncated(const Value& x, DType dtype) {
  Builder& builder = *x.builder;
  if (byte_size(x.dtype()) == 1) return truncated(convert(x, DType::kF32), dtype);
  if (dtype == DType::kU64) return builder.emit_one("stablehlo.convert", {x}, {dtype, x.dims()});
  // Beyond 32 bits the low byte of anything shorter than a double is zero.
  const bool wide =
      byte_size(dtype) == 8 || dtype == DType::kU32 || (dtype == DType::kU8 && x.dtype() == DType::kF64);
  const Type type{wide ? DType::kS64 : DType::kS32, x.dims()};
  const Value integer = builder.emit_one("stablehlo.convert", {x}, type);
  const Value in_range = compare(Compare::kLt, x, wide ? 0x1p63 : 0x1p31);
  return convert(select(in_range, integer, builder.lowest({type.dtype, {}})), dtype);
}

}  // namespace

Value convert(const Value& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  Builder& builder = *x.builder;
  const Type type{dtype, x.dims()};
  if (dtype == DType::kPred) return compare(Compare::kNe, x, 0.0);
  if (is_complex(x.dtype()) && !is_complex(dtype)) return convert(real(x), dtype);
  if (is_float(x.dtype()) && is_integer(dtype)) return truncated(x, dtype);
  if (x.dtype() == DType::kPred && is_inexact(dtype)) {
    // XLA takes a product with a converted pred for a select, which loses 0 * inf and 0 * NaN.
    return builder.emit_one("stablehlo.convert", {convert(x, DType::kS8)}, type);
  }
  return builder.emit_one("stablehlo.convert", {x}, type);
}

Value bitcast(const Value& x, const Type& type) {
  return x.type == type ? x : x.builder->emit_one("stablehlo.bitcast_convert", {x}, type);
}

Value unary(std::string_view operation, const Value& x) {
  return x.builder->emit_one(full_name(operation), {x}, x.type);
}

Value binary(std::string_view operation, const Value& a, const Value& b) {
  const auto [left, right] = broadcast_pair(a, b);
  return a.builder->emit_one(full_name(operation), {left, right}, left.type);
}

Value operator+(const Value& a, const Value& b) {
  return a.dtype() == DType::kPred ? a | b : binary("add", a, b);
}
Value operator-(const Value& a, const Value& b) { return binary("subtract", a, b); }
Value operator*(const Value& a, const Value& b) {
  return a.dtype() == DType::kPred ? a & b : binary("multiply", a, b);
}
Value operator/(const Value& a, const Value& b) { return binary("divide", a, b); }
Value operator-(const Value& a) { return unary("negate", a); }
Value operator+(const Value& a, double b) { return a + scalar_of(a, b); }
Value operator-(const Value& a, double b) { return a - scalar_of(a, b); }
Value operator*(const Value& a, double b) { return a * scalar_of(a, b); }
Value operator/(const Value& a, double b) { return a / scalar_of(a, b); }
Value operator+(double a, const Value& b) { return scalar_of(b, a) + b; }
Value operator-(double a, const Value& b) { return scalar_of(b, a) - b; }
Value operator*(double a, const Value& b) { return scalar_of(b, a) * b; }
Value operator/(double a, const Value& b) { return scalar_of(b, a) / b; }
Value operator&(const Value& a, const Value& b) { return binary("and", a, b); }
Value operator|(const Value& a, const Value& b) { return binary("or", a, b); }
Value operator^(const Value& a, const Value& b) { return binary("xor", a, b); }
Value operator!(const Value& a) { return unary("not", a); }
Value maximum(const Value& a, const Value& b) { return binary("maximum", a, b); }
Value minimum(const Value& a, const Value& b) { return binary("minimum", a, b); }
Value power(const Value& a, const Value& b) { return binary("power", a, b); }
Value remainder(const Value& a, const Value& b) { return binary("remainder", a, b); }
Value exp(const Value& x) { return unary("exponential", x); }
Value log(const Value& x) { return unary("log", x); }
Value log1p(const Value& x) { return unary("log_plus_one", x); }
Value expm1(const Value& x) { return unary("exponential_minus_one", x); }
Value sqrt(const Value& x) { return unary("sqrt", x); }
Value rsqrt(const Value& x) { return unary("rsqrt", x); }
Value tanh(const Value& x) { return unary("tanh", x); }
Value logistic(const Value& x) { return unary("logistic", x); }
Value sin(const Value& x) { return unary("sine", x); }
Value cos(const Value& x) { return unary("cosine", x); }
Value floor(const Value& x) { return unary("floor", x); }
Value ceil(const Value& x) { return unary("ceil", x); }
Value sign(const Value& x) { return unary("sign", x); }
Value erf(const Value& x) { return unary("chlo.erf", x); }

Value abs(const Value& x) {
  if (is_unsigned(x.dtype()) || x.dtype() == DType::kPred) return x;
  return x.builder->emit_one("stablehlo.abs", {x}, {real_type(x.dtype()), x.dims()});
}

Value real(const Value& x) {
  if (!is_complex(x.dtype())) return x;
  return x.builder->emit_one("stablehlo.real", {x}, {real_type(x.dtype()), x.dims()});
}

Value imag(const Value& x) {
  if (!is_complex(x.dtype())) return like(x, 0.0);
  return x.builder->emit_one("stablehlo.imag", {x}, {real_type(x.dtype()), x.dims()});
}

Value complex(const Value& re, const Value& im) {
  const auto [left, right] = broadcast_pair(re, im);
  return re.builder->emit_one("stablehlo.complex", {left, right}, {complex_type(re.dtype()), left.dims()});
}

Value is_finite(const Value& x) {
  const Type type{DType::kPred, x.dims()};
  if (!is_inexact(x.dtype())) return x.builder->splat(1.0, type);
  if (is_complex(x.dtype())) return is_finite(real(x)) & is_finite(imag(x));
  return x.builder->emit_one("stablehlo.is_finite", {x}, type);
}

Value is_nan(const Value& x) { return compare(Compare::kNe, x, x); }

Value compare(Compare direction, const Value& a, const Value& b) {
  const auto [left, right] = broadcast_pair(a, b);
  const DType dtype = a.dtype();
  const std::string_view kind = is_inexact(dtype)                             ? "FLOAT"
                                : is_unsigned(dtype) || dtype == DType::kPred ? "UNSIGNED"
                                                                              : "SIGNED";
  std::string attributes = "comparison_direction = #stablehlo<comparison_direction ";
  attributes += kDirections[static_cast<size_t>(direction)];
  attributes += ">, compare_type = #stablehlo<comparison_type ";
  attributes += kind;
  attributes += ">";
  return a.builder->emit_one("stablehlo.compare", {left, right}, {DType::kPred, left.dims()}, attributes);
}

Value compare(Compare direction, const Value& a, double b) { return compare(direction, a, scalar_of(a, b)); }

Value select(const Value& predicate, const Value& a, const Value& b) {
  const auto [left, right] = broadcast_pair(a, b);
  const Dims dims = broadcast_dims(*a.builder, predicate.dims(), left.dims());
  return a.builder->emit_one(
      "stablehlo.select",
      {broadcast_to(predicate, dims), broadcast_to(left, dims), broadcast_to(right, dims)},
      {a.dtype(), dims});
}

Value like(const Value& x, double number) { return x.builder->splat(number, x.type); }

}  // namespace torch_tpu::hlo

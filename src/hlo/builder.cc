#include "hlo/builder.h"

#include <cmath>
#include <cstdio>
#include <limits>

namespace torch_tpu::hlo {
namespace {

std::string float_text(double number, DType dtype) {
  if (!std::isfinite(number)) {
    // Only the bit pattern spells infinities and NaN.
    const bool negative = std::signbit(number);
    const bool nan = std::isnan(number);
    switch (dtype) {
      case DType::kF64:
        return nan ? "0x7FF8000000000000" : negative ? "0xFFF0000000000000" : "0x7FF0000000000000";
      case DType::kF32:
        return nan ? "0x7FC00000" : negative ? "0xFF800000" : "0x7F800000";
      case DType::kBF16:
        return nan ? "0x7FC0" : negative ? "0xFF80" : "0x7F80";
      case DType::kF16:
        return nan ? "0x7E00" : negative ? "0xFC00" : "0x7C00";
      case DType::kF8E5M2:
        return nan ? "0x7E" : negative ? "0xFC" : "0x7C";
      default:  // f8E4M3FN has no infinity
        return "0x7F";
    }
  }
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, dtype == DType::kF64 ? "%.17g" : "%.9g", number);
  std::string text = buffer;
  if (text.find('.') == std::string::npos) {
    const size_t exponent = text.find('e');
    text.insert(exponent == std::string::npos ? text.size() : exponent, ".0");
  }
  return text;
}

int64_t to_integer(double number) {
  if (std::isnan(number)) return 0;
  if (number >= 9223372036854775807.0) return std::numeric_limits<int64_t>::max();
  if (number <= -9223372036854775808.0) return std::numeric_limits<int64_t>::min();
  return static_cast<int64_t>(number);
}

std::string integer_text(int64_t number, DType dtype) {
  switch (dtype) {
    case DType::kS8:
      return std::to_string(static_cast<int8_t>(number));
    case DType::kS16:
      return std::to_string(static_cast<int16_t>(number));
    case DType::kS32:
      return std::to_string(static_cast<int32_t>(number));
    case DType::kU8:
      return std::to_string(static_cast<uint8_t>(number));
    case DType::kU16:
      return std::to_string(static_cast<uint16_t>(number));
    case DType::kU32:
      return std::to_string(static_cast<uint32_t>(number));
    case DType::kU64:
      return std::to_string(static_cast<uint64_t>(number));
    default:
      return std::to_string(number);
  }
}

std::string element_text(std::complex<double> number, DType dtype) {
  if (dtype == DType::kPred) return number != 0.0 ? "true" : "false";
  if (is_float(dtype)) return float_text(number.real(), dtype);
  if (is_complex(dtype)) {
    const DType part = real_type(dtype);
    return "(" + float_text(number.real(), part) + ", " + float_text(number.imag(), part) + ")";
  }
  return integer_text(to_integer(number.real()), dtype);
}

Value constant(Builder& builder, const std::string& elements, const Type& type) {
  return builder.emit_one("stablehlo.constant", {}, type, "value = dense<" + elements + "> : " + type.text());
}

}  // namespace

std::string i64_array(std::span<const int64_t> numbers) {
  std::string text = "array<i64";
  for (size_t i = 0; i < numbers.size(); ++i) {
    text += i == 0 ? ": " : ", ";
    text += std::to_string(numbers[i]);
  }
  return text + ">";
}

void Builder::fail(Code code, const std::string& message) const { throw LoweringError(code, message); }

std::string Builder::fresh_name() { return "%" + name_prefix_ + std::to_string(next_name_++); }

Value Builder::parameter(const Type& type, int result) {
  const Value value{this, "%arg" + std::to_string(parameters_.size()), type};
  parameters_.push_back({value, result});
  return value;
}

std::string Builder::module(const Values& results) {
  std::string types;
  std::string names;
  for (const Value& result : results) {
    if (!types.empty()) {
      types += ", ";
      names += ", ";
    }
    types += result.type.text();
    names += result.name;
  }
  std::string parameters;
  for (const auto& [value, result] : parameters_) {
    if (!parameters.empty()) parameters += ", ";
    parameters += value.name + ": " + value.type.text();
    if (result >= 0) parameters += " {tf.aliasing_output = " + std::to_string(result) + " : i32}";
  }
  std::string text = "module @program {\nfunc.func public @main(" + parameters + ") -> (" + types + ") {\n";
  text += body_;
  text += "return " + names + (results.empty() ? "" : " : ") + types + "\n}\n";
  return text + function_text_ + "}\n";
}

void Builder::comment(std::string_view text) {
  body_ += "// ";
  body_ += text;
  body_ += '\n';
}

void Builder::note_transposed(const Value& result, const Value& source,
                              std::span<const int64_t> permutation) {
  transposed_.emplace(result.name, Transposed{source, Dims(permutation)});
}

const Builder::Transposed* Builder::transposed_source(const Value& result) const {
  const auto found = transposed_.find(result.name);
  return found == transposed_.end() ? nullptr : &found->second;
}

Value Builder::splat(double number, const Type& type) { return splat(std::complex<double>(number), type); }

Value Builder::splat(int64_t number, const Type& type) {
  if (is_integer(type.dtype)) return constant(*this, integer_text(number, type.dtype), type);
  return splat(static_cast<double>(number), type);
}

Value Builder::splat(std::complex<double> number, const Type& type) {
  return constant(*this, element_text(number, type.dtype), type);
}

Value Builder::integers(std::span<const int64_t> numbers, DType dtype) {
  std::string elements = "[";
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0) elements += ", ";
    elements += integer_text(numbers[i], dtype);
  }
  const Type type{dtype, {static_cast<int64_t>(numbers.size())}};
  return numbers.empty() ? splat(int64_t{0}, type) : constant(*this, elements + "]", type);
}

Value Builder::array(std::span<const double> numbers, const Type& type) {
  const Type flat{type.dtype, {static_cast<int64_t>(numbers.size())}};
  if (numbers.empty()) return splat(0.0, type);
  std::string elements = "[";
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0) elements += ", ";
    elements += element_text(numbers[i], type.dtype);
  }
  return reshape(constant(*this, elements + "]", flat), type.dims);
}

Value Builder::iota(const Type& type, int64_t dim) {
  if (type.dtype == DType::kPred) return convert(iota({DType::kS32, type.dims}, dim), DType::kPred);
  return emit_one("stablehlo.iota", {}, type, "iota_dimension = " + std::to_string(dim) + " : i64");
}

Value Builder::highest(const Type& type) {
  switch (type.dtype) {
    case DType::kPred:
      return splat(1.0, type);
    case DType::kU64:
      return splat(int64_t{-1}, type);
    case DType::kU32:
      return splat(int64_t{0xffffffff}, type);
    case DType::kU16:
      return splat(int64_t{0xffff}, type);
    case DType::kU8:
      return splat(int64_t{0xff}, type);
    case DType::kF8E4M3FN:
      return splat(448.0, type);
    default:
      break;
  }
  if (is_inexact(type.dtype)) return splat(std::numeric_limits<double>::infinity(), type);
  const int64_t bits = byte_size(type.dtype) * 8;
  return splat(static_cast<int64_t>((uint64_t{1} << (bits - 1)) - 1), type);
}

Value Builder::lowest(const Type& type) {
  if (type.dtype == DType::kPred || is_unsigned(type.dtype)) return splat(int64_t{0}, type);
  if (type.dtype == DType::kF8E4M3FN) return splat(-448.0, type);
  if (is_inexact(type.dtype)) return splat(-std::numeric_limits<double>::infinity(), type);
  const int64_t bits = byte_size(type.dtype) * 8;
  return splat(-static_cast<int64_t>((uint64_t{1} << (bits - 1)) - 1) - 1, type);
}

Values Builder::emit(std::string_view operation, const Values& operands, const std::vector<Type>& results,
                     std::string_view attributes, const std::vector<std::string>& regions) {
  std::string names;
  std::string types;
  for (const Value& operand : operands) {
    if (operand.builder != this) fail(Code::kInternal, "a value of another program was used");
    if (!names.empty()) {
      names += ", ";
      types += ", ";
    }
    names += operand.name;
    types += operand.type.text();
  }
  Values values;
  const std::string base = fresh_name();
  std::string result_types;
  for (size_t i = 0; i < results.size(); ++i) {
    if (i > 0) result_types += ", ";
    result_types += results[i].text();
    values.push_back({this, results.size() == 1 ? base : base + "#" + std::to_string(i), results[i]});
  }
  if (!results.empty()) {
    body_ += base;
    if (results.size() > 1) body_ += ":" + std::to_string(results.size());
    body_ += " = ";
  }
  body_ += '"';
  body_ += operation;
  body_ += "\"(" + names + ")";
  if (!regions.empty()) {
    body_ += " (";
    for (size_t i = 0; i < regions.size(); ++i) {
      if (i > 0) body_ += ", ";
      body_ += regions[i];
    }
    body_ += ")";
  }
  if (!attributes.empty()) {
    body_ += " {";
    body_ += attributes;
    body_ += "}";
  }
  body_ += " : (" + types + ") -> ";
  body_ += results.size() == 1 ? result_types : "(" + result_types + ")";
  body_ += '\n';
  if (keeps_operations_ && depth_ == 0) {
    operations_.push_back({std::string(operation), operands, values, std::string(attributes), regions});
  }
  return values;
}

Value Builder::emit_one(std::string_view operation, const Values& operands, const Type& result,
                        std::string_view attributes, const std::vector<std::string>& regions) {
  return emit(operation, operands, {result}, attributes, regions)[0];
}

std::string Builder::region(const std::vector<Type>& types, const Region& body) {
  std::string outer = std::move(body_);
  body_.clear();
  ++depth_;
  Values arguments;
  std::string text = "{\n^bb0(";
  for (size_t i = 0; i < types.size(); ++i) {
    arguments.push_back({this, fresh_name(), types[i]});
    if (i > 0) text += ", ";
    text += arguments.back().name + ": " + types[i].text();
  }
  text += "):\n";
  emit("stablehlo.return", body(arguments), {});
  text += body_ + "}";
  body_ = std::move(outer);
  --depth_;
  return text;
}

Values Builder::call(const std::string& function, const Values& arguments, const Region& body) {
  std::string key = function;
  for (const Value& argument : arguments) key += "," + argument.type.text();
  auto found = functions_.find(key);
  if (found == functions_.end()) {
    std::string outer = std::move(body_);
    body_.clear();
    ++depth_;
    const std::string name = "@" + function + "_" + std::to_string(functions_.size());
    Values parameters;
    std::string text = "func.func private " + name + "(";
    for (size_t i = 0; i < arguments.size(); ++i) {
      parameters.push_back({this, fresh_name(), arguments[i].type});
      if (i > 0) text += ", ";
      text += parameters.back().name + ": " + arguments[i].type.text();
    }
    const Values results = body(parameters);
    Function entry{name, {}};
    std::string types;
    std::string names;
    for (const Value& result : results) {
      if (!types.empty()) {
        types += ", ";
        names += ", ";
      }
      types += result.type.text();
      names += result.name;
      entry.results.push_back(result.type);
    }
    function_text_ += text + ") -> (" + types + ") {\n" + body_ + "return " + names + " : " + types + "\n}\n";
    body_ = std::move(outer);
    --depth_;
    found = functions_.emplace(key, std::move(entry)).first;
  }
  return emit("func.call", arguments, found->second.results, "callee = " + found->second.name);
}

}  // namespace torch_tpu::hlo

// Arguments that more than one call of the C API takes. They point into what they are made of, which must
// outlive the call.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "pjrt/pjrt_c_api.h"

namespace torch_tpu::pjrt {

inline PJRT_NamedValue named_value(std::string_view name, PJRT_NamedValue_Type type, size_t size = 1) {
  PJRT_NamedValue value{};
  value.struct_size = PJRT_NamedValue_STRUCT_SIZE;
  value.name = name.data();
  value.name_size = name.size();
  value.type = type;
  value.value_size = size;
  return value;
}

inline PJRT_NamedValue named_integer(std::string_view name, int64_t number) {
  PJRT_NamedValue value = named_value(name, PJRT_NamedValue_kInt64);
  value.int64_value = number;
  return value;
}

inline PJRT_NamedValue named_integers(std::string_view name, std::span<const int64_t> numbers) {
  PJRT_NamedValue value = named_value(name, PJRT_NamedValue_kInt64List, numbers.size());
  value.int64_array_value = numbers.data();
  return value;
}

inline PJRT_NamedValue named_flag(std::string_view name, bool flag) {
  PJRT_NamedValue value = named_value(name, PJRT_NamedValue_kBool);
  value.bool_value = flag;
  return value;
}

inline PJRT_NamedValue named_text(std::string_view name, std::string_view text) {
  PJRT_NamedValue value = named_value(name, PJRT_NamedValue_kString, text.size());
  value.string_value = text.data();
  return value;
}

/// StableHLO text as a program to compile.
inline PJRT_Program program_of(const std::string& stablehlo) {
  constexpr std::string_view kFormat = "mlir";
  PJRT_Program program{};
  program.struct_size = PJRT_Program_STRUCT_SIZE;
  program.code = const_cast<char*>(stablehlo.data());  // the field serves outputs too; only read here
  program.code_size = stablehlo.size();
  program.format = kFormat.data();
  program.format_size = kFormat.size();
  return program;
}

}  // namespace torch_tpu::pjrt

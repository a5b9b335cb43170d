// What the fake plugin understands of StableHLO: the signature of @main.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pjrt/pjrt_c_api.h"

namespace torch_tpu::testing {

struct TensorType {
  PJRT_Buffer_Type element = PJRT_Buffer_Type_INVALID;
  std::vector<int64_t> dims;
  bool operator==(const TensorType&) const = default;
};

struct Element {
  PJRT_Buffer_Type type;
  int64_t bytes;
};

inline const std::map<std::string_view, Element>& elements() {
  static const std::map<std::string_view, Element> table{
      {"i1", {PJRT_Buffer_Type_PRED, 1}},
      {"i8", {PJRT_Buffer_Type_S8, 1}},
      {"i16", {PJRT_Buffer_Type_S16, 2}},
      {"i32", {PJRT_Buffer_Type_S32, 4}},
      {"i64", {PJRT_Buffer_Type_S64, 8}},
      {"ui8", {PJRT_Buffer_Type_U8, 1}},
      {"ui16", {PJRT_Buffer_Type_U16, 2}},
      {"ui32", {PJRT_Buffer_Type_U32, 4}},
      {"ui64", {PJRT_Buffer_Type_U64, 8}},
      {"f8E4M3FN", {PJRT_Buffer_Type_F8E4M3FN, 1}},
      {"f8E5M2", {PJRT_Buffer_Type_F8E5M2, 1}},
      {"f16", {PJRT_Buffer_Type_F16, 2}},
      {"bf16", {PJRT_Buffer_Type_BF16, 2}},
      {"f32", {PJRT_Buffer_Type_F32, 4}},
      {"f64", {PJRT_Buffer_Type_F64, 8}},
      {"complex<f32>", {PJRT_Buffer_Type_C64, 8}},
      {"complex<f64>", {PJRT_Buffer_Type_C128, 16}},
      {"i4", {PJRT_Buffer_Type_S4, 1}},
  };
  return table;
}

inline int64_t bytes_of(const TensorType& type) {
  int64_t bytes = 0;
  for (const auto& [name, element] : elements()) {
    if (element.type == type.element) bytes = element.bytes;
  }
  for (const int64_t size : type.dims) bytes *= size;
  return bytes;
}

/// "tensor<2x3xf32>" at the first mention in `text`.
inline bool read_type(std::string_view text, TensorType& type) {
  const size_t start = text.find("tensor<");
  if (start == std::string_view::npos) return false;
  text.remove_prefix(start + std::strlen("tensor<"));
  while (!text.empty() && text.front() >= '0' && text.front() <= '9') {
    const size_t cross = text.find('x');
    if (cross == std::string_view::npos) return false;
    type.dims.push_back(std::strtoll(text.data(), nullptr, 10));
    text.remove_prefix(cross + 1);
  }
  for (const auto& [name, element] : elements()) {
    if (text.starts_with(name) && text.size() > name.size() && text[name.size()] == '>') {
      type.element = element.type;
      return true;
    }
  }
  return false;
}

/// The parts of the parenthesised list that starts `text`, which moves past it; false without its end.
inline bool split_list(std::string_view& text, std::vector<std::string_view>& parts) {
  int depth = 0;
  size_t start = 1;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '(' || c == '<' || c == '{' || c == '[') ++depth;
    if (c == ')' || c == '>' || c == '}' || c == ']') --depth;
    if ((c == ',' && depth == 1) || depth == 0) {
      const std::string_view part = text.substr(start, i - start);
      if (part.find_first_not_of(" \n") != std::string_view::npos) parts.push_back(part);
      start = i + 1;
    }
    if (depth == 0) {
      text.remove_prefix(i + 1);
      return true;
    }
  }
  return false;
}

struct Program {
  std::string text;
  std::vector<TensorType> arguments;
  std::vector<bool> donors;
  std::vector<TensorType> results;
};

inline bool read_signature(std::string_view text, Program& program) {
  const size_t name = text.find("@main(");
  if (name == std::string_view::npos) return false;
  text.remove_prefix(name + std::strlen("@main"));
  std::vector<std::string_view> arguments;
  if (!split_list(text, arguments)) return false;
  for (const std::string_view part : arguments) {
    TensorType type;
    if (!read_type(part, type)) return false;
    program.arguments.push_back(std::move(type));
    program.donors.push_back(part.find("jax.buffer_donor") != std::string_view::npos ||
                             part.find("tf.aliasing_output") != std::string_view::npos);
  }
  const size_t arrow = text.find("->");
  const size_t body = text.find('{');
  if (arrow == std::string_view::npos || arrow > body) return true;
  text.remove_prefix(text.find_first_not_of(" \n", arrow + 2));
  std::vector<std::string_view> results;
  if (text.front() != '(') {
    results.push_back(text);
  } else if (!split_list(text, results)) {
    return false;
  }
  for (const std::string_view part : results) {
    TensorType type;
    if (!read_type(part, type)) return false;
    program.results.push_back(std::move(type));
  }
  return true;
}

}  // namespace torch_tpu::testing

#include "hlo/operation_text.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <set>
#include <vector>

namespace torch_tpu::hlo {

Dims numbers_of(const std::string& attributes, std::string_view key) {
  Dims numbers;
  size_t at = attributes.find(std::string(key) + " = ");
  if (at == std::string::npos) return numbers;
  at += key.size() + 3;
  if (attributes.compare(at, 10, "array<i64>") == 0) return numbers;
  if (attributes.compare(at, 10, "array<i64:") == 0) at += 10;
  for (; at < attributes.size() && attributes[at] != '>' && attributes[at] != ']' && attributes[at] != ':';
       ++at) {
    const bool starts = std::isdigit(static_cast<unsigned char>(attributes[at])) || attributes[at] == '-';
    if (!starts) continue;
    char* end = nullptr;
    numbers.push_back(std::strtoll(attributes.c_str() + at, &end, 10));
    at = static_cast<size_t>(end - attributes.c_str()) - 1;
  }
  return numbers;
}

bool captures(const std::string& region) {
  std::set<std::string, std::less<>> defined;
  std::vector<std::string> used;
  bool in_header = false;
  bool at_line_start = true;
  for (size_t i = 0; i < region.size(); ++i) {
    if (region[i] == '^') in_header = true;
    if (region[i] == '\n') {
      in_header = false;
      at_line_start = true;
      continue;
    }
    if (region[i] != '%') {
      at_line_start = false;
      continue;
    }
    size_t end = i + 1;
    while (end < region.size() &&
           (std::isalnum(static_cast<unsigned char>(region[end])) || region[end] == '_'))
      ++end;
    std::string name = region.substr(i, end - i);
    if (in_header || at_line_start) {
      defined.insert(std::move(name));
    } else {
      used.push_back(std::move(name));
    }
    at_line_start = false;
    i = end - 1;
  }
  return std::any_of(used.begin(), used.end(),
                     [&](const std::string& name) { return !defined.contains(name); });
}

}  // namespace torch_tpu::hlo

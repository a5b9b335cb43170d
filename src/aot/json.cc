#include "aot/json.h"

#include <cmath>
#include <cstdio>

namespace torch_tpu::aot {
namespace {

/// The length of the UTF-8 sequence that `text` starts with; 0 where it is none.
size_t sequence_length(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const size_t length = first < 0x80   ? 1
                        : first < 0xc2 ? 0
                        : first < 0xe0 ? 2
                        : first < 0xf0 ? 3
                        : first < 0xf5 ? 4
                                       : 0;
  if (length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) return 0;
  }
  return length;
}

}  // namespace

std::string quoted(std::string_view text) {
  std::string json = "\"";
  while (!text.empty()) {
    const size_t length = sequence_length(text);
    const auto character = static_cast<unsigned char>(text[0]);
    if (length == 0) {
      json += "\xef\xbf\xbd";
    } else if (character == '"' || character == '\\') {
      json += '\\';
      json += text[0];
    } else if (character < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", character);
      json += escape;
    } else {
      json += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return json + "\"";
}

JsonObject& JsonObject::number(std::string_view key, double value) {
  if (!std::isfinite(value)) return raw(key, "null");
  char digits[32];
  std::snprintf(digits, sizeof digits, "%.17g", value);
  return raw(key, digits);
}

JsonObject& JsonObject::texts(std::string_view key, const std::vector<std::string>& values) {
  std::string list;
  for (const std::string& value : values) list += (list.empty() ? "" : ", ") + quoted(value);
  return raw(key, "[" + list + "]");
}

JsonObject& JsonObject::raw(std::string_view key, std::string_view json) {
  if (!entries_.empty()) entries_ += ", ";
  entries_ += quoted(key) + ": ";
  entries_ += json;
  return *this;
}

}  // namespace torch_tpu::aot

// Writing JSON: as much of it as answers need.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace torch_tpu::aot {

/// `text` in quotation marks; bytes that are not UTF-8 become U+FFFD.
std::string quoted(std::string_view text);

/// An object whose entries are appended in order.
class JsonObject {
 public:
  JsonObject& text(std::string_view key, std::string_view value) { return raw(key, quoted(value)); }
  JsonObject& number(std::string_view key, int64_t value) { return raw(key, std::to_string(value)); }
  /// null where the number is not finite.
  JsonObject& number(std::string_view key, double value);
  JsonObject& flag(std::string_view key, bool value) { return raw(key, value ? "true" : "false"); }
  JsonObject& object(std::string_view key, const JsonObject& value) { return raw(key, value.json()); }
  JsonObject& texts(std::string_view key, const std::vector<std::string>& values);

  std::string json() const { return "{" + entries_ + "}"; }

 private:
  JsonObject& raw(std::string_view key, std::string_view json);

  std::string entries_;
};

}  // namespace torch_tpu::aot

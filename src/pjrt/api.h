// A loaded PJRT plugin: the C function table, its version rules and the one place where a
// PJRT_Error becomes a Status. Knows nothing of tensors.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "base/status.h"
#include "pjrt/pjrt_c_api.h"

namespace torch_tpu::pjrt {

/// One plugin, loaded for the life of the process (plugins cannot be unloaded safely).
/// All members are safe to use from any thread.
class Api {
 public:
  /// Opens the library at `path`, checks versions and initialises the plugin. Each failure is one
  /// sentence that names the path: no such file, not a plugin, an older API than kMinimumMinor.
  /// The same file loads once: later calls return the same Api.
  static Result<std::shared_ptr<const Api>> load(const std::string& path);

  static constexpr int kMinimumMinor = 81;

  const PJRT_Api* table() const { return table_; }
  const std::string& path() const { return path_; }
  int minor_version() const;
  /// "0.115, StableHLO 1.20.0, <path>" for logs and errors.
  std::string description() const;
  /// A hash of the plugin file's size and content sample: the salt of cache keys.
  const std::string& fingerprint() const { return fingerprint_; }

  /// Calls `method` (a member pointer of PJRT_Api) after filling struct_size, and converts the
  /// error. `size` is the X_STRUCT_SIZE constant of the argument struct.
  template <typename Method, typename Args>
  Status call(Method PJRT_Api::* method, Args& args, size_t size) const {
    args.struct_size = size;
    const auto* address = reinterpret_cast<const char*>(&(table_->*method));
    const auto offset = static_cast<size_t>(address - reinterpret_cast<const char*>(table_));
    if (offset + sizeof(void*) > table_->struct_size || table_->*method == nullptr) {
      return {Code::kUnimplemented, "the PJRT plugin " + path_ + " lacks a function"};
    }
    if constexpr (std::is_void_v<decltype((table_->*method)(&args))>) {
      (table_->*method)(&args);
      return {};
    } else {
      return convert((table_->*method)(&args));
    }
  }

  /// Takes ownership of `error` (may be null) and destroys it.
  Status convert(PJRT_Error* error) const;
  /// Waits for `event`, takes ownership of it and returns the error it carried.
  Status await(PJRT_Event* event) const;
  void destroy_event(PJRT_Event* event) const;
  bool has_extension(PJRT_Extension_Type type) const { return extension(type) != nullptr; }
  /// The extension of that type, or null.
  const PJRT_Extension_Base* extension(PJRT_Extension_Type type) const;

 private:
  Api(std::string path, const PJRT_Api* table) : path_(std::move(path)), table_(table) {}
  std::string path_;
  std::string fingerprint_;
  const PJRT_Api* table_;
};

}  // namespace torch_tpu::pjrt

// What the compiler is asked for: CompileOptions become the bytes of a CompileOptionsProto, written
// by hand because that is all that a plugin needs of protobuf.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "base/status.h"

namespace torch_tpu::pjrt {

/// How hard the compiler works: kQuick compiles fast code for programs that touch little memory or
/// run once; kFull is the plugin's best. Platforms other than CPU ignore kQuick.
enum class Effort { kQuick, kFull };

struct CompileOptions {
  Effort effort = Effort::kFull;
  /// Further DebugOptions fields by name ("xla_..."), as text: "true", "3", "a,b" for a list. On
  /// CPU also "xla_backend_extra_options", a list of names that count as set.
  std::map<std::string, std::string> overrides;
};

/// How many devices a program is for, and how hard the compiler works on it.
struct BuildOptions {
  int64_t replicas = 1;
  int64_t partitions = 1;
  int level = -1;  // 0 to 3; -1 leaves it to the plugin
};

/// The bytes of a CompileOptionsProto; the program may run on any device. A non-empty `debug_options` (a
/// DebugOptionsProto) replaces the plugin's own; `overrides` apply on top of it.
std::string encode_compile_options(const std::map<std::string, std::string>& overrides,
                                   std::string_view debug_options, const BuildOptions& build_options = {});

/// The DebugOptions inside an HloModuleProtoWithConfig; empty where it has none.
std::string_view debug_options_of(std::string_view module_with_config);

/// `debug_options` with further entries in its xla_backend_extra_options: `keys`, separated by
/// commas, without values.
std::string with_backend_extra_options(std::string_view debug_options, std::string_view keys);

/// Chooses the options of each compile and remembers what the plugin refused. One per client.
/// Thread-safe.
class CompilePolicy {
 public:
  /// The bytes for one attempt, and what they rely on.
  struct Attempt {
    std::string bytes;
    std::map<std::string, std::string> overrides;
    bool sends_debug_options = false;
  };

  /// True when an attempt at `options` on XLA:CPU wants set_debug_options() first.
  bool needs_debug_options(const CompileOptions& options) const;
  /// The plugin's own DebugOptions, or empty when they cannot be had.
  void set_debug_options(std::string bytes);

  Attempt attempt(const CompileOptions& options, bool is_cpu) const;
  /// Learns from a refusal; true when another attempt would differ.
  bool learn_refusal(const Attempt& attempt, const Status& failure);
  /// Whether `attempt` is worth repeating without the copied DebugOptions, whatever the failure.
  bool is_on_trial(const Attempt& attempt) const;
  /// Ends the trial of the copied DebugOptions.
  void conclude_trial(bool accepted);

 private:
  mutable std::mutex mutex_;
  std::optional<std::string> debug_options_;
  bool debug_options_proven_ = false;
  std::set<std::string> refused_;
};

}  // namespace torch_tpu::pjrt

// A program compiled for devices that need not be there: what the compiler says of it, and its bytes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "pjrt/api.h"
#include "pjrt/compile_options.h"
#include "pjrt/executable.h"

namespace torch_tpu::pjrt {

struct AheadOfTimeOptions {
  BuildOptions build;
  /// DebugOptions and xla_tpu_... fields by name, as text. One that the compiler does not know is an error.
  std::map<std::string, std::string> overrides;
};

/// Refuses programs on which libtpu would end the process: `tensor<...>` types with unbounded dynamic
/// dimensions, or of more bytes than any machine has.
Status check_program(std::string_view stablehlo);

/// Immutable; thread-safe. Cannot run: a client of the right device loads its bytes.
class AheadOfTimeExecutable {
 public:
  /// Takes ownership of `handle`.
  AheadOfTimeExecutable(std::shared_ptr<const Api> api, PJRT_Executable* handle)
      : api_(std::move(api)), handle_(handle) {}
  ~AheadOfTimeExecutable();
  AheadOfTimeExecutable(const AheadOfTimeExecutable&) = delete;
  AheadOfTimeExecutable& operator=(const AheadOfTimeExecutable&) = delete;

  Result<ExecutableMemory> memory() const;
  /// The compiler's estimates by its own names: "flops", "bytes accessed", "optimal_seconds" and others.
  /// While bodies count once; each custom call that the compiler adds counts -1.
  Result<std::map<std::string, double>> cost() const;
  /// The plugin's own format.
  Result<std::string> serialize() const;

 private:
  std::shared_ptr<const Api> api_;
  PJRT_Executable* handle_;
};

}  // namespace torch_tpu::pjrt

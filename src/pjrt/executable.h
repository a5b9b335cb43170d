// A compiled program, loaded on the client's devices.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "hlo/types.h"
#include "pjrt/api.h"
#include "pjrt/buffer.h"
#include "pjrt/compile_options.h"

namespace torch_tpu::pjrt {

/// What the compiler says about a program; -1 where it does not say.
struct ExecutableMemory {
  int64_t argument_bytes = -1;
  int64_t output_bytes = -1;
  int64_t alias_bytes = -1;
  int64_t temporary_bytes = -1;
  int64_t code_bytes = -1;
  int64_t peak_bytes = -1;  // of all of these at once
};
/// Asks the plugin that made `executable`.
Result<ExecutableMemory> memory_of(const Api& api, PJRT_Executable* executable);
/// The plugin's bytes for `executable` after `prefix`.
Result<std::string> serialized(const Api& api, PJRT_Executable* executable, std::string_view prefix = {});

/// The plugin's part of what Executable::serialize wrote.
struct SerializedProgram {
  std::string_view plugin_bytes;
  bool may_donate;
};
/// Nothing when the bytes are not of serialize().
std::optional<SerializedProgram> split_serialized(std::string_view bytes);

/// Thread-safe: the same executable may run on several threads and devices at once.
class Executable {
 public:
  ~Executable();
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;

  /// The types of the results, in order.
  const std::vector<hlo::Type>& outputs() const { return outputs_; }

  /// Runs on device `device_index`. `arguments` must have the types that the program declares (the
  /// plugin reinterprets other types of equal size silently: the caller checks) and live on that
  /// device; null, donated and foreign entries are refused. Where `donate[i]` is set, argument i may
  /// be consumed, and is_donated() tells afterwards whether it was (empty = donate nothing).
  /// Returns one buffer per result; on CPU they are ready.
  Result<std::vector<std::shared_ptr<Buffer>>> execute(std::span<Buffer* const> arguments,
                                                       std::span<const uint8_t> donate,
                                                       int device_index) const;

  /// Bytes for Client::load of the same plugin build, in this or another process.
  Result<std::string> serialize() const;
  Result<ExecutableMemory> memory() const;
  /// The plugin's fingerprint of the program, empty where it has none.
  std::string fingerprint() const;

 private:
  friend class Client;
  /// Takes ownership of `loaded`. `may_donate` false promises that the program declares no donor.
  static Result<std::shared_ptr<Executable>> adopt(std::shared_ptr<const Client> client,
                                                   PJRT_LoadedExecutable* loaded, bool may_donate);
  Executable(std::shared_ptr<const Client> client, PJRT_LoadedExecutable* loaded, bool may_donate)
      : client_(std::move(client)), loaded_(loaded), may_donate_(may_donate) {}
  Status read_outputs();
  Status check_arguments(std::span<Buffer* const> arguments, std::span<const uint8_t> donate,
                         int device_index) const;
  /// The compiler's own DebugOptions, out of the optimised program; empty where it does not tell.
  std::string debug_options() const;

  std::shared_ptr<const Client> client_;
  PJRT_LoadedExecutable* loaded_;
  PJRT_Executable* executable_ = nullptr;
  std::vector<hlo::Type> outputs_;
  int64_t output_bytes_ = 0;
  bool may_donate_;
  /// What this was loaded from, kept on CPU: XLA:CPU writes unusable bytes for a loaded program.
  std::string origin_;
};

}  // namespace torch_tpu::pjrt

#include "base/env.h"

#include <array>
#include <charconv>
#include <cstdlib>

namespace torch_tpu::env {

const Variable kPlugin{"TORCH_TPU_PJRT_PLUGIN", "",
                       "Path of the PJRT plugin to load instead of the one found automatically."};
const Variable kCpuDevices{
    "TORCH_TPU_CPU_DEVICES", "0",
    "How many devices the XLA:CPU platform shows (tpu:0, tpu:1, ...); 0 shows one for each "
    "process that torchrun starts on this machine, and one without torchrun."};
const Variable kLocalWorldSize{"LOCAL_WORLD_SIZE", "1", "Set by torchrun: the processes on this machine."};
const Variable kMode{"TORCH_TPU_MODE", "fused",
                     "Eager mode: fused, strict (one program per op) or blocking (strict, and wait)."};
const Variable kDebug{"TORCH_TPU_DEBUG", "",
                      "A folder: every compiled program is written there as StableHLO with Python lines."};
const Variable kFallback{"TORCH_TPU_FALLBACK", "0",
                         "1 runs operators without a lowering on the CPU, with one warning per operator."};
const Variable kCutWindow{"TORCH_TPU_CUT_WINDOW", "512",
                          "The most ops a fused program holds; smaller compiles sooner, larger fuses more."};
const Variable kOwnSizes{
    "TORCH_TPU_OWN_SIZES", "3",
    "Sizes of one program, such as lengths of a sequence, that are each compiled on their own; "
    "after them one program serves all sizes up to a bound. 0: all on their own."};
const Variable kMemoryLimit{"TORCH_TPU_MEMORY_LIMIT_BYTES", "0",
                            "Device memory in bytes; 0 takes what the device or the machine has."};
const Variable kHeapBytes{
    "TORCH_TPU_HEAP_BYTES", "2147483647",
    "Freed memory that a process keeps for the programs of the XLA:CPU platform, at most "
    "2 GiB; 0 leaves the C library's settings alone."};
const Variable kCheckValues{"TORCH_TPU_CHECK_VALUES", "0",
                            "1 checks run-time values on a TPU too: indices in range, divisors not zero. "
                            "The XLA:CPU platform always does."};
const Variable kCache{"TORCH_TPU_CACHE", "on",
                      "Compiled programs on disk, shared by processes: on, off, or frozen (a program that is "
                      "not there is an error)."};
const Variable kCacheFolder{
    "TORCH_TPU_CACHE_DIR", "",
    "The folder of compiled programs instead of torch_tpu in the user's cache folder."};
const Variable kCacheBytes{"TORCH_TPU_CACHE_BYTES", "4294967296",
                           "The size of that folder from which on the programs not used for longest go."};

std::span<const Variable* const> table() {
  static constexpr std::array kTable{
      &kPlugin,   &kCpuDevices,  &kLocalWorldSize, &kMode,        &kDebug, &kFallback,    &kCutWindow,
      &kOwnSizes, &kMemoryLimit, &kHeapBytes,      &kCheckValues, &kCache, &kCacheFolder, &kCacheBytes};
  return kTable;
}

std::string text(const Variable& variable) {
  const char* value = std::getenv(variable.name);
  return value != nullptr ? value : variable.default_value;
}

int64_t integer(const Variable& variable) {
  const auto parse = [](const std::string& digits, int64_t fallback) {
    int64_t number = fallback;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    return error == std::errc() && end == digits.data() + digits.size() ? number : fallback;
  };
  return parse(text(variable), parse(variable.default_value, 0));
}

bool flag(const Variable& variable) {
  const std::string value = text(variable);
  return !(value.empty() || value == "0" || value == "false" || value == "off" || value == "no");
}

}  // namespace torch_tpu::env

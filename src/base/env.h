// The one table of environment variables. Nothing else in src/ calls getenv for a variable of ours.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace torch_tpu::env {

/// One row of the table; `documentation` is a sentence for the user.
struct Variable {
  const char* name;
  const char* default_value;
  const char* documentation;
};

extern const Variable kPlugin;          // TORCH_TPU_PJRT_PLUGIN
extern const Variable kCpuDevices;      // TORCH_TPU_CPU_DEVICES
extern const Variable kLocalWorldSize;  // LOCAL_WORLD_SIZE
extern const Variable kMode;            // TORCH_TPU_MODE
extern const Variable kDebug;           // TORCH_TPU_DEBUG
extern const Variable kFallback;        // TORCH_TPU_FALLBACK
extern const Variable kCutWindow;       // TORCH_TPU_CUT_WINDOW
extern const Variable kOwnSizes;        // TORCH_TPU_OWN_SIZES
extern const Variable kMemoryLimit;     // TORCH_TPU_MEMORY_LIMIT_BYTES
extern const Variable kHeapBytes;       // TORCH_TPU_HEAP_BYTES
extern const Variable kCheckValues;     // TORCH_TPU_CHECK_VALUES
extern const Variable kCache;           // TORCH_TPU_CACHE
extern const Variable kCacheFolder;     // TORCH_TPU_CACHE_DIR
extern const Variable kCacheBytes;      // TORCH_TPU_CACHE_BYTES

/// All rows, in the order in which the documentation prints them.
std::span<const Variable* const> table();

/// The value of the variable now, or its default. Read when asked, never cached.
std::string text(const Variable& variable);
/// As text(), read as a decimal integer; the default where it is not one.
int64_t integer(const Variable& variable);
/// False for "", "0", "false", "off" and "no".
bool flag(const Variable& variable);

}  // namespace torch_tpu::env

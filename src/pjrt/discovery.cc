#include "pjrt/discovery.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "base/env.h"

namespace torch_tpu::pjrt {
namespace {

constexpr std::string_view kGoogleVendor = "0x1ae0";
/// PCI device ids of TPU v2/v3, v4 (two ids), v5p, v5e, v6e and 7x.
constexpr std::array<std::string_view, 7> kTpuDeviceIds{"0x0027", "0x0056", "0x005e", "0x0062",
                                                        "0x0063", "0x006f", "0x0076"};

std::string first_word(const std::filesystem::path& path) {
  std::string word;
  std::ifstream(path) >> word;
  return word;
}

}  // namespace

bool tpu_is_present() {
  std::error_code failure;
  std::filesystem::directory_iterator entry("/sys/bus/pci/devices", failure);
  for (; !failure && entry != std::filesystem::directory_iterator(); entry.increment(failure)) {
    if (first_word(entry->path() / "vendor") != kGoogleVendor) continue;
    const std::string id = first_word(entry->path() / "device");
    if (std::find(kTpuDeviceIds.begin(), kTpuDeviceIds.end(), id) != kTpuDeviceIds.end()) return true;
  }
  return false;
}

Result<std::string> find_plugin(const std::vector<std::string>& cpu_plugins, const std::string& libtpu) {
  if (std::string chosen = env::text(env::kPlugin); !chosen.empty()) return chosen;
  const bool has_tpu = tpu_is_present();
  if (has_tpu && !libtpu.empty()) return libtpu;
  for (const std::string& path : cpu_plugins) {
    std::error_code ignored;
    if (std::filesystem::exists(path, ignored)) return path;
  }
  return Status(Code::kNotFound,
                has_tpu
                    ? "this machine has a TPU but no PJRT plugin for it: run 'pip install libtpu', or set "
                      "TORCH_TPU_PJRT_PLUGIN to the path of a plugin"
                    : "no PJRT plugin is installed: run 'pip install --no-deps lammps-jax-pjrt-cpu' for "
                      "XLA:CPU, or set TORCH_TPU_PJRT_PLUGIN to the path of a plugin");
}

}  // namespace torch_tpu::pjrt

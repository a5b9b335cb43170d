// Which plugin a process uses: TORCH_TPU_PJRT_PLUGIN, else libtpu where a TPU is present, else the
// XLA:CPU wheel.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace torch_tpu::pjrt {

/// The path of the plugin. `cpu_plugins` are the XLA:CPU plugins that Python found installed, best
/// first; `libtpu` is the installed libtpu.so or empty. An explicit TORCH_TPU_PJRT_PLUGIN wins.
/// Fails with one sentence that says what to install when nothing is found.
Result<std::string> find_plugin(const std::vector<std::string>& cpu_plugins, const std::string& libtpu);

/// True when a TPU chip is attached to this machine: a PCI device of vendor 0x1ae0 with the id of a
/// TPU. Opens no device.
bool tpu_is_present();

}  // namespace torch_tpu::pjrt

// Registration of the op registry with the dispatcher.
#pragma once

#include <string>
#include <vector>

namespace torch_tpu {

/// Registers a kernel for every op of the registry and for its in-place and out= forms. Called once,
/// when the extension module is loaded; raises if an op names no operator of this torch.
void register_kernels();

/// Names of all dispatcher operators that have a kernel from the registry.
std::vector<std::string> registered_operators();

}  // namespace torch_tpu

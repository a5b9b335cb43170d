// Python's part of looking at programs: the user's lines, argument names, and torch_tpu.debug.
#pragma once

namespace pybind11 {
class module_;
}

namespace torch_tpu {

/// Adds the functions behind torch_tpu.debug to the module, and tells the engine how to name lines and
/// arguments.
void register_trace(pybind11::module_& module);

}  // namespace torch_tpu

// Functions of tensors that are recorded once and repeated as one call.
#pragma once

namespace pybind11 {
class module_;
}

namespace torch_tpu {

/// Adds the class RecordedGraph: RecordedGraph(function)(list of tensors) is function(*tensors), whose
/// operators are repeated in one call for tensors of the same layouts. Clears the list. `function` must
/// depend on nothing but its arguments and the device's generator, and do nothing but compute on the device.
void register_graph(pybind11::module_& module);

}  // namespace torch_tpu

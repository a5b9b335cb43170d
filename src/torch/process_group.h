// torch.distributed on device tensors, carried by a CPU process group such as Gloo.
#pragma once

namespace pybind11 {
class module_;
}

namespace torch_tpu {

/// Defines process_group(transport, name) -> torch.distributed.Backend: the collectives of `transport`
/// for tensors of the device. Each reads its inputs when it is called; its outputs are written, in place,
/// when the returned Work is waited for, when a later collective reads them, or when the transport has
/// finished by the time of a later call. Tensors on the CPU go to `transport` as they are.
void register_process_group(pybind11::module_& m);

}  // namespace torch_tpu

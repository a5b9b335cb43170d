// torch.distributed in programs: collectives are recorded as operators that run among replicas.
#pragma once

namespace pybind11 {
class module_;
}

namespace torch_tpu {

/// Defines recorded_group(rank, size, replicas, name) -> torch.distributed.Backend. `replicas` are those of
/// the group of this process and of all groups like it, one group after the other; `size` are in each. The
/// collectives change their outputs as any operator does; nothing waits. What has no form in a program that
/// all replicas run alike (send and recv, uneven parts) raises NotImplementedError.
void register_recorded_group(pybind11::module_& m);

}  // namespace torch_tpu

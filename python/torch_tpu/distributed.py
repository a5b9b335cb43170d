"""The backends of torch.distributed for device "tpu".

"tpu" is the default for the device: a process group for tpu and CPU tensors. "tpu_dist" serves tpu tensors
only, for use in strings like "cpu:gloo,tpu:tpu_dist". Both move the data with Gloo, through host memory.
In a dry run (torch_tpu.aot) nothing moves: collectives become operators of the program.
"""


def register(distributed_c10d) -> None:
    """Registers the backends with torch.distributed.distributed_c10d; the first one becomes the device's default."""
    register_backend = distributed_c10d.Backend.register_backend
    register_backend("tpu", _process_group, extended_api=True, devices=["tpu"])
    register_backend("tpu_dist", _backend, extended_api=True, devices=["tpu"])


def _gloo(options):
    from torch.distributed import ProcessGroupGloo

    gloo = ProcessGroupGloo(options.store, options.group_rank, options.group_size, timeout=options.timeout)
    gloo.options.global_ranks_in_group = options.global_ranks_in_group
    gloo.options.group_name = options.group_id
    gloo._set_sequence_number_for_group()
    return gloo


def _backend(options, _backend_options):
    return _collectives(options, "tpu_dist")


def _collectives(options, name):
    """The backend of a group for tensors on tpu: over Gloo, or in a dry run recorded."""
    from torch.distributed import get_world_size, is_initialized

    from torch_tpu import _C

    if not _C.is_dry_run():
        return _C.process_group(_gloo(options), name)
    ranks = options.global_ranks_in_group or list(range(options.group_size))
    world = get_world_size() if is_initialized() else options.group_size
    return _C.recorded_group(options.group_rank, options.group_size, replica_groups(ranks, world), name)


def replica_groups(ranks: list[int], world: int) -> list[int]:
    """The ranks of all groups that lie in the world as this one does, one group after the other: every rank is in one.

    Raises ValueError where the world cannot be divided so."""
    left, groups = set(range(world)), []
    while left:
        group = [min(left) + rank - min(ranks) for rank in ranks]
        if not left.issuperset(group):
            raise ValueError(f"a world of {world} ranks cannot be divided into groups that lie as {ranks} do")
        left.difference_update(group)
        groups += group
    return groups


def _process_group(options, _backend_options):
    # init_process_group() without a backend takes Gloo for the group's default, which DDP then does not find.
    # It accepts a whole process group in place of a backend, so this one is made here.
    import torch
    from torch.distributed import ProcessGroup

    group = ProcessGroup(options.store, options.group_rank, options.group_size)
    group._set_default_backend(ProcessGroup.BackendType.CUSTOM)
    backend = _collectives(options, "tpu")
    for device in ("tpu", "cpu"):
        group._register_backend(torch.device(device), ProcessGroup.BackendType.CUSTOM, backend)
    return group

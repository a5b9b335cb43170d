"""Device memory: exact counts of the buffers that are alive."""

import torch

from torch_tpu import _C


def _statistics(device) -> dict[str, int]:
    from torch_tpu.tpu import _get_device_index

    return _C.memory_statistics(_get_device_index(device))


def memory_allocated(device=None) -> int:
    """Bytes of live device buffers. Recorded work is run first, so that what was dropped is gone."""
    from torch_tpu.tpu import _get_device_index

    if _C.is_initialized():
        _C.flush(_get_device_index(device))
    return _statistics(device)["live_bytes"]


def max_memory_allocated(device=None) -> int:
    """The most bytes of live buffers since the start or the last reset."""
    return _statistics(device)["peak_bytes"]


memory_reserved = memory_allocated
max_memory_reserved = max_memory_allocated


def reset_peak_memory_stats(device=None) -> None:
    """Makes the present use the peak."""
    from torch_tpu.tpu import _get_device_index

    _C.reset_peak_memory(_get_device_index(device))


reset_max_memory_allocated = reset_peak_memory_stats


def memory_stats(device=None) -> dict[str, int]:
    """Counts under the names that torch.cuda.memory_stats uses, and live_buffers."""
    statistics = _statistics(device)
    return {
        "allocated_bytes.all.current": statistics["live_bytes"],
        "allocated_bytes.all.peak": statistics["peak_bytes"],
        "allocation.all.current": statistics["live_buffers"],
        "allocation.all.allocated": statistics["allocations"],
        "live_buffers": statistics["live_buffers"],
    }


def mem_get_info(device=None) -> tuple[int, int]:
    """(free, total) bytes of the device."""
    from torch_tpu.tpu import _get_device_index

    total = _C.device_description(_get_device_index(device))["memory_bytes"]
    return total - _statistics(device)["live_bytes"], total


def memory_summary(device=None, abbreviated: bool = False) -> str:
    """A few lines for people."""
    statistics = _statistics(device)
    free, total = mem_get_info(device)
    return (
        f"tpu memory: {statistics['live_bytes'] / 2**20:.1f} MiB in {statistics['live_buffers']} buffers, "
        f"peak {statistics['peak_bytes'] / 2**20:.1f} MiB, free {free / 2**20:.1f} of {total / 2**20:.1f} MiB"
    )


def empty_cache() -> None:
    """Gives memory that the process keeps for programs to come (TORCH_TPU_HEAP_BYTES) back to the system."""
    _C.release_freed()


def _record_memory_history(*args, **kwargs) -> None:
    """Accepted for compatibility; no history is kept."""


def _snapshot(device=None) -> dict:
    """The statistics, in the place where torch.cuda keeps its snapshot."""
    return {"segments": [], "device_traces": [], "statistics": _statistics(device) if torch.tpu.is_available() else {}}

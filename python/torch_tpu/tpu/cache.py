"""torch.tpu.cache: the compiled programs that are kept on disk and shared by processes.

The folder is torch_tpu in the user's cache folder, or TORCH_TPU_CACHE_DIR; TORCH_TPU_CACHE=off keeps nothing on disk.
"""

import contextlib

from torch_tpu import _C


def info() -> dict | None:
    """folder, capacity_bytes, programs and bytes now in the folder, and since the process started: hits, misses,
    read_bytes, written_bytes, discarded (damaged files). None when nothing is kept on disk."""
    return _C.disk_cache()


def clear() -> None:
    """Removes the programs of the folder, also those of other processes; what is loaded stays loaded."""
    _C.clear_disk_cache()


def is_frozen() -> bool:
    """True while a program that was not compiled before is an error."""
    return _C.cache_is_frozen()


@contextlib.contextmanager
def frozen():
    """Inside, a program that is neither in memory nor on disk raises RuntimeError instead of being compiled."""
    before = _C.cache_is_frozen()
    _C.set_cache_frozen(True)
    try:
        yield
    finally:
        _C.set_cache_frozen(before)

"""torch.tpu: the device module, with the names of torch.cuda.

Functions take `device` as None (the current device), an index, a string or a torch.device.
"""

import torch

from torch_tpu import _C
from torch_tpu.tpu import amp, cache, memory, random
from torch_tpu.tpu.memory import (
    empty_cache,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_stats,
    memory_summary,
    reset_max_memory_allocated,
    reset_peak_memory_stats,
)
from torch_tpu.tpu.random import (
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)

Stream = torch.Stream
Event = torch.Event
OutOfMemoryError = torch.OutOfMemoryError


def is_available() -> bool:
    """True when there is a device. Opens no plugin, so a later fork is safe."""
    return _C.device_count() > 0


def is_initialized() -> bool:
    """True once the runtime was created."""
    return _C.is_initialized()


def init() -> None:
    """Creates the runtime now instead of at the first tensor. Raises with the reason when it cannot."""
    _C.init()


_lazy_init = init


def _is_in_bad_fork() -> bool:
    return _C.is_in_bad_fork()


def device_count() -> int:
    """The number of devices; 0 without a usable plugin."""
    return _C.device_count()


def current_device() -> int:
    """The index of this thread's current device."""
    return _C.current_device()


def _get_device_index(device=None, optional: bool = True) -> int:
    if device is None:
        if not optional:
            raise ValueError("a device was expected")
        return _C.current_device()
    if isinstance(device, int):
        return _C.current_device() if device < 0 else device
    device = torch.device(device)
    if device.type != "tpu":
        raise ValueError(f"Expected a tpu device, but got: {device}")
    return _C.current_device() if device.index is None else device.index


def set_device(device) -> None:
    """Makes `device` this thread's current device."""
    if isinstance(device, int) and device < 0:
        return
    _C.set_device(_get_device_index(device))


def _exchange_device(device: int) -> int:
    return _C.exchange_device(device)


def _maybe_exchange_device(device: int) -> int:
    return _C.exchange_device(device)


class device:
    """Context manager: the current device inside it is `device`."""

    def __init__(self, device):
        self.idx = -1 if device is None else _get_device_index(device)
        self.prev_idx = -1

    def __enter__(self):
        self.prev_idx = _C.exchange_device(self.idx)
        return self

    def __exit__(self, *exc_info):
        _C.exchange_device(self.prev_idx)
        return False


class device_of(device):
    """Context manager: the current device inside it is the one of a tensor (if it is on tpu)."""

    def __init__(self, obj):
        super().__init__(obj.get_device() if obj.device.type == "tpu" else None)


def synchronize(device=None) -> None:
    """Runs everything recorded for the device and waits for it; raises the first error since the
    last call."""
    _C.synchronize(_get_device_index(device))


def current_stream(device=None) -> torch.Stream:
    """The current stream. Each device orders all work in one queue, so streams never reorder it."""
    return torch.accelerator.current_stream(_get_device_index(device))


def default_stream(device=None) -> torch.Stream:
    """The stream that every thread starts with."""
    device_type = int(torch._C._autograd.DeviceType.PrivateUse1)
    return torch.Stream(stream_id=0, device_index=_get_device_index(device), device_type=device_type)


def set_stream(stream: torch.Stream | None) -> None:
    """Makes `stream` current on its device; None does nothing."""
    if stream is not None:
        torch.accelerator.set_stream(stream)


class StreamContext:
    """Context manager: `stream` is current inside it; None does nothing."""

    def __init__(self, stream):
        self.stream = stream

    def __enter__(self):
        if self.stream is not None:
            self.stream.__enter__()
        return self.stream

    def __exit__(self, *exc_info):
        if self.stream is not None:
            self.stream.__exit__(*exc_info)


def stream(stream: torch.Stream | None):
    """A context manager that makes `stream` current."""
    return StreamContext(stream)


class _DeviceProperties:
    def __init__(self, name, total_memory):
        self.name = name
        self.total_memory = total_memory
        self.major, self.minor = 0, 0
        self.multi_processor_count = 1

    def __repr__(self):
        return f"_TpuDeviceProperties(name={self.name!r}, total_memory={self.total_memory // 2**20}MB)"


def get_device_properties(device=None) -> _DeviceProperties:
    """name, total_memory (bytes), major, minor, multi_processor_count."""
    description = _C.device_description(_get_device_index(device))
    return _DeviceProperties(description["kind"], description["memory_bytes"])


def get_device_name(device=None) -> str:
    """The plugin's name for the chip: "TPU v5e", or "cpu" on the embedded platform."""
    return _C.device_description(_get_device_index(device))["kind"]


def get_device_capability(device=None) -> tuple[int, int]:
    """(0, 0): chips are told apart by name."""
    return (0, 0)


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Always True."""
    return True


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The dtypes that torch.autocast("tpu") accepts; bfloat16 is the default."""
    return [torch.bfloat16, torch.float16]


def counters() -> dict[str, int]:
    """Exact counts since the process started: ops recorded, programs run, compiles, cache hits,
    bytes moved, host reads, fallbacks."""
    return _C.counters()


def mode() -> str:
    """The eager mode: "fused", "strict" or "blocking"."""
    return _C.mode()


def set_mode(mode: str) -> None:
    """Sets the eager mode for all threads. "fused" runs many ops in one program, "strict" each op in
    its own, "blocking" waits for each, so that an error is raised on the line that caused it."""
    _C.set_mode(mode)


def get_device_interface():
    """What Dynamo asks about the device."""
    from torch_tpu.dynamo import TpuInterface

    return TpuInterface


def __getattr__(name):
    if name == "_initialized":  # torch.utils.checkpoint asks before it saves the generators' states
        return _C.is_initialized()
    if name == "default_generators":
        return tuple(_C.default_generator(i) for i in range(device_count()))
    raise AttributeError(f"module 'torch.tpu' has no attribute {name!r}")

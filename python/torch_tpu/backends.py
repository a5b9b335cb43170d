"""torch.backends.tpu: what this build can do."""

from torch_tpu import _C


def is_built() -> bool:
    """True: the extension module is part of the package."""
    return True


def is_available() -> bool:
    """True when a plugin and a device were found. Opens nothing."""
    return _C.device_count() > 0

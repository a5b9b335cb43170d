"""Names that torch and other libraries look up in a package called torch_tpu."""

import torch


def tpu_device(index: int | None = None) -> torch.device:
    """The device `index`, or the current one. Raises RuntimeError when there is none."""
    if not torch.tpu.is_available():
        raise RuntimeError("no tpu device is available")
    return torch.device("tpu", torch.tpu.current_device() if index is None else index)

"""torch.tpu.amp: automatic mixed precision under the device's own names."""

import torch


class autocast(torch.autocast):
    """torch.autocast("tpu", ...)."""

    def __init__(self, enabled: bool = True, dtype: torch.dtype = torch.bfloat16, cache_enabled: bool = True):
        super().__init__("tpu", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


class GradScaler(torch.amp.GradScaler):
    """torch.amp.GradScaler("tpu", ...)."""

    def __init__(self, *args, **kwargs):
        super().__init__("tpu", *args, **kwargs)

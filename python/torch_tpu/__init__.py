"""TorchTPU: device "tpu" for PyTorch.

`import torch` is enough: an entry point loads this package, and `torch.device("tpu")` is then an
ordinary device. Importing `torch_tpu` by hand does the same.
"""

__version__ = "0.1.0"


def _load():
    # torch loads this package while it is being imported; the other order must work as well.
    import torch  # noqa: F401

    from torch_tpu import _loader

    _loader.load()


_load()

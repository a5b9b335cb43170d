"""Programs as a TPU would get them, of code that runs or that only seems to."""

import contextlib

import torch

from torch_tpu import _C


@contextlib.contextmanager
def capture(sources=False):
    """Gives a list that holds, once the block is left, the StableHLO of each program that ran in it, as a TPU would
    get it. The programs also run, on the device that there is. `sources`: comments name the lines of Python, too."""
    programs = []
    if sources:
        _C.start_trace()
    _C.start_capture()
    try:
        yield programs
    finally:
        _flush()
        programs.extend(text.decode() for text in _C.finish_capture())
        if sources:
            _C.finish_trace()


@contextlib.contextmanager
def dry_run():
    """In the block, tensors on tpu have shapes and dtypes but no values: nothing is copied to the device, compiled or
    computed, and no memory is taken. What is made in it has no values afterwards either: reading one raises
    RuntimeError. The whole process is concerned, with all its threads."""
    torch.tpu.init()
    _flush()
    _C.set_dry_run(True)
    try:
        yield
    finally:
        _flush()
        _C.set_dry_run(False)


def _flush():
    if _C.is_initialized():
        for index in range(_C.device_count()):
            _C.flush(index)

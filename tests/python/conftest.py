"""What the Python tests share: processes of their own, and a device in its default mode."""
import os

os.environ["TORCH_TPU_CACHE"] = "off"  # what is compiled is counted

import pytest
import torch
from processes import ForkServer


@pytest.fixture(scope="session")
def forked():
    """forked(code, env, timeout) -> Result: runs code in a process that has not used the device yet."""
    server = ForkServer()
    yield server.run
    server.close()


@pytest.fixture(autouse=True)
def _default_state():
    """Every test starts in fused mode with the same seed."""
    torch.tpu.set_mode("fused")
    torch.manual_seed(0)
    yield
    torch.tpu.set_mode("fused")


@pytest.fixture(params=["fused", "strict", "blocking"])
def mode(request):
    """Each of the eager modes."""
    torch.tpu.set_mode(request.param)
    return request.param

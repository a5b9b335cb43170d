"""Runs the same code in each process of a process group."""
import textwrap

import pytest

FORMS = {
    "tpu": 'dist.init_process_group("tpu", **where)',
    "tpu_dist": 'dist.init_process_group("tpu_dist", **where)',
    "both devices": 'dist.init_process_group("cpu:gloo,tpu:tpu_dist", **where)',
    "tpu after cpu": 'dist.init_process_group("cpu:gloo,tpu:tpu", **where)',
    "tpu before cpu": 'dist.init_process_group("tpu:tpu,cpu:gloo", **where)',
    "device_id": 'dist.init_process_group(device_id=torch.device("tpu:0"), **where)',
    "nothing": "dist.init_process_group(**where)",
}

# Forks before anything uses the device; the second process' failure is the first one's.
PROCESSES = """
import os, sys, traceback
import torch.distributed as dist
from datetime import timedelta
from torch.nn.parallel import DistributedDataParallel as DDP
D = "tpu"
ws = {count}
child = os.fork() if ws == 2 else 0
rank = 1 if ws == 2 and child == 0 else 0
where = dict(init_method="file://{path}", rank=rank, world_size=ws, timeout=timedelta(seconds={timeout}))

def raises(function):
    try:
        function()
    except RuntimeError as error:
        return str(error)
    raise AssertionError("no exception")

def tpu(*numbers, dtype=torch.float32):
    return torch.tensor(numbers, dtype=dtype, device=D)

def run():
    {init}
{body}
    dist.barrier()
    dist.destroy_process_group()

failed = False
try:
    run()
except BaseException:
    traceback.print_exc()
    failed = True
if child == 0 and ws == 2:
    sys.stderr.flush()
    os._exit(failed)
if ws == 2:
    failed |= os.waitpid(child, 0)[1] != 0
sys.exit(int(failed))
"""


@pytest.fixture
def processes(forked, tmp_path):
    """processes(body, count=2, form="tpu"): runs `body` in each of the processes of a group, and checks them."""
    counter = iter(range(100))

    def run(body, count=2, form="tpu", timeout=50):
        code = PROCESSES.format(count=count, init=FORMS[form], path=tmp_path / f"store{next(counter)}", timeout=timeout,
                                body=textwrap.indent(textwrap.dedent(body), "    "))
        return forked(code, timeout=60).check()

    return run

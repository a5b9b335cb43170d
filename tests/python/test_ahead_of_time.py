"""torch_tpu.aot: programs are written for a TPU, and libtpu compiles them in a process that may die."""
import os
import signal
import threading

import pytest
import torch

from torch_tpu import aot, plugins

needs_libtpu = pytest.mark.skipif(not aot.is_available(), reason="libtpu is not installed: pip install torch_tpu[tpu]")

ADD = """module {
func.func public @main(%a: tensor<8x128xf32>, %b: tensor<8x128xf32>) -> tensor<8x128xf32> {
  %0 = "stablehlo.add"(%a, %b) : (tensor<8x128xf32>, tensor<8x128xf32>) -> tensor<8x128xf32>
  return %0 : tensor<8x128xf32>
}
}"""
BYTES = 8 * 128 * 4
# Variable divisors of 64 bits: half a minute of compiling.
SLOW = """module {
func.func public @main(%a: tensor<256x256xi64>, %b: tensor<256x256xi64>) -> tensor<256x256xi64> {
  %0 = "stablehlo.divide"(%a, %b) : (tensor<256x256xi64>, tensor<256x256xi64>) -> tensor<256x256xi64>
  return %0 : tensor<256x256xi64>
}
}"""


def test_capture():
    x = torch.ones(4, device="tpu")
    torch.tpu.synchronize()
    with aot.capture() as programs:
        assert (x * 2.5).sum().item() == 10
        y = x + 1  # still pending when the block ends
    assert len(programs) == 2
    assert "%arg1: tensor<1xf32>" in programs[0]  # how a TPU gets the 2.5
    assert programs[1].startswith("module")
    assert y.sum().item() == 8 and len(programs) == 2


def test_capture_ends_with_an_exception():
    with pytest.raises(ValueError), aot.capture():
        raise ValueError
    with aot.capture() as programs:
        pass
    assert programs == []


def test_without_libtpu(tmp_path):
    with pytest.raises(aot.CompileError, match="no PJRT plugin") as raised:
        aot.Compiler(libtpu=str(tmp_path / "libtpu.so")).compile(ADD)
    assert raised.value.reason == "unavailable"


def test_plugin_that_cannot_compile_ahead_of_time():
    with aot.Compiler(libtpu=plugins.cpu_plugins()[0]) as compiler:
        with pytest.raises(aot.CompileError):
            compiler.compile(ADD)
        with pytest.raises(aot.CompileError, match="is no TPU topology"):
            aot.Compiler("v5e:0x0", libtpu=plugins.cpu_plugins()[0]).compile(ADD)


@pytest.fixture(scope="module")
def compiler():
    with aot.Compiler() as instance:
        yield instance


@needs_libtpu
def test_figures(compiler):
    compiled = compiler.compile(ADD, level=0)
    assert compiled.memory["argument_bytes"] == 2 * BYTES
    assert compiled.memory["output_bytes"] == BYTES
    assert compiled.memory["peak_bytes"] == 3 * BYTES
    assert compiled.cost["flops"] == 8 * 128
    assert compiled.cost["optimal_seconds"] > 0
    assert compiled.device["kind"] == "TPU v5 lite" and compiled.device["count"] == 1
    assert compiled.program == b""
    assert len(compiler.compile(ADD, serialize=True).program) > 1000


@needs_libtpu
def test_what_eager_code_runs_compiles(compiler):
    layer = torch.nn.Linear(16, 4).to("tpu")
    torch.tpu.synchronize()
    with aot.capture() as programs:
        layer(torch.ones(2, 16, device="tpu")).sum().backward()
        torch.tpu.synchronize()
    assert programs
    for text in programs:
        compiler.compile(text, level=0)


@needs_libtpu
def test_refusals_leave_the_process_alone(compiler):
    process = compiler._running_process()
    for text in ("", "no program", ADD.replace("8x128", "?x128"), ADD.replace("stablehlo.add", "stablehlo.none")):
        with pytest.raises(aot.CompileError) as raised:
            compiler.compile(text)
        assert str(raised.value) and not isinstance(raised.value, aot.CompilerCrash)
    for options in ({"level": 9}, {"replicas": 2}, {"xla_none": 1}, {"none": 1}):
        with pytest.raises(aot.CompileError):
            compiler.compile(ADD, **options)
    compiler.compile(ADD)
    assert compiler._running_process() is process


@needs_libtpu
def test_out_of_memory(compiler):
    with pytest.raises(aot.CompileError, match="hbm|HBM") as raised:
        compiler.compile(ADD.replace("8x128", "8192x8192"), xla_tpu_max_hbm_size_mib=512)
    assert raised.value.reason == "out_of_memory"


@needs_libtpu
def test_time_limit(compiler):
    with pytest.raises(aot.CompileTimeout):
        compiler.compile(SLOW, timeout=0.5)
    compiler.compile(ADD)


@needs_libtpu
def test_process_that_dies(compiler):
    compiler.compile(ADD)
    child = compiler._running_process()._child
    timer = threading.Timer(0.5, os.kill, (child.pid, signal.SIGKILL))
    timer.start()
    with pytest.raises(aot.CompilerCrash, match="signal 9"):
        compiler.compile(SLOW)
    compiler.compile(ADD)
    os.kill(compiler._running_process()._child.pid, signal.SIGKILL)
    with pytest.raises(aot.CompilerCrash):  # between two requests
        compiler.compile(ADD)
    compiler.compile(ADD)


@needs_libtpu
def test_process_ends_with_its_compiler():
    compiler = aot.Compiler()
    compiler.compile(ADD)
    child = compiler._running_process()._child
    del compiler
    assert child.poll() == -signal.SIGKILL


@needs_libtpu
def test_process_ends_with_its_parent(forked):
    pid = int(forked(f"""
from torch_tpu import aot
compiler = aot.Compiler()
compiler.compile({ADD!r})
print(compiler._running_process()._child.pid)
import os, sys
sys.stdout.flush()
os.kill(os.getpid(), 9)
""").out)
    for _ in range(100):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        threading.Event().wait(0.1)
    pytest.fail("the compiler's process outlived its parent")


@needs_libtpu
def test_topologies():
    names = aot.topologies()
    assert {"v5e:1x1", "v6e:2x2", "v5p:2x2x1", "tpu7x:1x1x1"} <= set(names)
    with aot.Compiler("v6e:2x2") as compiler:
        assert compiler.compile(ADD, level=0, replicas=4).device["count"] == 4

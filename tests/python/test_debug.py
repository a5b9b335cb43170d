"""torch_tpu.debug.explain, StableHLO dumps and the rows of torch.profiler."""

import pytest
import torch
import torch_tpu.debug
from torch.profiler import ProfilerActivity, profile

from processes import run_python


def line_of(name):
    """The line of this file with the comment `name`."""
    lines = open(__file__).read().splitlines()
    return f"{__file__}:{next(i for i, line in enumerate(lines, 1) if line.endswith('# ' + name))}"


def test_programs_and_lines():
    def function(x):
        y = (x * 2).tanh()  # the product
        x + 1
        return y.sum().item()  # the read

    x = torch.ones(3, 5, device="tpu")
    report = torch_tpu.debug.explain(function, x)
    assert report.result == pytest.approx(15 * torch.tensor(2.0).tanh().item())
    (program,) = report.programs
    assert [name for name, _ in program.operators] == ["aten::mul.Tensor", "aten::tanh", "aten::sum"]
    assert program.operators[0][1] == line_of("the product")
    assert (program.cause, program.line) == ("host read", line_of("the read"))
    assert program.unused == 1
    assert "host read" in str(report) and "1 programs with 3 operators" in str(report)


def test_where_programs_come_from():
    def function(x):
        return (x @ x).cos().cpu()

    first = torch_tpu.debug.explain(function, torch.ones(6, 6, device="tpu"))
    again = torch_tpu.debug.explain(function, torch.ones(6, 6, device="tpu"))
    assert [program.origin for program in again.programs] == ["memory"] and not again.compiled
    other = torch_tpu.debug.explain(function, torch.ones(7, 7, device="tpu"))
    if first.compiled and other.compiled:  # and not on the disk since an earlier run
        assert "7x7" in other.compiled[0].difference and "6x6" in other.compiled[0].difference, other
    compiled = [name for name, _ in other.programs[0].operators]
    assert compiled == ["aten::mm", "aten::cos"]


def test_causes():
    x = torch.ones(4, device="tpu")

    def cause(function):
        return {program.cause for program in torch_tpu.debug.explain(function).programs}

    assert cause(lambda: (x + 1, torch.tpu.synchronize())) == {"synchronize"}
    kept = []
    assert cause(lambda: kept.append(x + 1)) == {"flush"}
    torch.tpu.set_mode("strict")
    try:
        assert cause(lambda: (x + 1) * 2) == {"mode"}
    finally:
        torch.tpu.set_mode("fused")

    def loop():
        y = x
        for _ in range(300):
            y = y * 2 - 1
        return y.cpu()

    assert cause(loop) >= {"repetition", "host read"}


def test_sizes():
    def function(size):
        return (torch.ones(size, 3, device="tpu") * 3).exp().sum(0).cpu()

    bounds = [torch_tpu.debug.explain(function, size).programs[-1].bound for size in (3, 4, 5, 6, 7)]
    assert bounds == [0, 0, 0, 16, 16]


def test_errors_end_the_trace():
    def fails():
        torch.ones(2, device="tpu") @ torch.ones(3, device="tpu")

    for _ in range(2):
        with pytest.raises(RuntimeError):
            torch_tpu.debug.explain(fails)
    with pytest.raises(ValueError, match="a trace is on"):
        torch_tpu.debug.explain(torch_tpu.debug.explain, fails)
    assert torch_tpu.debug.explain(lambda: 1).result == 1


@pytest.mark.parametrize("activities", [None, [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]],
                         ids=["all", "named"])
def test_profiler_rows(activities):
    x = torch.ones(8, 8, device="tpu")
    x.cpu()
    with profile(activities=activities) as profiler:
        before = torch.tpu.counters()["programs_run"]
        y = x
        for _ in range(200):
            y = y * 0.5 + x
        y.cpu()
        programs = torch.tpu.counters()["programs_run"] - before
    rows = [event for event in profiler.events() if event.name.startswith("tpu::program ")]
    assert programs >= 2 and len(rows) == programs
    assert all("ops)" in row.name for row in rows)


def test_dumps_have_lines(tmp_path):
    program = f"""
import torch
x = torch.ones(3, device="tpu")
print((x.cos() + 1).tolist())
"""
    run_python(program, {"TORCH_TPU_DEBUG": str(tmp_path), "TORCH_TPU_CACHE": "off"}).check()
    text = "".join(path.read_text() for path in tmp_path.glob("*.mlir"))
    assert "// aten::cos" in text and ":4" in text

"""The measurements of bench/: their rows, and the counts that they judge."""
import pytest
import torch

from bench import __main__ as bench
from bench import churn_cases, pointwise
from bench.comparison import difference
from bench.report import Report


def test_rows_have_names_of_their_own(capsys):
    names = [name for name, _ in bench.ROWS]
    assert len(set(names)) == len(names)
    with pytest.raises(SystemExit, match="no row 'nothing'"):
        bench.main(["nothing"])
    with pytest.raises(SystemExit):
        bench.main(["--help"])
    printed = capsys.readouterr().out
    assert all(name in printed for name in names)


@pytest.mark.parametrize("name", churn_cases.CASES)
def test_compilations(name):
    """A number, an index or a place that changes from call to call is compiled once."""
    _, _, most_further, most_total = churn_cases.CASES[name]
    further, total = churn_cases.compilations(name)
    assert most_further is None or further <= most_further
    assert most_total is None or total <= most_total


def test_pointwise_is_one_program():
    x = torch.linspace(-1, 1, 1 << 10, device="tpu")
    torch.tpu.synchronize()
    before = torch.tpu.counters()["programs_run"]
    result = pointwise.chain(x)
    torch.tpu.synchronize()
    assert torch.tpu.counters()["programs_run"] - before == 1
    torch.testing.assert_close(result.cpu(), pointwise.chain(x.cpu()))


def test_judgement(capsys):
    report = Report()
    report.start("row")
    report.judge("of a peer", 1.2, 1.1)
    assert (report.missed, report.status) == (["row: tpu: 1.20 of a peer, goal 1.1"], 0)
    report.fail("differs")
    report.finish()
    assert report.status == 1 and "FAILED row: differs" in capsys.readouterr().out
    assert difference([1.0, 100.0], [1.1, 100.0]) == pytest.approx(0.02)
    assert difference([1.0], [float("nan")]) == difference([1.0], []) == float("inf")

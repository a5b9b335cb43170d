"""A fixed, stratified sample of the operator sweep of tools/op_coverage.py, and the whole of it for `make test-all`.

How much ran is asserted as well as that it was right: a sweep that executes fewer samples than before fails.
"""
import json
import subprocess
import sys
from pathlib import Path

import pytest
from deviations import UNFINISHED

ROOT = Path(__file__).resolve().parents[2]
OTHER_DTYPES = "bfloat16,float16,float64,int64,int32,uint8,bool,complex64"

# name: (arguments of the tool, the samples that ran when this was written)
SWEEPS = {
    "every operator": (["--samples", "1"], 672),
    "other dtypes": (["--samples", "1", "--every", "5", "--dtype", OTHER_DTYPES], 756),
    "arguments": (["--samples", "1", "--every", "4", "--kinds", "noncontiguous,out,inplace"], 733),
    "errors": (["--samples", "100", "--kinds", "errors"], 681),
    "gradcheck": (["--samples", "1", "--every", "8", "--kinds", "gradcheck", "--dtype", "float64"], 64),
}
WHOLE_SAMPLES = 100_000


def executed(report):
    return sum(total["executed"] for kinds in report["totals"].values() for total in kinds.values())


def failing(report):
    """{"operator dtype kind": its first differences}"""
    return {f"{operator} {dtype} {kind}": result["problems"]
            for dtype, kinds in report["results"].items() for kind, operators in kinds.items()
            for operator, result in operators.items() if result["failing"]}


def run_sweeps(runs, timeout_seconds):
    code = f"import op_coverage\nfor arguments in {runs!r}: op_coverage.main(arguments)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT / "tools", capture_output=True, text=True,
                          timeout=timeout_seconds, check=False)
    print(done.stdout, done.stderr)  # pytest shows it on failure
    assert done.returncode in (0, 1), "the sweep ended early"


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """{name of a sweep: its report}; one process runs them all, as importing the database takes seconds."""
    folder = tmp_path_factory.mktemp("coverage")
    runs = [[*arguments, "--out", str(folder / f"{n}.json")] for n, (arguments, _) in enumerate(SWEEPS.values())]
    run_sweeps(runs, 1800)
    return {name: json.loads((folder / f"{index}.json").read_text()) for index, name in enumerate(SWEEPS)}


@pytest.mark.parametrize("name", SWEEPS)
def test_operators(reports, name):
    assert not failing(reports[name]).keys() - UNFINISHED.keys()
    assert executed(reports[name]) >= SWEEPS[name][1]


@pytest.mark.slow
def test_all_operators(tmp_path):
    """Every sample of every operator in every dtype, and the other kinds of calls."""
    run_sweeps([["--all", "--out", str(tmp_path / "report.json")]], 4 * 3600)
    report = json.loads((tmp_path / "report.json").read_text())
    assert not failing(report).keys() - UNFINISHED.keys()
    assert executed(report) >= WHOLE_SAMPLES

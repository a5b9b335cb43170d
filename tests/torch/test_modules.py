"""A fixed sample of the sweep over modules and optimizers of tools/module_coverage.py, and the whole of it for
`make test-all`. How much ran is asserted as well as that it was right.
"""
import json
import subprocess
import sys
from pathlib import Path

import pytest
from deviations import UNFINISHED
from test_operators import executed, failing

ROOT = Path(__file__).resolve().parents[2]
MODULES, OPTIMIZERS = ["--databases", "modules"], ["--databases", "optimizers"]

# name: (arguments of the tool, the samples that ran when this was written)
SWEEPS = {
    "every module": ([*MODULES, "--samples", "1", "--dtype", "float32", "--kinds", "training,evaluation,errors"], 146),
    "arguments": ([*MODULES, "--samples", "1", "--dtype", "float64", "--kinds", "noncontiguous"], 114),
    "without a batch": ([*MODULES, "--names", "^nn.(FractionalMaxPool3d|MultiLabelMarginLoss) float32 training"], 14),
    "every optimizer": ([*OPTIMIZERS, "--samples", "4", "--dtype", "float32"], 147),
    "complex numbers": ([*OPTIMIZERS, "--samples", "1", "--dtype", "complex64", "--kinds", "steps"], 12),
}
WHOLE_SAMPLES = 9_000


def run_sweeps(runs, timeout_seconds):
    code = f"import module_coverage\nfor arguments in {runs!r}: module_coverage.main(arguments)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT / "tools", capture_output=True, text=True,
                          timeout=timeout_seconds, check=False)
    print(done.stdout, done.stderr)  # pytest shows it on failure
    assert done.returncode in (0, 1), "the sweep ended early"


def missing(report):
    """{"name dtype kind"} of entries that the database lists and of which no sample ran."""
    return {f"{name} {dtype} {kind}" for dtype, kinds in report["results"].items() for kind, entries in kinds.items()
            for name, result in entries.items() if result.get("missing")}


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """{name of a sweep: its report}; one process runs them all, as importing the databases takes seconds."""
    folder = tmp_path_factory.mktemp("coverage")
    runs = [[*arguments, "--out", str(folder / f"{n}.json")] for n, (arguments, _) in enumerate(SWEEPS.values())]
    run_sweeps(runs, 1800)
    return {name: json.loads((folder / f"{index}.json").read_text()) for index, name in enumerate(SWEEPS)}


@pytest.mark.parametrize("name", SWEEPS)
def test_modules(reports, name):
    assert not failing(reports[name]).keys() - UNFINISHED.keys()
    assert not missing(reports[name])
    assert executed(reports[name]) >= SWEEPS[name][1]


@pytest.mark.slow
def test_all_modules(tmp_path):
    """Every sample of every module and optimizer, in the dtypes that the databases list."""
    run_sweeps([["--out", str(tmp_path / "report.json")]], 4 * 3600)
    report = json.loads((tmp_path / "report.json").read_text())
    assert not failing(report).keys() - UNFINISHED.keys()
    assert not missing(report)
    assert executed(report) >= WHOLE_SAMPLES

"""A fixed sample of the sweep over modules and optimizers of tools/module_coverage.py, and the whole of it for
`make test-all`. How much ran is asserted as well as that it was right.
"""
import pytest
from sweeps import executed, failing, run_sweeps

MODULES, OPTIMIZERS = ["--databases", "modules"], ["--databases", "optimizers"]

# name: (arguments of the tool, the samples that ran when this was written)
SWEEPS = {
    "every module": ([*MODULES, "--samples", "1", "--dtype", "float32", "--kinds", "training,evaluation,errors"], 146),
    "arguments": ([*MODULES, "--samples", "1", "--dtype", "float64", "--kinds", "noncontiguous"], 114),
    "without a batch": ([*MODULES, "--names", "^nn.(FractionalMaxPool3d|MultiLabelMarginLoss) float32 training"], 14),
    "every optimizer": ([*OPTIMIZERS, "--samples", "4", "--dtype", "float32"], 147),
    "complex numbers": ([*OPTIMIZERS, "--samples", "1", "--dtype", "complex64", "--kinds", "steps"], 12),
}
WHOLE_SAMPLES = 12_800


def missing(report):
    """{"name dtype kind"} of entries that the database lists and of which no sample ran."""
    return {f"{name} {dtype} {kind}" for dtype, kinds in report["results"].items() for kind, entries in kinds.items()
            for name, result in entries.items() if result.get("missing")}


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """{name of a sweep: its report}"""
    runs = [arguments for arguments, _ in SWEEPS.values()]
    return dict(zip(SWEEPS, run_sweeps("module_coverage", runs, tmp_path_factory.mktemp("coverage"))))


@pytest.mark.parametrize("name", SWEEPS)
def test_modules(reports, name):
    assert not failing(reports[name])
    assert not missing(reports[name])
    assert executed(reports[name]) >= SWEEPS[name][1]


@pytest.mark.slow
def test_all_modules(tmp_path):
    """Every sample of every module and optimizer, in the dtypes that the databases list."""
    [report] = run_sweeps("module_coverage", [[]], tmp_path, 4 * 3600)
    assert not failing(report)
    assert not missing(report)
    assert executed(report) >= WHOLE_SAMPLES

"""A fixed, stratified sample of the operator sweep of tools/op_coverage.py, and the whole of it for `make test-all`.

How much ran is asserted as well as that it was right: a sweep that executes fewer samples than before fails.
"""
import pytest
from sweeps import executed, failing, run_sweeps

OTHER_DTYPES = "bfloat16,float16,float64,int64,int32,uint8,bool,complex64"

# name: (arguments of the tool, the samples that ran when this was written)
SWEEPS = {
    "every operator": (["--samples", "1"], 672),
    "other dtypes": (["--samples", "1", "--every", "5", "--dtype", OTHER_DTYPES], 756),
    "arguments": (["--samples", "1", "--every", "4", "--kinds", "noncontiguous,out,inplace"], 733),
    "errors": (["--samples", "100", "--kinds", "errors"], 681),
    "compiled": (["--samples", "1", "--every", "8", "--kinds", "compiled"], 81),
    "gradcheck": (["--samples", "1", "--every", "8", "--kinds", "gradcheck", "--dtype", "float64"], 64),
}
WHOLE_SAMPLES = 172_000
COMPILED_SAMPLES = 1_840


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """{name of a sweep: its report}"""
    runs = [arguments for arguments, _ in SWEEPS.values()]
    return dict(zip(SWEEPS, run_sweeps("op_coverage", runs, tmp_path_factory.mktemp("coverage"))))


@pytest.mark.parametrize("name", SWEEPS)
def test_operators(reports, name):
    assert not failing(reports[name])
    assert executed(reports[name]) >= SWEEPS[name][1]


@pytest.mark.slow
def test_all_operators(tmp_path):
    """Every sample of every operator in every dtype, and the other kinds of calls."""
    [report] = run_sweeps("op_coverage", [["--all"]], tmp_path, 4 * 3600)
    assert not failing(report)
    assert executed(report) >= WHOLE_SAMPLES


@pytest.mark.slow
def test_all_operators_compiled(tmp_path):
    """The first samples of every operator as one graph of torch.compile."""
    [report] = run_sweeps("op_coverage", [["--samples", "3", "--kinds", "compiled"]], tmp_path, 3600)
    assert not failing(report)
    assert executed(report) >= COMPILED_SAMPLES

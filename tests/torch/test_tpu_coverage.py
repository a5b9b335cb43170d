"""libtpu compiles the lowerings of operators (tools/tpu_coverage.py): a sample of them, or all."""
import json
import subprocess
import sys
from pathlib import Path

import pytest

from torch_tpu import aot

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(not aot.is_available(), reason="libtpu is not installed: pip install torch_tpu[tpu]")


def coverage(tmp_path, *arguments):
    """The report of a run."""
    out = tmp_path / "report.json"
    done = subprocess.run([sys.executable, "tpu_coverage.py", "--out", str(out), *arguments], cwd=ROOT / "tools",
                          capture_output=True, text=True, timeout=3600, check=False)
    print(done.stdout, done.stderr)  # pytest shows it on failure
    return json.loads(out.read_text())


def test_sample(tmp_path):
    report = coverage(tmp_path, "--every", "40", "--samples", "1")
    for total in report["totals"].values():
        assert total["operators"] > 8
        assert total["accepted"] + total["not run"] == total["operators"]


def test_refusals_are_seen(tmp_path):
    report = coverage(tmp_path, "--ops", "^fft.rfft ", "--samples", "1", "--dtype", "float64")
    assert report["operators"]["fft.rfft float64"]["outcome"] == "refused"
    assert "Unexpected operand type for FFT" in report["operators"]["fft.rfft float64"]["message"]


@pytest.mark.slow
def test_all_operators(tmp_path):
    for total in coverage(tmp_path)["totals"].values():
        assert total["operators"] > 400
        assert total["accepted"] >= 0.95 * total["operators"]

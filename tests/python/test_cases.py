"""The public bug cases of PyTorch-on-TPU stacks, where their folder lies beside the checkout."""
import json
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "cases"


def groups():
    """{first letters: [case names]}"""
    found = {}
    for path in sorted(FOLDER.glob("*.py")):
        letters = path.stem.rstrip("0123456789abcdef")
        if letters.isupper() and path.stem != letters:
            found.setdefault(letters, []).append(path.stem)
    return found


def outcomes(names, out):
    """{case: (outcome, message)} of cases that ran on the device."""
    command = [sys.executable, str(FOLDER / "run_cases.py"), "--device", "tpu", "--fork", "--timeout", "120",
               "--only", ",".join(names), "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
    assert out.exists(), done.stdout + done.stderr
    return {case["id"]: (case["outcome"], case["msg"]) for case in json.loads(out.read_text())["cases"]}


def check(letters, tmp_path):
    if not (FOLDER / "run_cases.py").exists():
        pytest.skip("there is no folder shared/cases beside the checkout")
    names = [name for group in letters for name in groups().get(group, [])]
    results = outcomes(names, tmp_path / "cases.json")
    assert len(results) == len(names) > 0
    assert not {name: result for name, result in results.items() if result[0] not in ("pass", "skip")}


def test_views_storage_and_programs(tmp_path):
    check(["V", "S", "P"], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("letters", sorted(set(groups()) - {"V", "S", "P"}))
def test_other_cases(letters, tmp_path):
    check([letters], tmp_path)

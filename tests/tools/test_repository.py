"""The rules of the repository itself: layers, file sizes, format, names, and what no file may contain."""
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FORBIDDEN_NAMES = {"util", "utils", "common", "helper", "helpers", "misc", "manager"}
FORBIDDEN_TEXT = {
    "a path of one machine": re.compile(r"(?<![\w.$}/-])/(work|root)(/|\b)"),
    "a package index": re.compile(r"pypi[.]org|pythonhosted[.]org|download[.]pytorch[.]org|index-url[= ]+[a-z]+://"),
}


def run(*command):
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    print(result.stdout, result.stderr)  # pytest shows it on failure
    return result.returncode


def repository_files():
    """The files git knows or would add, without third_party/."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                            capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    names = sorted(set(listed.stdout.split("\0")) - {""})
    return [ROOT / n for n in names if not n.startswith("third_party/") and (ROOT / n).is_file()]


def test_layers():
    assert run(sys.executable, "tools/check_layers.py") == 0


def test_file_sizes():
    assert run(sys.executable, "tools/check_sizes.py") == 0


def test_cpp_format():
    if not (os.access(ROOT / ".venv/bin/clang-format", os.X_OK) or shutil.which("clang-format")):
        pytest.skip("clang-format is not installed: pip install -r requirements-test.txt")
    assert run("tools/check_format.sh") == 0, "make format"


def test_file_names():
    vague = [str(p.relative_to(ROOT)) for p in repository_files()
             if any(set(re.split(r"[_.-]", part.lower())) & FORBIDDEN_NAMES for part in p.relative_to(ROOT).parts)]
    assert not vague, "name the thing a file is about"


def test_file_contents():
    found = []
    for path in repository_files():
        try:
            lines = path.read_text().splitlines()
        except UnicodeDecodeError:
            continue
        found += [f"{path.relative_to(ROOT)}:{number}: {what}" for number, line in enumerate(lines, 1)
                  for what, pattern in FORBIDDEN_TEXT.items() if pattern.search(line)]
    assert not found


def test_environment_variables_are_documented():
    page = ROOT / "docs/environment.md"
    if not page.exists():
        pytest.skip("docs/environment.md does not exist")
    source = (ROOT / "src/base/env.cc").read_text()
    in_code = dict(re.findall(r'Variable k\w+\{\s*"(\w+)",\s*"([^"]*)"', source))
    rows = re.findall(r"^\|\s*`([A-Z_]+)`\s*\|([^|]*)\|", page.read_text(), re.MULTILINE)
    in_docs = {name: default.strip().strip("`") for name, default in rows}
    assert in_docs == in_code  # {name: default}


@pytest.mark.parametrize("extra", ["examples", "test"])
def test_requirements_agree(extra):
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    lines = (ROOT / f"requirements-{extra}.txt").read_text().splitlines()
    named = [line.replace("-r requirements-examples.txt", "torch_tpu[examples]") for line in lines]
    assert [line for line in named if not line.startswith("#")] == extras[extra]

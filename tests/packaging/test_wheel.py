"""The wheel that pip builds and the wheel that Bazel builds are the same: `make wheel wheel-bazel` first."""
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def wheel(folder):
    found = sorted((ROOT / folder).glob("torch_tpu-*.whl"))
    if not found:
        pytest.skip(f"no wheel in {folder}: make wheel wheel-bazel")
    return zipfile.ZipFile(found[-1])


@pytest.mark.slow
def test_pip_and_bazel_build_the_same_wheel():
    with wheel("dist") as pip, wheel("bazel-bin/ci/wheel") as bazel:
        files = sorted(pip.namelist())
        assert files == sorted(bazel.namelist())
        assert any(name.startswith("torch_tpu/_C.") for name in files)
        assert not [name for name in files if name.endswith((".cc", ".h", ".pyc"))]

"""The build backend: scikit-build-core, and one rule about torch.

The extension is built against the torch of the environment it is installed into. Only when there is none does the build
ask for torch itself: named in pyproject.toml, it would be unpacked a second time (1 GB) for every isolated build.
"""
import os
import subprocess
import sys

from scikit_build_core import build as _build
from scikit_build_core.build import *  # noqa: F403  (the hooks that need no change)

_TORCH = "torch==2.13.*"
_FIND = """
import importlib.metadata, importlib.util
spec = importlib.util.find_spec("torch")
if spec and importlib.metadata.version("torch").startswith("2.13."):
    print(spec.submodule_search_locations[0])
"""


def _torch_folder():
    """The folder of a fitting torch, or "". pip isolates by PYTHONPATH, which -I ignores: the target comes first."""
    for flags in (["-I"], []):
        found = subprocess.run([sys.executable, *flags, "-c", _FIND], capture_output=True, text=True).stdout.strip()
        if found:
            return found
    return ""


def _with_torch(requirements):
    return requirements if os.environ.get("TORCH_TPU_TORCH_DIR") or _torch_folder() else [*requirements, _TORCH]


def _name_torch():
    if "TORCH_TPU_TORCH_DIR" not in os.environ:  # read by CMakeLists.txt
        os.environ["TORCH_TPU_TORCH_DIR"] = _torch_folder()


def get_requires_for_build_wheel(config_settings=None):
    return _with_torch(_build.get_requires_for_build_wheel(config_settings))


def get_requires_for_build_editable(config_settings=None):
    return _with_torch(_build.get_requires_for_build_editable(config_settings))


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    _name_torch()
    return _build.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    _name_torch()
    return _build.build_editable(wheel_directory, config_settings, metadata_directory)

"""Finds installed PJRT plugins without importing or opening them."""

import importlib.util
import os

# (package, file inside it), best first.
_CPU_WHEELS = [
    ("lammps_jax_pjrt_cpu", "pjrt_c_api_cpu_plugin.so"),
    ("fastatomstruct_xla_cpu", "libpjrt_cpu.so"),
    ("xla_plugins", os.path.join("xla_cpu_pjrt", "xla_cpu_pjrt.so")),
]


def _file_in(package: str, name: str) -> str | None:
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = os.path.join(folder, name)
        if os.path.exists(path):
            return path
    return None


def cpu_plugins() -> list[str]:
    """Paths of the installed XLA:CPU plugins, best first."""
    found = (_file_in(package, name) for package, name in _CPU_WHEELS)
    return [path for path in found if path]


def libtpu() -> str:
    """Path of the installed libtpu.so, or ''."""
    return _file_in("libtpu", "libtpu.so") or ""

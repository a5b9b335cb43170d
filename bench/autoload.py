"""What the entry point adds to `import torch`."""

import os
import subprocess
import sys

_CHILD = "import time; t = time.process_time(); import torch; print(time.process_time() - t)"


def _import_seconds(autoload: str) -> float:
    env = dict(os.environ, TORCH_DEVICE_BACKEND_AUTOLOAD=autoload)
    return float(subprocess.run([sys.executable, "-c", _CHILD], env=env, capture_output=True, text=True, check=True).stdout)


def autoload_ratio(rounds: int = 7) -> float:
    """CPU seconds of `import torch` with the backend over those without, minima in turns."""
    with_backend = without = float("inf")
    for _ in range(rounds):
        without = min(without, _import_seconds("0"))
        with_backend = min(with_backend, _import_seconds("1"))
    return with_backend / without


ROWS = {"import torch": lambda: f"{100 * (autoload_ratio() - 1):+.1f} % CPU time with torch_tpu installed"}

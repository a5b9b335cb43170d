"""What the entry point adds to `import torch`."""

import os
import subprocess
import sys

_CHILD = "import time; t = time.process_time(); import torch; print(time.process_time() - t)"
_ROUNDS = 7


def _import_seconds(autoload):
    environment = dict(os.environ, TORCH_DEVICE_BACKEND_AUTOLOAD=autoload)
    done = subprocess.run([sys.executable, "-c", _CHILD], env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout)


def _row(run):
    """CPU seconds of `import torch` with the backend over those without, minima in turns."""
    turns = [(_import_seconds("0"), _import_seconds("1")) for _ in range(_ROUNDS)]
    without, with_backend = map(min, zip(*turns))
    run.report.line(f"{with_backend:.2f} s CPU time with torch_tpu installed, {without:.2f} s without, "
                    f"{100 * (with_backend / without - 1):+.1f} %")


ROWS = {"import.torch": _row}

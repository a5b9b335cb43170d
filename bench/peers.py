"""The processes that are compared. Each peer has one of its own; they take turns."""

import functools
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[1]
JAX_PYTHON = ROOT / ".venv-jax" / "bin" / "python"  # of `make bench-peers`
LABELS = {"tpu": "tpu", "tpu compiled": "tpu, torch.compile", "cpu": "torch CPU", "jax": "jax.jit",
          "inductor": "Inductor"}


class PeerError(Exception):
    """What went wrong in a peer."""


@functools.cache
def plugin():
    """The path of the PJRT plugin that "tpu" uses."""
    if path := os.environ.get("TORCH_TPU_PJRT_PLUGIN"):
        return path
    from torch_tpu.plugins import cpu_plugins

    return cpu_plugins()[0]


def jax_python():
    """An interpreter that has jax, or None."""
    if JAX_PYTHON.exists():
        return str(JAX_PYTHON)
    import importlib.util

    return sys.executable if importlib.util.find_spec("jax") else None


def _environment(name):
    if name == "jax":
        return {"BENCH_PLUGIN": plugin(), "TF_CPP_MIN_LOG_LEVEL": "3"}
    if name.startswith("tpu"):
        return {"TORCH_TPU_CACHE": "off", "TORCH_TPU_MODE": "fused"}  # what is compiled is counted
    return {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}


class Peer:
    """A process of bench.worker; started with the first request, and again after it has died."""

    def __init__(self, name, **environment):
        self.name = name
        self.environment = {**os.environ, **_environment(name), **environment}
        self.process = None

    def ask(self, **request):
        """The answer to a request. Raises PeerError."""
        if self.process is None:
            interpreter = jax_python() if self.name == "jax" else sys.executable
            self.process = subprocess.Popen([interpreter, "-m", "bench.worker", self.name], cwd=ROOT, text=True,
                                            env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            stderr=None if os.environ.get("BENCH_VERBOSE") else subprocess.DEVNULL)
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        line = self.process.stdout.readline()
        if not line:
            status, self.process = self.process.wait(), None
            raise PeerError(f"the process ended with status {status}")
        answer = json.loads(line)
        if isinstance(answer, dict) and "error" in answer:
            raise PeerError(answer["error"])
        return answer

    def close(self):
        """Ends the process."""
        if self.process is not None:
            self.process.stdin.close()
            self.process.wait()
            self.process.stdout.close()
            self.process = None


def fresh(name, module, function, *arguments, **environment):
    """What `function(peer, *arguments)` of a module of bench returns in a new process."""
    peer = Peer(name, **environment)
    try:
        return peer.ask(call=[module, function, *arguments])
    finally:
        peer.close()

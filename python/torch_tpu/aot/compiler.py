"""The process torch_tpu_compile: libtpu compiles in it, and may end or be ended without harm."""

import json
import os
import select
import subprocess
import tempfile
import threading
import time
import weakref
from dataclasses import dataclass, field

from torch_tpu import _C, plugins

START_SECONDS = 60


class CompileError(RuntimeError):
    """The compiler refuses the program. `reason` is "invalid_argument", "out_of_memory", "unimplemented", ..."""

    def __init__(self, message, reason="internal"):
        super().__init__(message)
        self.reason = reason


class CompileTimeout(CompileError, TimeoutError):
    """The compiler took longer than it was given."""


class CompilerCrash(CompileError):
    """The compiler's process ended."""


@dataclass
class Compiled:
    """What the compiler says of a program, and how long it took for it, in all and in all its threads.

    `memory`: argument_bytes, output_bytes, alias_bytes, temporary_bytes, code_bytes, peak_bytes. `cost`: flops,
    transcendentals, "bytes accessed", optimal_seconds, as libtpu estimates them: the bodies of loops count once, and
    each custom call of the compiler's own counts -1. `device`: count, kind, memory_bytes. `program`: libtpu's own format,
    where it was asked for.
    """

    seconds: float
    cpu_seconds: float
    memory: dict
    cost: dict
    device: dict
    program: bytes = field(default=b"", repr=False)


def is_available():
    """Whether libtpu is installed."""
    return bool(plugins.libtpu())


def topologies():
    """The names of the TPUs that a Compiler can compile for."""
    with Compiler() as compiler:
        return compiler.describe()["topologies"]


class Compiler:
    """Compiles StableHLO for a TPU topology. Starts its process when it is first needed, and again after the process
    has ended. Thread-safe; calls take turns."""

    def __init__(self, topology="v5e:1x1", *, libtpu=None):
        self.topology = topology
        self._library = libtpu
        self._lock = threading.Lock()
        self._process = None

    def compile(self, stablehlo, *, level=None, timeout=None, serialize=False, **options):
        """Compiles a module. `level` is 0 (quickest) to 3; `timeout` is in seconds. Further options: replicas, partitions,
        and xla_... for options of the compiler. Raises CompileError."""
        options.update({"level": level, "serialize": int(serialize)})
        lines = "\n".join(f"{name}={value}" for name, value in options.items() if value is not None)
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._lock:
            process = self._running_process()
            try:
                answer, program = process.ask([self.topology, lines, stablehlo], deadline)
            except TimeoutError:
                raise CompileTimeout(f"no answer after {timeout} s", "timeout") from None
            finally:
                if not process.is_usable:
                    self._close()
        if not answer.pop("accepted"):
            raise CompileError(answer["message"], answer["reason"])
        return Compiled(**answer, program=program)

    def describe(self):
        """{"plugin": the version of libtpu, "topologies": [names]}"""
        with self._lock:
            return self._running_process().greeting

    def close(self):
        """Ends the process; the next compile() starts another."""
        with self._lock:
            self._close()

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.close()

    def _running_process(self):
        if self._process is None or self._process.owner != os.getpid():
            self._process = _Process(self._library or plugins.libtpu())
        return self._process

    def _close(self):
        if self._process is not None:
            self._process.end()
        self._process = None


class _Process:
    """The program torch_tpu_compile. Strings travel after their lengths as 8 bytes, lowest first."""

    def __init__(self, library):
        if not library:
            raise CompileError("libtpu is not installed: pip install torch_tpu[tpu]", "not_found")
        self.owner = os.getpid()
        self.is_usable = True
        self._stderr = tempfile.TemporaryFile()
        program = os.path.join(os.path.dirname(_C.__file__), "torch_tpu_compile")
        self._child = subprocess.Popen([program, library], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                       stderr=self._stderr, bufsize=0)
        self._finalizer = weakref.finalize(self, _end, self._child, self.owner)
        try:
            self.greeting, _ = self._receive(time.monotonic() + START_SECONDS)
        except TimeoutError:
            raise CompilerCrash(f"{library} was not ready after {START_SECONDS} s") from None
        if not self.greeting.pop("ready"):
            self.end()
            raise CompileError(self.greeting["message"], "unavailable")

    def ask(self, texts, deadline):
        """Sends a request and returns (the answer, the serialised program)."""
        try:
            try:
                for text in texts:
                    text = text.encode() if isinstance(text, str) else text
                    self._child.stdin.write(len(text).to_bytes(8, "little"))
                    self._write(text)
            except BrokenPipeError:
                raise CompilerCrash(self._last_words()) from None
            return self._receive(deadline)
        except BaseException:  # an answer may be on its way that nobody will wait for
            self.end()
            raise

    def end(self):
        self.is_usable = False
        self._finalizer()

    def _write(self, data):
        view = memoryview(data)
        while view:
            view = view[self._child.stdin.write(view):]

    def _receive(self, deadline):
        answer = self._read_string(deadline)
        return json.loads(answer), self._read_string(deadline)

    def _read_string(self, deadline):
        return self._read(int.from_bytes(self._read(8, deadline), "little"), deadline)

    def _read(self, count, deadline):
        parts = []
        while count:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not select.select([self._child.stdout], [], [], left)[0]:
                self.end()
                raise TimeoutError
            part = os.read(self._child.stdout.fileno(), min(count, 1 << 20))
            if not part:
                raise CompilerCrash(self._last_words())
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def _last_words(self):
        """How the process ended, and what it said last."""
        self._child.stdin.close()
        status = self._child.wait()
        self._stderr.seek(0)
        lines = self._stderr.read().decode(errors="replace").splitlines()
        told = [line for line in lines if "Check failed" in line or "ERROR" in line] or [""]
        cause = f"signal {-status}" if status < 0 else f"exit status {status}"
        return f"the compiler's process ended with {cause}" + (f": {told[0].strip()}" if told[0] else "")


def _end(child, owner):
    if os.getpid() != owner:
        return
    child.kill()
    child.wait()
    child.stdin.close()
    child.stdout.close()

"""Runs code in processes of its own: fresh ones, and forks of one that has imported torch but not used the device."""
import json
import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass

# Reads requests {code, env, timeout} line by line; answers {code, out, err}.
SERVER = r'''
import json, os, resource, signal, sys, tempfile, time, traceback
import torch
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
for line in sys.stdin:
    request = json.loads(line)
    out, err = tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")
    pid = os.fork()
    if pid == 0:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        os.environ.update(request["env"])
        code = 0
        try:
            exec(compile(request["code"], "<test>", "exec"), {"__name__": "__main__", "torch": torch})
        except SystemExit as error:
            code = error.code or 0
        except BaseException:
            traceback.print_exc()
            code = 1
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    end, status = time.monotonic() + request["timeout"], None
    while status is None:
        done, raw = os.waitpid(pid, os.WNOHANG)
        if done:
            status = os.waitstatus_to_exitcode(raw)
        elif time.monotonic() > end:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            status = "timeout"
        else:
            time.sleep(0.01)
    out.seek(0), err.seek(0)
    answers.write(json.dumps({"code": status, "out": out.read(), "err": err.read()}) + "\n")
    answers.flush()
'''


@dataclass
class Result:
    """An exit status (negative: a signal; "timeout"), and what was printed."""

    code: int | str
    out: str
    err: str

    def check(self):
        """The printed text of a process that must have succeeded."""
        assert self.code == 0, f"exit {self.code}\n{self.out}\n{self.err}"
        return self.out.strip()


def run_python(code, env=None, timeout=180, arguments=()):
    """Runs `code` in a new interpreter. Values of None in `env` unset a variable."""
    merged = {key: value for key, value in {**os.environ, **(env or {})}.items() if value is not None}
    command = [sys.executable, "-c", textwrap.dedent(code), *arguments]
    try:
        done = subprocess.run(command, env=merged, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired as error:
        return Result("timeout", str(error.stdout), str(error.stderr))
    return Result(done.returncode, done.stdout, done.stderr)


class ForkServer:
    """Saves the seconds of `import torch`: each run is a fork of a process that has done it."""

    def __init__(self):
        self.process = None

    def run(self, code, env=None, timeout=120):
        """Runs `code`, in which torch is imported already, with `env` set before the device is used."""
        if self.process is None:
            self.process = subprocess.Popen([sys.executable, "-c", SERVER], stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, text=True)
        request = {"code": textwrap.dedent(code), "env": env or {}, "timeout": timeout}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return Result(**json.loads(self.process.stdout.readline()))

    def close(self):
        """Ends the server."""
        if self.process is not None:
            self.process.stdin.close()
            self.process.wait()

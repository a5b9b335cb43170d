"""Measurements: each row is a ratio against torch on the CPU, and against jax.jit on the same plugin, in one run.

Every peer is a process; they take turns, and the least times count. Numbers are compared before they are timed. The
exit status is 1 when a row fails or computes something else; a missed goal is only said.
"""

import argparse
import os
import sys
import time

from bench import autoload, churn, decode, dispatch, memory, pointwise, start, training
from bench.comparison import Run
from bench.peers import jax_python
from bench.report import Report

MODULES = autoload, dispatch, pointwise, training, decode, start, churn, memory
ROWS = [(name, row) for module in MODULES for name, row in module.ROWS.items()]


def _chosen(patterns):
    """The rows that are named, or whose group is; all of them without names."""
    for pattern in patterns:
        if not any(pattern in (name, name.split(".")[0]) for name, _ in ROWS):
            sys.exit(f"no row {pattern!r}; there are: {', '.join(name for name, _ in ROWS)}")
    return [(name, row) for name, row in ROWS if not patterns or {name, name.split(".")[0]} & set(patterns)]


def _busy(seconds=0.3):
    """The share of the machine that other processes use; the peers are idle meanwhile."""

    def jiffies():
        with open("/proc/stat") as file:
            user, nice, system, idle, waiting, *rest = map(int, file.readline().split()[1:9])
        return user + nice + system + sum(rest), idle + waiting

    before = jiffies()
    time.sleep(seconds)
    used, idle = (end - begin for begin, end in zip(before, jiffies()))
    return used / max(used + idle, 1)


def _machine():
    return f"{os.cpu_count()} cores, load {' '.join(f'{load:.2f}' for load in os.getloadavg())}"


def main(arguments=None):
    """Runs rows; returns the exit status."""
    names = "\n".join(f"  {name}" for name, _ in ROWS)
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__, epilog=f"rows:\n{names}",
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", metavar="ROW", help="a row or a group of rows, such as training")
    parser.add_argument("--peers", default="jax", help="jax, inductor, both with a comma, or none (default: jax)")
    options = parser.parse_args(arguments)
    rows, extra = _chosen(options.rows), set(options.peers.split(","))
    if "jax" in extra and jax_python() is None:
        print("jax.jit: not installed (make bench-peers)")
        extra.discard("jax")
    print(_machine(), flush=True)
    report, begin = Report(), time.monotonic()
    run = Run(report, ["tpu", "tpu compiled", "cpu", *(name for name in ("jax", "inductor") if name in extra)])
    try:
        for name, row in rows:
            report.start(name)
            if (busy := _busy()) > 0.1:
                report.line(f"other processes use {100 * busy:.0f} % of the machine: times mean little")
            try:
                row(run)
            except Exception as error:  # noqa: BLE001  the other rows are still wanted
                report.fail(f"{type(error).__name__}: {error}")
    finally:
        run.close()
    print(f"{time.monotonic() - begin:.0f} s; {_machine()}")
    report.finish()
    return report.status


if __name__ == "__main__":
    sys.exit(main())

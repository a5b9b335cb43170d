"""What a peer does for a row, and how it is timed inside the peer's process."""

import resource
import time
from dataclasses import dataclass
from typing import Callable


@dataclass
class Work:
    """`run` does it once and returns when it is done."""

    run: Callable
    numbers: Callable | None = None  # yields the numbers in which the peers must agree; called once, first
    units: int = 1  # operations or tokens in a run


def minor_faults():
    """Pages that this process has touched for the first time."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def prepare(work, counts):
    """The numbers, and how many programs had been compiled when each was there."""
    numbers, compiles = [], []
    for number in work.numbers() if work.numbers else ():
        numbers.append(float(number))
        compiles.append(counts()["compiles"])
    return {"numbers": numbers, "compiles_at": compiles}


def measure(work, counts, seconds):
    """Runs for about `seconds`, at least twice: the least seconds of a unit and the least page faults of a run."""
    best = faults = float("inf")
    before, runs, end = counts(), 0, time.perf_counter() + seconds
    while runs < 2 or time.perf_counter() < end:
        faults_before, start = minor_faults(), time.perf_counter()
        work.run()
        best = min(best, time.perf_counter() - start)
        faults = min(faults, minor_faults() - faults_before)
        runs += 1
    after = counts()
    return {"seconds": best / work.units, "faults": faults, "compiles": after["compiles"],
            "programs": (after["programs"] - before["programs"]) / runs}

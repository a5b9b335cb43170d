"""Looking inside: which programs a piece of code ran, why each ended where it did, and why it was compiled.

    report = torch_tpu.debug.explain(train_step, batch)
    print(report)
"""

import collections
import dataclasses

from torch_tpu import _C


@dataclasses.dataclass(frozen=True)
class Program:
    """One execution of a program.

    operators: (name, "file:line") of each call that it computes, in order. unused: recorded calls whose results nobody
    wanted. cause: why it ended ("host read", "synchronize", "flush", "mode": strict or blocking; "full window",
    "repetition", "byte limit": the cut rule; "graph": a compiled one comes again), at which line. origin: "memory",
    "disk" or "compiled". bound: the largest size of a program that serves many, else 0. difference: of a compiled one,
    what the nearest known program had not. prepare_ns: until the executable was there; execute_ns: the execution.
    """

    operators: list
    unused: int
    device: int
    cause: str
    line: str
    origin: str
    bound: int
    difference: str
    prepare_ns: int
    execute_ns: int

    def __str__(self):
        counts = collections.Counter(name.removeprefix("aten::") for name, _ in self.operators)
        most = ", ".join(name if count == 1 else f"{count} {name}" for name, count in counts.most_common(6))
        more = f" and {len(counts) - 6} more" if len(counts) > 6 else ""
        where = f" at {self.line}" if self.line else ""
        origin = {"memory": "in memory", "disk": "loaded from disk", "compiled": "compiled"}[self.origin]
        if self.bound:
            origin += f", for all sizes up to {self.bound}"
        lines = [f"{len(self.operators)} operators: {most}{more}", f"ended by {self.cause}{where}",
                 f"{origin} in {self.prepare_ns / 1e6:.2f} ms, ran {self.execute_ns / 1e6:.2f} ms"]
        if self.unused:
            lines.append(f"{self.unused} calls without a reader were left out")
        if self.difference:
            lines.append(f"why compiled: {self.difference}")
        return "\n  ".join(lines)


@dataclasses.dataclass(frozen=True)
class Report:
    """What explain() saw: `programs` in the order in which they ended, and the function's `result`."""

    programs: list
    result: object

    @property
    def compiled(self):
        """The programs that were compiled."""
        return [program for program in self.programs if program.origin == "compiled"]

    def __str__(self):
        calls = sum(len(program.operators) for program in self.programs)
        head = f"{len(self.programs)} programs with {calls} operators, {len(self.compiled)} compiled"
        return "\n".join([head, *(f"{i}. {program}" for i, program in enumerate(self.programs, 1))])


def explain(function, *args, **kwargs):
    """Calls `function` and returns a Report of the programs that ran meanwhile, on all devices and threads.

    What was recorded before runs first and is not reported; what the function leaves pending runs at its end.
    Raises ValueError inside of another explain(), and what the function raises.
    """
    for device in range(_C.device_count()):
        _C.flush(device)
    _C.start_trace()
    try:
        result = function(*args, **kwargs)
        for device in range(_C.device_count()):
            _C.flush(device)
    finally:
        runs = _C.finish_trace()
    return Report([Program(**run) for run in runs], result)

"""What the compiler says of a step, as text, JSON and a page."""

import html
import json
from dataclasses import dataclass, field

from torch_tpu.aot.chips import chip_of
from torch_tpu.aot.compiler import CompileError


@dataclass
class Program:
    """One program of the step: figures of one run on one device, in bytes and seconds. None or empty where the program
    was refused."""

    text: str = field(repr=False)
    runs: int  # in a step
    collectives: dict[str, tuple[int, int]]  # name: (how many, bytes of their results)
    refused: CompileError | None = None
    source: str = ""  # the operator that is refused and its line of Python, where the compiler says
    memory: dict = field(default_factory=dict)  # as Compiled.memory
    device_bytes: int = 0
    flops: float = 0.0
    bytes_accessed: float = 0.0
    roofline_seconds: float | None = None
    scheduled_seconds: float | None = None
    loops: int = 0  # their bodies count once in all figures but memory
    seconds: float = 0.0  # that compiling took

    @property
    def out_of_memory(self) -> bool:
        return self.refused is not None and self.refused.reason == "out_of_memory"

    def take(self, compiled, schedule, cycles_per_second: float | None) -> None:
        """Fills in what the compiler said. Each custom call counts -1 in its sums. cycles_per_second: None where the
        schedule is not that of a real run."""
        calls = schedule.custom_calls if schedule else 0
        self.memory, self.device_bytes = compiled.memory, compiled.device["memory_bytes"]
        self.flops = compiled.cost.get("flops", 0.0) + calls
        self.bytes_accessed = compiled.cost.get("bytes accessed", 0.0) + calls
        seconds = compiled.cost.get("optimal_seconds")
        self.roofline_seconds = None if seconds is None else seconds + calls
        if schedule:
            self.loops = schedule.loops
            if cycles_per_second and schedule.cycles:
                self.scheduled_seconds = schedule.cycles / cycles_per_second


@dataclass
class Report:
    """The programs of a step for a topology. `str(report)` is the text; see `to_json` and `to_html`."""

    topology: str
    mode: str  # "check" or "estimate"
    devices: int  # that run the programs; all figures are of one of them
    programs: list[Program]

    @property
    def chip(self):
        return chip_of(self.topology)

    @property
    def accepted(self) -> bool:
        """Whether the compiler takes every program; one that does not fit into the memory is refused."""
        return bool(self.programs) and all(program.refused is None for program in self.programs)

    @property
    def peak_bytes(self) -> int:
        """Of the largest program: arguments, results and temporaries, what is aliased counted once."""
        return max((program.memory.get("peak_bytes", 0) for program in self.programs), default=0)

    @property
    def device_bytes(self) -> int:
        """Of one device's memory, that programs may use."""
        return max((program.device_bytes for program in self.programs), default=0)

    @property
    def flops(self) -> float:
        """Of the step."""
        return sum(program.flops * program.runs for program in self.programs)

    @property
    def bytes_accessed(self) -> float:
        return sum(program.bytes_accessed * program.runs for program in self.programs)

    @property
    def step_seconds(self) -> tuple[float, float]:
        """The compiler's model of the step's time, from the least to the most of: the chip's roofline of the whole
        step, each operation's roofline, and the schedule (mode "estimate"). Not measured; collectives between chips
        count as accesses to memory only."""
        whole = max(self.flops / self.chip.flops_per_second, self.bytes_accessed / self.chip.bytes_per_second)
        sums = [whole]
        for name in ("roofline_seconds", "scheduled_seconds"):
            parts = [(getattr(program, name), program.runs) for program in self.programs]
            if parts and None not in dict(parts):
                sums.append(sum(seconds * runs for seconds, runs in parts))
        return min(sums), max(sums)

    @property
    def most_utilization(self) -> float:
        """An upper bound of the model's utilization of the chip's bfloat16 peak, 0 to 1."""
        least = self.step_seconds[0]
        return self.flops / (self.chip.flops_per_second * least) if least > 0 else 0.0

    def __str__(self):
        return "\n".join(self._lines())

    def _lines(self):
        verdict = "accepted" if self.accepted else "refused" if self.programs else "no programs"
        devices = f", {self.devices} devices" if self.devices > 1 else ""
        yield f"{self.topology}{devices}: {len(self.programs)} programs, {verdict} ({self.mode})"
        for number, program in enumerate(self.programs, 1):
            yield from self._program_lines(number, program)
        if not self.accepted:
            return
        least, most = self.step_seconds
        each = " on each" if self.devices > 1 else ""
        yield (f"step: {_scaled(self.flops, 1000)}FLOP, {_scaled(self.bytes_accessed, 1000)}B accessed{each}; "
               f"{self.flops / max(self.bytes_accessed, 1):.0f} FLOP/B, the chip's balance is "
               f"{self.chip.flops_per_second / self.chip.bytes_per_second:.0f}")
        yield (f"time: {least * 1e3:.3g} to {most * 1e3:.3g} ms by the compiler's model, not measured; at most "
               f"{100 * self.most_utilization:.0f} % of the bfloat16 peak")

    def _program_lines(self, number, program):
        if program.refused is not None:
            place = f" at {program.source}" if program.source else ""
            yield f"{number}. {program.refused.reason}{place}: {str(program.refused).splitlines()[0]}"
            return
        memory = program.memory
        size = {name.removesuffix("_bytes"): f"{_scaled(count, 1024)}B" for name, count in memory.items()}
        yield (f"{number}. memory {size['peak']} of {_scaled(program.device_bytes, 1024)}B: "
               f"arguments {size['argument']}, results {size['output']} of which {size['alias']} in the arguments' "
               f"place, temporaries {size['temporary']}; code {size['code']}")
        for name, (count, size) in sorted(program.collectives.items()):
            yield f"   {count} {name}: {_scaled(size, 1024)}B"
        if program.runs > 1:
            yield f"   runs {program.runs} times"
        if program.loops:
            yield f"   {program.loops} loops, whose bodies count once in operations, bytes and time"

    def to_dict(self) -> dict:
        """All figures, by name: bytes and seconds."""
        programs = []
        for program in self.programs:
            entry = {"accepted": program.refused is None, "runs": program.runs, "memory": program.memory,
                     "flops": program.flops, "bytes_accessed": program.bytes_accessed,
                     "roofline_seconds": program.roofline_seconds, "scheduled_seconds": program.scheduled_seconds,
                     "loops": program.loops,
                     "collectives": {name: {"count": count, "bytes": size}
                                     for name, (count, size) in program.collectives.items()},
                     "compile_seconds": program.seconds}
            if program.refused is not None:
                entry |= {"reason": program.refused.reason, "message": str(program.refused), "source": program.source}
            programs.append(entry)
        least, most = self.step_seconds
        return {"topology": self.topology, "mode": self.mode, "devices": self.devices, "accepted": self.accepted,
                "peak_bytes": self.peak_bytes, "device_bytes": self.device_bytes, "flops": self.flops,
                "bytes_accessed": self.bytes_accessed, "least_seconds": least, "most_seconds": most,
                "most_utilization": self.most_utilization, "programs": programs}

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=1)

    def to_html(self) -> str:
        """A page with the text and a plot of the roofline; needs nothing from outside."""
        return (f"<!doctype html><meta charset=utf-8><title>{html.escape(self.topology)}</title>"
                "<style>body{font:15px sans-serif;max-width:60em;margin:2em auto}pre{white-space:pre-wrap}</style>"
                f"<h1>{html.escape(self.topology)}</h1><pre>{html.escape(str(self))}</pre>{self._plot()}")

    def _plot(self) -> str:
        """Operations a second over operations a byte, both on logarithmic axes of 1 to 10^4 and 10^9 to 10^16."""
        from math import log10

        def place(intensity, rate):
            x = 60 + 130 * min(max(log10(max(intensity, 1e-9)), 0), 4)
            return x, 360 - 45 * (min(max(log10(max(rate, 1e-9)), 9), 16) - 9)

        peak, bandwidth = self.chip.flops_per_second, self.chip.bytes_per_second
        roof = [place(1, bandwidth), place(peak / bandwidth, peak), place(1e4, peak)]
        points = []
        if self.accepted:
            intensity = self.flops / max(self.bytes_accessed, 1)
            points = [place(intensity, self.flops / seconds) for seconds in self.step_seconds if seconds > 0]
        ticks = "".join(f'<text x="{60 + 130 * i}" y="380" text-anchor="middle">10^{i}</text>' for i in range(5))
        ticks += "".join(f'<text x="54" y="{364 - 45 * i}" text-anchor="end">10^{9 + i}</text>' for i in range(8))
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in roof)
        dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="#c33"/>' for x, y in points)
        return ('<svg viewBox="0 0 620 420" width="620" font-size="12" role="img" aria-label="roofline">'
                '<rect x="60" y="45" width="520" height="315" fill="none" stroke="#999"/>'
                f'<polyline points="{line}" fill="none" stroke="#36c" stroke-width="2"/>{dots}{ticks}'
                '<text x="320" y="405" text-anchor="middle">FLOP a byte</text><text x="64" y="36">FLOP a second: the '
                "chip's roof, and the step from the most to the least time</text></svg>")


def _scaled(number: float, base: int) -> str:
    """With a prefix: 12.5 Gi for base 1024, 12.5 G for 1000."""
    for prefix in ("", "K", "M", "G", "T"):
        if abs(number) < base:
            break
        number /= base
    else:
        prefix = "P"
    return f"{number:.3g} {prefix}{'i' if prefix and base == 1024 else ''}"

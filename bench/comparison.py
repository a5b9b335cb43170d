"""Interleaved timing: the peers of a ratio take turns, so that they share the machine's moods."""

import math

from bench.peers import LABELS, Peer, PeerError

ROUNDS = 5
SECONDS = 0.4  # of a turn
_UNITS = {"ms": 1e-3, "µs": 1e-6}


def difference(expected, found):
    """The greatest relative difference of two lists of numbers; small numbers count as a twentieth of the greatest."""
    if len(expected) != len(found):
        return math.inf
    scale = 0.05 * max(abs(number) for number in expected)
    differences = [abs(a - b) / max(abs(a), scale) for a, b in zip(expected, found)]
    return math.inf if any(map(math.isnan, differences)) else max(differences)


class Run:
    """The peers of one run of the benchmarks."""

    def __init__(self, report, names):
        self.report = report
        self.peers = {name: Peer(name) for name in names}

    def close(self):
        """Ends the peers."""
        for peer in self.peers.values():
            peer.close()

    def _attempt(self, name, **request):
        """The peer's answer, or None and a line that says why."""
        try:
            return self.peers[name].ask(**request)
        except PeerError as error:
            self.report.fail(f"{LABELS[name]}: {error}")
            return None

    def _prepared(self, row, names, tolerance):
        """Answers of the peers that compute what torch computes on the CPU."""
        prepared = {name: self._attempt(name, prepare=row) for name in names if name in self.peers}
        prepared = {name: answer for name, answer in prepared.items() if answer is not None}
        for name in list(prepared):
            found = difference(prepared["cpu"]["numbers"], prepared[name]["numbers"]) if "cpu" in prepared else 0
            if found > tolerance:
                self.report.fail(f"{LABELS[name]} differs from torch CPU by {found:.2g}, more than {tolerance:g}")
                del prepared[name]
        return prepared

    def _timed(self, prepared):
        """What was measured, each the best of its rounds."""
        measured = {name: dict(answer, seconds=math.inf, faults=math.inf) for name, answer in prepared.items()}
        for number in range(ROUNDS):
            names = list(measured)
            if not names:
                break
            for name in names[number % len(names) :] + names[: number % len(names)]:
                answer = self._attempt(name, time=SECONDS)
                if answer is None:
                    del measured[name]
                    continue
                for key in ("seconds", "faults"):
                    answer[key] = min(answer[key], measured[name][key])
                measured[name].update(answer)
        return measured

    def compare(self, row, names, unit, tolerance=1e-6, goals=None, most=None, note=None):
        """Measures a row with some peers and prints a line for each. `goals`: peer -> the greatest ratio of ours to
        it; `most`: the greatest time of ours, in `unit`; `note`: what is said of a measurement of ours."""
        measured = self._timed(self._prepared(row, names, tolerance))
        for name, result in measured.items():
            parts, ours = [f"{LABELS[name]:20} {result['seconds'] / _UNITS[unit]:9.3f} {unit}"], name.startswith("tpu")
            for other in ("cpu", "jax"):
                if other in measured and name not in (other, "cpu"):
                    ratio = result["seconds"] / measured[other]["seconds"]
                    goal = (goals or {}).get(other) if ours else None
                    parts.append(self.report.judge(f"of {LABELS[other]}", ratio, goal, LABELS[name]))
            if ours and most is not None:
                parts.append(self.report.judge(unit, result["seconds"] / _UNITS[unit], most, LABELS[name]))
            if ours and note is not None:
                parts.append(note(result))
            self.report.line("  ".join(parts))
        return measured

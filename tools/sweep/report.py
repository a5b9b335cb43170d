"""Counting, sorting out what a deviation explains, and printing."""
import collections
import importlib.util
import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COUNTS = ("executed", "equal", "reasoned", "failing", "refused", "aborts", "hangs")


def load_deviations():
    """{"operator", "operator dtype" or "operator dtype kind": reason} of tests/torch/deviations.py."""
    spec = importlib.util.spec_from_file_location("deviations", ROOT / "tests/torch/deviations.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.DEVIATIONS


class Report:
    """Results by dtype, kind and operator."""

    def __init__(self, quiet=False):
        self.deviations = load_deviations()
        self.quiet = quiet
        self.results = {}

    def reason(self, name, dtype, kind):
        for key in (f"{name} {dtype} {kind}", f"{name} {dtype}", name):
            if key in self.deviations:
                return self.deviations[key]
        return None

    def add(self, name, dtype, kind, result):
        """Takes the counts of one operator; failing samples of a deviation become reasoned."""
        result = {**dict.fromkeys(COUNTS, 0), **result}
        result["executed"] = result["equal"] + result["reasoned"] + result["failing"]
        reason = self.reason(name, dtype, kind)
        if reason and not result["aborts"] and not result["hangs"]:
            result.update(reasoned=result["reasoned"] + result["failing"], failing=0, reason=reason)
        self.results.setdefault(dtype, {}).setdefault(kind, {})[name] = result
        if not self.quiet and result["failing"]:
            print(f"{name:40} {dtype:10} {kind:13} {result['failing']:4} of {result['executed']:4}  "
                  f"{'; '.join(result['problems'][:1])}", flush=True)

    def totals(self):
        """{dtype: {kind: counts}}, with "operators" that executed something and operators_X for each count."""
        totals = {}
        for dtype, kinds in self.results.items():
            for kind, operators in kinds.items():
                total = collections.Counter({key: 0 for key in COUNTS})
                total.update(operators=sum(result["executed"] > 0 for result in operators.values()))
                for result in operators.values():
                    for key in COUNTS:
                        total[key] += result[key]
                        total[f"operators_{key}"] += result[key] > 0
                totals.setdefault(dtype, {})[kind] = dict(total)
        return totals

    def print_totals(self):
        print(f"{'dtype':10} {'kind':13} {'operators':>9} {'samples':>8} {'equal':>8} {'reasoned':>8} {'failing':>8} "
              f"{'aborts':>6} {'hangs':>6}   operators reasoned, failing")
        for dtype, kinds in self.totals().items():
            for kind, total in kinds.items():
                print(f"{dtype:10} {kind:13} {total['operators']:9} {total['executed']:8} {total['equal']:8} "
                      f"{total['reasoned']:8} {total['failing']:8} {total['aborts']:6} {total['hangs']:6}   "
                      f"{total['operators_reasoned']}, {total['operators_failing']}")

    def write(self, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        report = {"totals": self.totals(), "results": self.results}
        path.write_text(json.dumps(report, indent=1, sort_keys=True) + "\n")

    def failing(self):
        return sum(total["failing"] for kinds in self.totals().values() for total in kinds.values())

"""Changing numbers, indices and sizes: what is compiled again, and the seconds of 64 sequence lengths."""

import time

from bench import shapes
from bench.comparison import difference
from bench.peers import LABELS, PeerError, fresh


def lengths(peer):
    """The GPT's forward over all lengths in turn, in a process that has seen one other length."""
    forward = peer.forward()
    forward(shapes.GPT.context)
    before, start = peer.counts()["compiles"], time.perf_counter()
    numbers = [forward(length) for length in shapes.LENGTHS]
    first = time.perf_counter() - start
    compiles, start = peer.counts()["compiles"] - before, time.perf_counter()
    for length in shapes.LENGTHS:
        forward(length)
    return {"numbers": numbers, "first": first, "compiles": compiles, "second": time.perf_counter() - start}


def _compilations(run):
    from bench.churn_cases import CASES

    report = run.report
    for name, (further, total) in fresh("tpu", "churn_cases", "all_compilations").items():
        _, count, most_further, most_total = CASES[name]
        parts = (report.judge("further compilations", further, most_further, name),
                 report.judge("in all", total, most_total, name))
        report.line(f"{name:20} {count} values: {', '.join(parts)}")


def _lengths(run):
    report, results = run.report, {}
    for name in ("tpu", "cpu", "jax"):
        if name in run.peers:
            try:
                results[name] = fresh(name, "churn", "lengths")
            except PeerError as error:
                report.fail(f"{LABELS[name]}: {error}")
    for name, result in results.items():
        parts = [f"{LABELS[name]:20} {result['first']:7.2f} s", f"again {result['second']:.2f} s"]
        found = difference(results["cpu"]["numbers"], result["numbers"]) if "cpu" in results else 0
        if found > 1e-3:
            report.fail(f"{LABELS[name]} differs from torch CPU by {found:.2g}")
        if name != "cpu":
            parts.append(f"{result['compiles']} compilations")
        for other, goal in (("cpu", None), ("jax", 0.5)):
            if other in results and name == "tpu":
                parts.append(report.judge(f"of {LABELS[other]}", result["first"] / results[other]["first"], goal))
        report.line("  ".join(parts))


ROWS = {"churn.compilations": _compilations, "churn.lengths": _lengths}

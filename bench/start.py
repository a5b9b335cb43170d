"""The first training step of a process: with an empty folder of compiled programs, and with a full one."""

import tempfile
import time

from bench.peers import fresh


def first_steps(peer, model):
    """Seconds of the first step, of the second, and of a steady one; what was compiled."""
    work = peer.work(f"training.{model}")
    peer.synchronize()
    seconds = []
    for _ in range(6):
        start = time.perf_counter()
        work.run()
        seconds.append(time.perf_counter() - start)
    return {"first": seconds[0], "second": seconds[1], "steady": min(seconds), **peer.counts()}


def _row(model):
    def row(run):
        report = run.report
        with tempfile.TemporaryDirectory() as folder:
            environment = {"TORCH_TPU_CACHE": "on", "TORCH_TPU_CACHE_DIR": folder}
            cold, *warm = (fresh("tpu", "start", "first_steps", model, **environment) for _ in range(3))
        for name, result in (("cold", cold), *(("warm", result) for result in warm)):
            goal = 0 if name == "warm" else None
            times = ", ".join(f"{key} step {1e3 * result[key]:.1f} ms" for key in ("first", "second", "steady"))
            report.line(f"{name}: {times}, {report.judge('compiles', result['compiles'], goal)}, "
                        f"{report.judge('modules emitted', result['modules'], goal)}")
        best = min(result["first"] for result in warm)
        steady = min(result["steady"] for result in warm)
        report.line(report.judge("of the cold first step", best / cold["first"], 0.1))
        report.line(report.judge("of a steady step", best / steady, None) + f", {1e3 * (best - steady):.1f} ms more")

    return row


ROWS = {f"start.{model}": _row(model) for model in ("mlp", "gpt")}

"""Peaks of memory over training steps, in fresh processes, and the pages that a steady step touches anew."""

import gc
import math

from bench import work
from bench.peers import LABELS, PeerError, fresh

_MEBI = 1 << 20


def _status(key):
    """Bytes of a line of /proc/self/status."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(f"{key}:"))


def peaks(peer, model):
    """Bytes by which the process grew over a peer that has run something: at its peak, and at that of steady steps."""
    peer.work("training.mlp").run()
    gc.collect()
    base = _status("VmRSS")
    step = peer.work(f"training.{model}").run
    step()
    gc.collect()
    whole = _status("VmHWM")
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the peak starts again: without the compiler's own use
    faults = math.inf
    for _ in range(6):
        before = work.minor_faults()
        step()
        faults = min(faults, work.minor_faults() - before)
    steady = _status("VmHWM")
    return {"whole": max(whole, steady) - base, "steady": steady - base, "faults": faults,
            "device": peer.device_peak_bytes() or _tensor_peak(peer, model)}


def _tensor_peak(peer, model):
    """The most bytes of tensors on the CPU over the model's steps; None where nobody counts them."""
    if not hasattr(peer, "device"):
        return None
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step = peer.work(f"training.{model}").run
        for _ in range(2):
            step()
    live = peak = 0
    for event in profiler.profiler.kineto_results.events():
        if event.name() == "[memory]":
            live += event.nbytes()
            peak = max(peak, live)
    return peak


def _row(model):
    def row(run):
        report, results = run.report, {}
        for name in ("tpu", "cpu", "jax"):
            if name in run.peers:
                try:
                    results[name] = fresh(name, "memory", "peaks", model)
                except PeerError as error:
                    report.fail(f"{LABELS[name]}: {error}")
        for name, result in results.items():
            report.line(f"{LABELS[name]:12} grew by {result['steady'] / _MEBI:.0f} MiB in steady steps, "
                        f"{result['whole'] / _MEBI:.0f} MiB at most"
                        + (f", {result['device'] / _MEBI:.1f} MiB of tensors" if result["device"] else "")
                        + f", {result['faults']} page faults a step")
        if "tpu" in results and "cpu" in results:
            for key, what in (("device", "tensors"), ("steady", "process")):
                ratio = results["tpu"][key] / results["cpu"][key]
                report.line(report.judge(f"of torch CPU: {what}", ratio, 1.2))

    return row


ROWS = {f"memory.{model}": _row(model) for model in ("gpt", "resnet")}

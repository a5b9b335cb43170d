"""What the results of a run on each device amount to: "refused", "equal", "reasoned" or "failing", with the problem."""
import contextlib

import torch

from .judge import WIDER, difference, nearest, rounded
from .transfer import DEVICE, to_cpu

AS_ACCURATE = "of the same accuracy as the CPU's, measured against double precision, but rounded elsewhere"
FUSED = "fused operators do not round half precision between them; as programs of their own they equal the CPU's"
HALVES = {torch.bfloat16, torch.float16}


def sentence(error):
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]


@contextlib.contextmanager
def strict_mode():
    """Every operator is a program of its own."""
    mode = torch.tpu.mode()
    torch.tpu.set_mode("strict")
    try:
        yield
    finally:
        torch.tpu.set_mode(mode)


def judgement(expected, actual, asked, dtype, in_double, in_strict_mode):
    """(outcome, problem) of results on our device that differ from the CPU's, or None where nothing explains it.

    in_double() gives the CPU's results in double precision, in_strict_mode() ours of programs of one operator."""
    with contextlib.suppress(Exception):  # not everything takes doubles
        judged = rounded(in_double(), expected)

        def accepts(results, **how):
            return not difference(nearest(expected, judged, results, asked, **how), results, asked)

        # Each element on its own: where the CPU rounds a result less well, its gradient starts from there.
        if accepts(actual):
            return "equal", ""
        if accepts(actual, as_accurate=True):
            return "reasoned", AS_ACCURATE
        if dtype in HALVES:
            with strict_mode():
                strict = in_strict_mode()
            if accepts(strict):
                return "reasoned", FUSED
    return None


def verdict(run, dtype, asked):
    """(outcome, problem) of run(device, dtype, seed), which gives a tree of results on the CPU.

    Elements equal the CPU's or those of double precision; random results agree in shapes and dtypes."""
    try:
        expected = run("cpu", dtype, 0)
    except Exception:  # noqa: BLE001  the CPU's refusal is not our subject
        return "refused", ""
    try:
        actual = run(DEVICE, dtype, 0)
    except Exception as error:  # noqa: BLE001  any exception is a finding
        return "failing", sentence(error)
    found = difference(expected, actual, asked)
    if found and any(difference(expected, run("cpu", dtype, seed)) for seed in (1, 2)):
        found = difference(expected, actual, asked, values=False)
    elif found and dtype in WIDER:
        judged = judgement(expected, actual, asked, dtype, in_double=lambda: run("cpu", WIDER[dtype], 0),
                           in_strict_mode=lambda: run(DEVICE, dtype, 0))
        if judged:
            return judged
    return ("failing", found) if found else ("equal", "")


def outcome_of(run):
    """('value', the results on the CPU) or ('error', the exception) of a function."""
    try:
        return "value", to_cpu(run())
    except Exception as error:  # noqa: BLE001
        return "error", error


def agree(on_cpu, on_device, asked, values=True):
    """(outcome, problem) of two outcome_of(): both give equal results, or both raise exceptions of one type."""
    if on_cpu[0] == "error":
        if on_device[0] == "value":
            return "failing", f"gives a result where the CPU raises {sentence(on_cpu[1])}"
        if type(on_cpu[1]) is not type(on_device[1]):
            return "failing", f"raises {sentence(on_device[1])} where the CPU raises {sentence(on_cpu[1])}"
        return "equal", ""
    if on_device[0] == "error":
        return "failing", sentence(on_device[1])
    found = difference(on_cpu[1], on_device[1], asked, values)
    return ("failing", found) if found else ("equal", "")


def refusal(call):
    """(outcome, problem) of call(device), which must raise an exception of the same type on both devices."""
    on_cpu = outcome_of(lambda: call("cpu"))
    return ("refused", "") if on_cpu[0] == "value" else agree(on_cpu, outcome_of(lambda: call(DEVICE)), (0, 0))


def require_placed(tensors, device):
    """Raises unless the tensors, other than 0-dim ones, are on the device."""
    placed = {t.device.type for t in tensors if t.dim() > 0}
    if placed - {device}:
        raise AssertionError(f"results are on {sorted(placed)}")


def tally(outcomes):
    """(the counts of (outcome, problem), the first problems, and the reason of those that have one; the exception that
    ended them or None)."""
    result = {"problems": []}
    try:
        for number, (outcome, problem) in enumerate(outcomes):
            result[outcome] = result.get(outcome, 0) + 1
            if outcome == "reasoned":
                result["reason"] = problem
            elif problem and len(result["problems"]) < 5:
                result["problems"].append(f"{number}: {problem}")
    except Exception as error:  # noqa: BLE001  some samples need packages that are not installed, or other dtypes
        result["problems"].append(f"no samples: {sentence(error)}")
        return result, error
    return result, None

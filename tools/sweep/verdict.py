"""The judgement of kinds.compare for whatever can be run on both devices: modules and optimizers."""
import contextlib

from .judge import WIDER, difference, nearest, rounded
from .kinds import AS_ACCURATE, FUSED, sentence, strict_mode
from .transfer import DEVICE


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
        with contextlib.suppress(Exception):  # not everything takes doubles
            judged = rounded(run("cpu", WIDER[dtype], 0), expected)
            found = difference(nearest(expected, judged, actual, asked), actual, asked)
            if not found:
                return "equal", ""
            if not difference(nearest(expected, judged, actual, asked, as_accurate=True), actual, asked):
                return "reasoned", AS_ACCURATE
            with strict_mode():
                strict = run(DEVICE, dtype, 0)
            if not difference(nearest(expected, judged, strict, asked, as_accurate=True), strict, asked):
                return "reasoned", FUSED
    return ("failing", found) if found else ("equal", "")


def refusal(call):
    """(outcome, problem) of call(device), which must raise an exception of the same type on both devices."""
    raised = {}
    for device in ("cpu", DEVICE):
        try:
            call(device)
        except Exception as error:  # noqa: BLE001
            raised[device] = error
    if "cpu" not in raised:
        return "refused", ""
    expected, actual = raised["cpu"], raised.get(DEVICE)
    if actual is None:
        return "failing", f"gives a result where the CPU raises {sentence(expected)}"
    if type(actual) is not type(expected):
        return "failing", f"raises {sentence(actual)} where the CPU raises {sentence(expected)}"
    return "equal", ""


def require_placed(tensors, device):
    """Raises unless the tensors, other than 0-dim ones, are on the device."""
    placed = {t.device.type for t in tensors if t.dim() > 0}
    if placed - {device}:
        raise AssertionError(f"results are on {sorted(placed)}")

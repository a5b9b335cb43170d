#!/usr/bin/env python3
"""Runs the samples of torch's operator database (OpInfo) on the CPU and on "tpu", forward and backward, and compares.

  python tools/op_coverage.py                                   # every operator, float32
  python tools/op_coverage.py --dtype float32,int64 --samples 4
  python tools/op_coverage.py --ops '^(add|linalg.*) float32'   # searched in "name dtype"

A sample that the CPU refuses is not executed. An executed sample is equal (values, shapes and dtypes), reasoned (it
differs, for a reason that tests/torch/deviations.py states), or failing. Operators run in forked workers, so a crash or
a hang costs one operator. Random operators are compared in shape and dtype only.
"""
import argparse
import collections
import contextlib
import importlib.util
import json
import multiprocessing
import multiprocessing.connection
import os
import re
import signal
import sys
import time
import warnings
from pathlib import Path

import torch  # before the operator database: it looks for the device when it is imported
from torch.testing._comparison import default_tolerances
from torch.testing._internal.common_device_type import precisionOverride, toleranceOverride
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_map

ROOT = Path(__file__).resolve().parent.parent
DEVICE = "tpu"
UNINITIALISED = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}
OPERATORS_PER_WORKER = 40  # compiled programs stay in a worker's memory


def name_of(op):
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def dtype_name(dtype):
    return str(dtype).removeprefix("torch.")


def deviations():
    spec = importlib.util.spec_from_file_location("deviations", ROOT / "tests/torch/deviations.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.DEVIATIONS


# --- one sample ---------------------------------------------------------------------------------------------------


def copy_to(device):
    """A function that copies a tensor to `device` with its strides, and renames the CPU where it is an argument."""

    def copy(value):
        if isinstance(value, torch.device) or (isinstance(value, str) and value == "cpu"):
            return torch.device(device)
        if not isinstance(value, torch.Tensor):
            return value
        source = value.detach()
        plain = source.layout == torch.strided and not source.is_conj() and not source.is_neg()
        if not plain or source.is_contiguous():
            result = source.to(device, copy=True)
        else:
            count = source.untyped_storage().nbytes() // source.element_size()
            memory = source.as_strided((count,), (1,), 0).to(device, copy=True)
            result = memory.as_strided(source.size(), source.stride(), source.storage_offset())
        return result.requires_grad_(value.requires_grad)

    return copy


def tensors_in(tree):
    return [leaf for leaf in tree_flatten(tree)[0] if isinstance(leaf, torch.Tensor)]


def weights_for(outputs):
    """Cotangents that depend neither on the device nor, being quarters, on the dtype; None for outputs without a
    gradient."""
    generator = torch.Generator().manual_seed(7)

    def draw(shape):
        return torch.randint(-8, 9, shape, generator=generator) / 4

    def weight(tensor):
        real = draw(tensor.shape)
        return (torch.complex(real, draw(tensor.shape)) if tensor.is_complex() else real).to(tensor.dtype)

    return [weight(t) if t.requires_grad else None for t in outputs]


@contextlib.contextmanager
def seeded(seed):
    """Random numbers of `seed`, also where the database seeds with a number of its own."""
    original = torch.manual_seed
    torch.manual_seed = lambda _: original(seed)
    try:
        original(seed)
        yield
    finally:
        torch.manual_seed = original


def evaluate(op, sample, device, backward, seed=0):
    """(the outputs, the gradients) of a sample, on the CPU."""
    move = copy_to(device)
    arguments = tree_map(move, (sample.input, list(sample.args), sample.kwargs))
    with seeded(seed):
        result = op(arguments[0], *arguments[1], **arguments[2])
    # The database's way to make results unique: eigenvectors, for one, have no sign.
    result = sample.output_process_fn_grad(result)
    gradients = []
    if backward:
        outputs = tensors_in(result)
        pairs = [(t, w.to(device)) for t, w in zip(outputs, weights_for(outputs)) if w is not None]
        inputs = [t for t in tensors_in(arguments) if t.requires_grad]
        if pairs and inputs:
            outputs, weights = zip(*pairs)
            gradients = torch.autograd.grad(outputs, inputs, weights, allow_unused=True)
    placed = {t.device.type for t in tensors_in((result, gradients)) if t.dim() > 0}
    if placed - {device} and op.name not in {"to", "cpu"}:
        raise AssertionError(f"results are on {sorted(placed)}")
    return tree_map(lambda v: v.detach().cpu() if isinstance(v, torch.Tensor) else v, (result, list(gradients)))


def tolerances(op, dtype):
    """(rtol, atol) that the OpInfo asks for, of inputs of this dtype; (0, 0) where it asks for nothing."""
    rtol = atol = 0.0
    for decorator in op.decorators:
        if getattr(decorator, "device_type", None) not in (None, "cpu", "cuda"):
            continue
        for override in getattr(decorator, "decorators", [decorator]):
            if isinstance(override, toleranceOverride) and dtype in override.d:
                rtol, atol = max(rtol, override.d[dtype].rtol), max(atol, override.d[dtype].atol)
            elif isinstance(override, precisionOverride) and dtype in override.d:
                atol = max(atol, override.d[dtype])
    return rtol, atol


def difference(expected, actual, asked=(0, 0), values=True):
    """What differs between two trees of results, or ''. The limits are torch.testing's, or `asked` where wider."""
    expected, actual = tree_flatten(expected)[0], tree_flatten(actual)[0]
    if len(expected) != len(actual):
        return f"{len(actual)} results instead of {len(expected)}"
    for a, b in zip(expected, actual):
        if not isinstance(a, torch.Tensor):
            if a != b and values:
                return f"{b!r} instead of {a!r}"
            continue
        if not isinstance(b, torch.Tensor):
            return f"{b!r} instead of a tensor"
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"{b.dtype}{list(b.shape)} instead of {a.dtype}{list(a.shape)}"
        if not values:
            continue
        rtol, atol = default_tolerances(a.dtype)
        if rtol > 0:
            rtol, atol = max(rtol, asked[0]), max(atol, asked[1])
        try:
            torch.testing.assert_close(b, a, rtol=rtol, atol=atol, equal_nan=True)
        except AssertionError as error:
            return " ".join(str(error).split())[:300]
    return ""


def in_double(sample, dtype):
    """The sample in float64: the judge where the CPU's result and ours differ."""

    def widen(value):
        if isinstance(value, torch.Tensor) and value.dtype == dtype:
            return value.detach().double().requires_grad_(value.requires_grad)
        return value

    return sample.transform(widen)


def rounded(tree, dtype):
    """A tree with its doubles rounded to `dtype`."""
    return tree_map(lambda v: v.to(dtype) if isinstance(v, torch.Tensor) and v.dtype == torch.float64 else v, tree)


def compare(op, sample, dtype, backward):
    """('refused' | 'equal' | 'failing', the difference)."""
    try:
        expected = evaluate(op, sample, "cpu", backward)
        random = any(difference(expected[0], evaluate(op, sample, "cpu", False, seed)[0]) for seed in (1, 2))
    except Exception:  # noqa: BLE001  the CPU's refusal is not our subject
        return "refused", ""
    try:
        actual = evaluate(op, sample, DEVICE, backward)
    except Exception as error:  # noqa: BLE001  any exception is a finding
        return "failing", f"{type(error).__name__}: {error}".splitlines()[0][:300]
    asked = tolerances(op, dtype)
    values = not random and op.name not in UNINITIALISED
    found = difference(expected[0], actual[0], asked, values)
    where = ""
    if not found:
        found, where = difference(expected[1], actual[1], asked, values), "gradient: "
    if found and values and dtype in (torch.float32, torch.bfloat16, torch.float16):
        try:
            judged = rounded(evaluate(op, in_double(sample, dtype), "cpu", backward), dtype)
            if not difference(judged, actual, asked):
                return "equal", ""
        except Exception:  # noqa: BLE001  not every operator takes doubles
            pass
    return ("failing", where + found) if found else ("equal", "")


# --- one operator -------------------------------------------------------------------------------------------------


def run_operator(op, dtype, samples, backward):
    """Counts of the operator's samples, and the first differences."""
    result = collections.Counter()
    problems = []
    started = time.perf_counter()
    backward = backward and op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    torch.manual_seed(0)
    try:
        inputs = op.sample_inputs("cpu", dtype, requires_grad=backward)
        for index, sample in enumerate(inputs):
            if index == samples:
                break
            outcome, problem = compare(op, sample, dtype, backward)
            result[outcome] += 1
            if problem and len(problems) < 3:
                problems.append(f"sample {index}: {problem}")
    except Exception as error:  # noqa: BLE001  some samples need packages that are not installed
        problems.append(f"no samples: {type(error).__name__}: {error}"[:300])
    return {**result, "problems": problems, "seconds": round(time.perf_counter() - started, 2)}


def serve(connection, options):
    """A worker: operators by their index in the database, until the parent hangs up."""
    os.setsid()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)  # the crash report of an aborting worker is no one's result
    try:
        while True:
            index, dtype = connection.recv()
            connection.send(run_operator(op_db[index], dtype, options.samples, options.backward))
    except (EOFError, OSError):
        os._exit(0)


class Worker:
    """A forked process and the operator it is busy with."""

    def __init__(self, options):
        self.connection, other = multiprocessing.Pipe()
        self.process = multiprocessing.get_context("fork").Process(target=serve, args=(other, options), daemon=True)
        self.process.start()
        other.close()
        self.task, self.started, self.served = None, 0.0, 0

    def give(self, task):
        self.task, self.started, self.served = task, time.monotonic(), self.served + 1
        self.connection.send(task)

    def end(self):
        self.connection.close()
        self.process.kill()
        self.process.join()
        return -(self.process.exitcode or 0)


def sweep(tasks, options):
    """Yields ((operator index, dtype), result) for every task, from options.jobs workers."""
    waiting = collections.deque(tasks)
    workers = []
    while waiting or workers:
        while waiting and len(workers) < options.jobs:
            workers.append(Worker(options))
            workers[-1].give(waiting.popleft())
        ready = multiprocessing.connection.wait([w.connection for w in workers], timeout=1)
        for worker in list(workers):
            late = time.monotonic() - worker.started > options.timeout
            if worker.connection not in ready and not late:
                continue
            keep = False
            if worker.connection in ready:
                try:
                    result = worker.connection.recv()
                    keep = bool(waiting) and worker.served < OPERATORS_PER_WORKER
                except EOFError:
                    worker.process.join()
                    number = -(worker.process.exitcode or 0)
                    cause = signal.Signals(number).name if number > 0 else f"exit {-number}"
                    result = {"failing": 1, "abort": 1, "problems": [f"abort: {cause}"], "seconds": 0}
            else:
                result = {"failing": 1, "timeout": 1, "problems": [f"no end after {options.timeout} s"],
                          "seconds": options.timeout}
            yield worker.task, result
            if keep:
                worker.give(waiting.popleft())
            else:
                worker.end()
                workers.remove(worker)


# --- the report ---------------------------------------------------------------------------------------------------


def classify(result, reason):
    """Adds `executed` and moves the failing samples of a deviation to `reasoned`."""
    result.update({key: result.get(key, 0) for key in ("equal", "failing", "refused")}, reasoned=0)
    result["executed"] = result["equal"] + result["failing"]
    if reason:
        result.update(reasoned=result["failing"], failing=0, reason=reason)
    return result


def parse(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", default="float32", help="float32,int64,…")
    parser.add_argument("--ops", default="", help="a regular expression, searched in \"name dtype\"")
    parser.add_argument("--every", type=int, default=1, help="every Nth operator of the database only")
    parser.add_argument("--samples", type=int, default=4, help="at most so many samples of each operator")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--backward", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--timeout", type=float, default=120, help="seconds for one operator")
    parser.add_argument("--out", type=Path, default=ROOT / "build/op_coverage.json")
    parser.add_argument("--quiet", action="store_true", help="print the totals only")
    return parser.parse_args(argv)


def main(argv=None):
    options = parse(argv)
    if not (hasattr(torch, DEVICE) and torch.tpu.is_available()):
        sys.exit('there is no device "tpu"')
    dtypes = [getattr(torch, name) for name in options.dtype.split(",")]
    tasks = [(index, dtype) for dtype in dtypes for index, op in list(enumerate(op_db))[::options.every]
             if dtype in op.supported_dtypes("cpu") and re.search(options.ops, f"{name_of(op)} {dtype_name(dtype)}")]
    known = deviations()
    report = {dtype_name(dtype): {} for dtype in dtypes}
    for (index, dtype), result in sweep(tasks, options):
        name, kind = name_of(op_db[index]), dtype_name(dtype)
        reason = known.get((name, kind)) or known.get((name, None))
        result = report[kind][name] = classify(result, reason)
        if not options.quiet and (result["failing"] or result["executed"] == 0):
            print(f"{name:40} {kind:10} {'; '.join(result['problems'][:1]) or 'nothing executed'}", flush=True)
        if not options.quiet and reason and not result["reasoned"]:
            print(f"{name:40} {kind:10} is listed as a deviation, and is equal", flush=True)
    totals = {}
    for kind, operators in report.items():
        total = collections.Counter(operators=len(operators))
        for result in operators.values():
            total.update({key: result[key] for key in ("executed", "equal", "reasoned", "failing", "refused")})
            total["operators_failing"] += result["failing"] > 0
        totals[kind] = dict(total)
        print(f"{kind}: {total['operators']} operators; {total['executed']} samples executed: {total['equal']} equal, "
              f"{total['reasoned']} reasoned, {total['failing']} failing (in {total['operators_failing']} operators)")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({"totals": totals, "operators": report}, indent=1, sort_keys=True) + "\n")
    return 1 if any(total["failing"] for total in totals.values()) else 0


if __name__ == "__main__":
    sys.exit(main())

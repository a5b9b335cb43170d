#!/usr/bin/env python3
"""Runs the samples of torch's databases of modules and optimizers on the CPU and on "tpu" and compares.

  python tools/module_coverage.py                                    # modules and optimizers, all dtypes
  python tools/module_coverage.py --names '^nn.Conv.* float32'       # searched in "name dtype kind"
  python tools/module_coverage.py --databases optimizers --dtype float32

A module is built on the CPU and copied; outputs and the gradients of inputs and parameters are compared, in training
and in evaluation where these differ, with contiguous inputs and with others. An optimizer takes steps on two small
parameters; parameters and state are compared. Counting and judging are those of tools/op_coverage.py.
"""
import argparse
import contextlib
import copy
import re
import sys
import time
import warnings
from pathlib import Path

import torch
from sweep.judge import difference, rounded, tolerances
from sweep.kinds import seeded, sentence, weights_for
from sweep.report import ROOT, Report
from sweep.transfer import DEVICE, copy_to, tensors_in, to_cpu
from sweep.workers import run_tasks
from torch.nn.utils.rnn import PackedSequence
from torch.testing._internal.common_modules import module_db
from torch.testing._internal.common_optimizers import optim_db
from torch.testing._internal.common_utils import noncontiguous_like
from torch.utils._pytree import tree_map

DTYPES = {"modules": "float32,float64,bfloat16", "optimizers": "float32,float64,bfloat16,complex64"}
MODULE_KINDS = ("training", "evaluation", "noncontiguous")
STEPS = 3


# --- modules ------------------------------------------------------------------------------------------------------


def unpacked(tree):
    """The tree with packed sequences as lists, whose tensors pytree finds."""
    return tree_map(lambda v: list(v) if isinstance(v, PackedSequence) else v, tree,
                    is_leaf=lambda v: isinstance(v, PackedSequence))


def moved(tree, change):
    """The tree with its tensors, also those in packed sequences, changed."""

    def apply(value):
        if isinstance(value, PackedSequence):
            return PackedSequence(change(value.data), value.batch_sizes, value.sorted_indices, value.unsorted_indices)
        return change(value) if isinstance(value, torch.Tensor) else value

    return tree_map(apply, tree, is_leaf=lambda v: isinstance(v, PackedSequence))


def run_module(module, call, seed=0):
    """The outputs, the gradients by inputs and parameters, and the buffers, on the CPU."""
    args, kwargs = call
    with seeded(seed):
        outputs = tensors_in(unpacked(module(*args, **kwargs)))
    weights = [(o, w.to(o.device)) for o, w in zip(outputs, weights_for(outputs)) if w is not None]
    leaves = [t for t in (*tensors_in(unpacked(call)), *module.parameters()) if t.requires_grad]
    gradients = []
    if weights and leaves:
        gradients = torch.autograd.grad([o for o, _ in weights], leaves, [w for _, w in weights], allow_unused=True)
    return to_cpu((outputs, list(gradients), list(module.buffers())))


def compare_module(module, call, asked, dtype):
    """(outcome, problem) of one module and its input."""
    reference = copy.deepcopy(module)
    try:
        expected = run_module(reference, call)
    except Exception:  # noqa: BLE001  the CPU's refusal is not our subject
        return "refused", ""
    try:
        ours = copy.deepcopy(module).to(DEVICE)
        actual = run_module(ours, moved(call, copy_to(DEVICE)))
    except Exception as error:  # noqa: BLE001  any exception is a finding
        return "failing", sentence(error)
    found = difference(expected, actual, asked)
    if not found:
        return "equal", ""
    if difference(expected, run_module(copy.deepcopy(module), call, 1)):  # random
        found = difference(expected, actual, asked, values=False)
        return ("failing", found) if found else ("equal", "")
    with contextlib.suppress(Exception):
        wide = moved(call, lambda t: widened(t, dtype))
        judged = rounded(run_module(copy.deepcopy(module).double(), wide), dtype)
        if dtype != torch.float64 and not difference(judged, actual, asked):
            return "equal", ""
    return "failing", found


def widened(tensor, dtype):
    if tensor.dtype != dtype:
        return tensor
    return tensor.detach().double().requires_grad_(tensor.requires_grad)


def noncontiguous(tensor):
    """The tensor with other strides, where it has more than one element."""
    if tensor.numel() < 2 or tensor.layout != torch.strided:
        return tensor
    return noncontiguous_like(tensor.detach()).requires_grad_(tensor.requires_grad)


def module_samples(info, dtype, kind):
    """(outcome, problem) of every input of a module."""
    training = kind != "evaluation"
    if not training and not info.train_and_eval_differ:
        return
    inputs = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=training)
    asked = tolerances(info, dtype)
    for sample in inputs:
        made, forward = sample.constructor_input, sample.forward_input
        if forward is None:
            continue
        module = info.module_cls(*made.args, **made.kwargs).to(dtype).train(training)
        call = (list(forward.args), forward.kwargs)
        if info.is_lazy:
            with contextlib.suppress(Exception):
                module(*call[0], **call[1])
        if kind == "noncontiguous":
            call = moved(call, noncontiguous)
        outcome, problem = compare_module(module, call, asked, dtype)
        yield outcome, problem and f"{made.args} {made.kwargs}: {problem}"


# --- optimizers ---------------------------------------------------------------------------------------------------


def train(optimizer_class, settings, device, dtype, closure):
    """Parameters and state after some steps, on the CPU."""
    generator = torch.Generator().manual_seed(3)

    def drawn(shape):
        kind = torch.float64 if not dtype.is_complex else torch.complex128
        return torch.randn(shape, generator=generator, dtype=kind).to(dtype).to(device)

    parameters = [drawn(shape).requires_grad_() for shape in ((4, 3), (3, 2))]
    optimizer = optimizer_class(parameters, **settings)
    for _ in range(STEPS):
        gradients = [drawn(p.shape) for p in parameters]

        def step(gradients=gradients):
            for parameter, gradient in zip(parameters, gradients):
                parameter.grad = gradient.clone()
            return sum(((p.detach() - 1) * (p.detach() - 1).conj()).real.sum() for p in parameters)

        step()
        if closure:
            optimizer.step(step)
        else:
            optimizer.step()
    state = [tensors_in(optimizer.state[p]) for p in parameters]
    return to_cpu((parameters, state))


def settings_of(info):
    """(CPU settings, tpu settings) of every configuration."""
    for sample in info.optim_inputs_func(device="cuda"):
        for way in ("", *info.supported_impls):
            settings = {**sample.kwargs, **{name: name == way for name in info.supported_impls}}
            on_cpu = dict(settings)
            on_cpu.pop("capturable", None)  # the same mathematics, refused on the CPU
            yield on_cpu, settings


def optimizer_samples(info, dtype, kind):
    """(outcome, problem) of every configuration of an optimizer."""
    if (dtype.is_complex and not info.supports_complex) or info.only_supports_sparse_grads:
        return
    asked = tolerances(info, dtype)
    for on_cpu, on_tpu in settings_of(info):
        arguments = (info.optim_cls, on_cpu, "cpu", dtype, info.step_requires_closure)
        try:
            expected = train(*arguments)
        except Exception:  # noqa: BLE001  the CPU's refusal is not our subject
            yield "refused", ""
            continue
        try:
            actual = train(info.optim_cls, on_tpu, DEVICE, dtype, info.step_requires_closure)
            found = difference(expected, actual, asked)
        except Exception as error:  # noqa: BLE001  any exception is a finding
            found = sentence(error)
        yield ("failing", f"{on_tpu}: {found}") if found else ("equal", "")


# --- the sweep ----------------------------------------------------------------------------------------------------

DATABASES = {"modules": (module_db, module_samples, MODULE_KINDS), "optimizers": (optim_db, optimizer_samples, ("steps",))}


def run_task(task):
    """Counts of one module or optimizer, and the first differences."""
    database, index, dtype, kind = task
    entries, samples, _ = DATABASES[database]
    result = {"problems": []}
    started = time.perf_counter()
    torch.manual_seed(0)
    warnings.simplefilter("ignore")
    try:
        for outcome, problem in samples(entries[index], dtype, kind):
            result[outcome] = result.get(outcome, 0) + 1
            if problem:
                result["problems"].append(problem)
    except Exception as error:  # noqa: BLE001  not every dtype has inputs
        result["problems"].append(f"no samples: {sentence(error)}")
    return {**result, "seconds": round(time.perf_counter() - started, 2)}


def tasks_of(databases, dtypes, pattern):
    """[(database, index, dtype, kind)] of the entries whose "name dtype kind" contains the pattern."""
    for database in databases:
        entries, _, kinds = DATABASES[database]
        for kind in kinds:
            for name in (dtypes or DTYPES[database]).split(","):
                for index, info in enumerate(entries):
                    if re.search(pattern, f"{info.name} {name} {kind}"):
                        yield database, index, getattr(torch, name), kind


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--databases", default="modules,optimizers")
    parser.add_argument("--dtype", default="", help=str(DTYPES))
    parser.add_argument("--names", default="", help="a regular expression")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=600)
    parser.add_argument("--out", type=Path, default=ROOT / "build/module_coverage.json")
    options = parser.parse_args(argv)
    report = Report()
    tasks = list(tasks_of(options.databases.split(","), options.dtype, options.names))
    for (database, index, dtype, kind), result in run_tasks(tasks, run_task, options.jobs, options.timeout):
        report.add(DATABASES[database][0][index].name, str(dtype).removeprefix("torch."), kind, result)
    report.print_totals()
    report.write(options.out)
    return 1 if report.failing() else 0


if __name__ == "__main__":
    sys.exit(main())

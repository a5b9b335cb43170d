"""The samples of torch's database of modules, each run on both devices and compared.

A module is built on the CPU and copied. Outputs, gradients of inputs and parameters, and buffers are compared. Every
kind is a function of (entry of the database, dtype) that yields (outcome, problem), as those of sweep/kinds.py.
"""
import contextlib
import copy

import torch
from torch.nn.utils.rnn import PackedSequence
from torch.testing._internal.common_modules import ModuleErrorEnum
from torch.testing._internal.common_utils import noncontiguous_like
from torch.utils._pytree import tree_map

from .judge import tolerances
from .judge import widened as widened_tensor
from .kinds import gradients_of, seeded
from .transfer import DEVICE, copy_to, tensors_in, to_cpu
from .verdict import refusal, require_placed, verdict

DTYPES = "float32,bfloat16,float16,float64,complex64"


def is_packed(value):
    return isinstance(value, PackedSequence)


def unpacked(tree):
    """The tree with packed sequences as lists, whose tensors pytree finds."""
    return tree_map(lambda v: list(v) if is_packed(v) else v, tree, is_leaf=is_packed)


def changed(tree, change):
    """The tree with its tensors, and the data of packed sequences, changed."""

    def apply(value):
        if is_packed(value):
            orders = [None if t is None else change(t) for t in (value.sorted_indices, value.unsorted_indices)]
            return PackedSequence(change(value.data), value.batch_sizes, *orders)
        return change(value) if isinstance(value, torch.Tensor) else value

    return tree_map(apply, tree, is_leaf=is_packed)


def noncontiguous(tensor):
    """The tensor with other strides, where it has more than one element."""
    if tensor.numel() < 2 or tensor.layout != torch.strided:
        return tensor
    return noncontiguous_like(tensor.detach()).requires_grad_(tensor.requires_grad)


def results_of(module, call, device):
    """The outputs, the gradients by inputs and parameters, and the buffers, on the CPU."""
    args, kwargs = call
    outputs = tensors_in(unpacked(module(*args, **kwargs)))
    leaves = [t for t in (*tensors_in(unpacked(call)), *module.parameters()) if t.requires_grad]
    gradients = gradients_of(outputs, leaves)
    buffers = list(module.buffers())
    require_placed(tensors_in((outputs, gradients, buffers)), device)
    return to_cpu((outputs, gradients, buffers))


def placed(module, call, device, initial):
    """A copy of the module on the device; a lazy one makes its parameters there, and takes the values of `initial`."""
    result = copy.deepcopy(module).to(device)
    if initial is not None:
        result(*call[0], **call[1])
        result.load_state_dict(initial)
    return result


def compared(module, call, dtype, asked, lazy, change=None):
    """(outcome, problem) of a module and the arguments of its call, changed on our device."""
    initial = None
    if lazy:
        first = copy.deepcopy(module)
        first(*call[0], **call[1])
        initial = first.state_dict()

    def run(device, kind, seed):
        arguments = changed(changed(call, change) if change and device == DEVICE else call, copy_to(device))
        if kind != dtype:
            arguments = changed(arguments, lambda t: widened_tensor(t, dtype))
        with seeded(seed):
            ours = placed(module.to(kind) if kind != dtype else module, arguments, device, initial)
            return results_of(ours, arguments, device)

    return verdict(run, dtype, asked)


def inputs_of(info, dtype, training):
    return info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=training)


def samples(info, dtype, training, change=None):
    """(outcome, problem) of every input of a module."""
    asked = tolerances(info, dtype)
    for sample in inputs_of(info, dtype, training):
        made, forward = sample.constructor_input, sample.forward_input
        if forward is None:
            yield "refused", "the database has nothing to call it with"
            continue
        module = info.module_cls(*made.args, **made.kwargs).to(dtype).train(training)
        call = (list(forward.args), forward.kwargs)
        outcome, problem = compared(module, call, dtype, asked, info.is_lazy, change)
        yield outcome, problem and f"{made.args} {made.kwargs}: {problem}"


def training(info, dtype):
    """In training."""
    return samples(info, dtype, True)


def evaluation(info, dtype):
    """In evaluation; only of modules for which that is another thing than training."""
    return samples(info, dtype, False)


def noncontiguous_inputs(info, dtype):
    """In training, with inputs that are not contiguous. The CPU gets contiguous ones: its CTCLoss reads others wrongly
    (concatenated targets of 64 bits)."""
    return samples(info, dtype, True, noncontiguous)


def errors(info, dtype):
    """The database's wrong constructions and calls: exceptions of the type that the CPU raises."""
    for wrong in info.module_error_inputs_func(info, device="cpu", dtype=dtype, requires_grad=False, training=True):
        made, forward = wrong.module_error_input.constructor_input, wrong.module_error_input.forward_input

        def call(device, wrong=wrong, made=made, forward=forward):
            args, kwargs = changed((made.args, made.kwargs), copy_to(device))
            module = info.module_cls(*args, **kwargs).to(device)
            if wrong.error_on == ModuleErrorEnum.FORWARD_ERROR:
                args, kwargs = changed((forward.args, forward.kwargs), copy_to(device))
                module(*args, **kwargs)
                torch.tpu.synchronize()

        outcome, problem = refusal(call)
        yield outcome, problem and f"{made.args} {made.kwargs}: {problem}"


KINDS = {"training": training, "evaluation": evaluation, "noncontiguous": noncontiguous_inputs, "errors": errors}


def has(info, dtype, kind):
    """Whether the database has samples of this kind for a module."""
    if kind == "errors":
        return info.module_error_inputs_func is not None and dtype == torch.float32
    return kind != "evaluation" or info.train_and_eval_differ


def lists(info, dtype):
    """Whether the database says that a module takes the dtype."""
    return dtype in info.dtypes

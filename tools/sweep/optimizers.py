"""The configurations of torch's database of optimizers, each run on both devices and compared.

An optimizer takes steps on two small parameters towards targets; parameters, state and losses are compared. Every kind
is a function of (entry of the database, dtype) that yields (outcome, problem), as those of sweep/kinds.py.
"""
import contextlib
import copy
import sys
import warnings
from unittest import mock

import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.testing._internal.common_optimizers import OptimizerErrorEnum
from torch.utils._pytree import tree_map

from .judge import WIDER, tolerances
from .kinds import gradients_of
from .transfer import copy_to, tensors_in, to_cpu
from .verdict import refusal, require_placed, verdict

DTYPES = "float32,float64,complex64"  # those of torch's own tests
SHAPES = ((4, 3), (3, 2))
STEPS = 3


def drawn(device, dtype, kind, count):
    """`count` lists of tensors of SHAPES: random numbers that `dtype` holds exactly, in the dtype `kind`."""
    generator = torch.Generator().manual_seed(3)
    wide = WIDER.get(dtype, dtype)

    def draw(shape):
        return torch.randn(shape, generator=generator, dtype=wide).to(dtype).to(kind).to(device)

    return [[draw(shape) for shape in SHAPES] for _ in range(count)]


def rows_of(gradient):
    """Some rows of a gradient as a sparse tensor that names one of them twice, as an embedding's gradient does."""
    rows = torch.tensor([0, 2, 0], device=gradient.device)
    return torch.sparse_coo_tensor(rows[None], gradient[rows], gradient.shape, check_invariants=False)


def curvature(tensor):
    """A factor for each element, so that an optimizer does not arrive after a step or two."""
    factors = torch.linspace(0.25, 2, tensor.numel(), dtype=torch.float64).view(tensor.shape)
    return factors.to(tensor.real.dtype).to(tensor.device)


def gradients_towards(targets, parameters, sparse):
    """Sets the gradients of a squared distance between parameters and targets, which is returned."""
    loss = sum((curvature(p) * (p - t).abs().square()).sum() for p, t in zip(parameters, targets))
    for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters)):
        parameter.grad = rows_of(gradient) if sparse else gradient
    return loss.detach()


def state_of(optimizer, parameters):
    """The tensors of the state. Sparse ones are coalesced: how many entries a sum has before that is not defined."""
    tensors = tensors_in([optimizer.state[p] for p in parameters])
    return [t.coalesce() if t.layout == torch.sparse_coo else t for t in tensors]


def train(info, settings, device, dtype, kind, sparse=False, make_schedulers=()):
    """Parameters, state, losses and learning rates after some steps, the last of them with a closure."""
    parameters, *targets = drawn(device, dtype, kind, 1 + STEPS)
    if info.step_requires_closure:
        # Iterations within a step amplify rounding errors: few of them show the steps, many where they lead.
        targets = targets[:1] * (1 if "max_iter" in settings else STEPS)
    for parameter in parameters:
        parameter.requires_grad_()
    optimizer = info.optim_cls(parameters, **settings)
    schedulers = [make(optimizer) for make in make_schedulers]
    losses = []
    for number, target in enumerate(targets):
        def closure(target=target):
            return gradients_towards(target, parameters, sparse)

        losses.append(closure())
        if info.step_requires_closure or number == len(targets) - 1:
            losses.append(optimizer.step(closure))
        else:
            optimizer.step()
        for scheduler in schedulers:
            scheduler.step(*([losses[-1]] if isinstance(scheduler, ReduceLROnPlateau) else []))
    # Such an optimizer's state is a history of differences, in which digits cancel.
    state = [] if info.step_requires_closure else state_of(optimizer, parameters)
    require_placed(tensors_in((parameters, state)), device)
    rates = [torch.as_tensor(group["lr"], dtype=torch.float64) for group in optimizer.param_groups]
    return to_cpu((parameters, state, losses, rates))


def train_differentiably(info, settings, device, dtype, kind):
    """Parameters and state after one step on copies, and their gradients by the originals and by the gradients of the
    step."""
    originals, gradients = drawn(device, dtype, kind, 2)
    leaves = [t.requires_grad_() for t in (*originals, *gradients)]
    parameters = [t.clone() for t in originals]
    for parameter, gradient in zip(parameters, gradients):
        parameter.grad = gradient
    optimizer = info.optim_cls(parameters, **settings)
    optimizer.step()
    results = tensors_in((parameters, state_of(optimizer, parameters)))
    require_placed(results, device)
    return to_cpu((results, gradients_of(results, leaves)))


def settings_of(info):
    """Every configuration, for each implementation (the plain one, foreach, fused, differentiable), and of optimizers
    that iterate within a step also with few iterations. CUDA's configurations are those of the CPU and "capturable".
    """
    for sample in info.optim_inputs_func(device="cuda"):
        for way in ("", *info.supported_impls):
            yield {**sample.kwargs, **{name: name == way for name in info.supported_impls}}
        if info.step_requires_closure:
            yield {**sample.kwargs, "max_iter": 4}


@contextlib.contextmanager
def capturable_on_cpu(info):
    """Lets the optimizer run on the CPU with capturable=True, which torch allows on accelerators only."""
    name = "_get_capturable_supported_devices"
    modules = {sys.modules[cls.__module__] for cls in info.optim_cls.__mro__}
    with contextlib.ExitStack() as patches:
        for module in modules:
            if hasattr(module, name):
                patches.enter_context(mock.patch.object(module, name, lambda supports_xla=True: ["cpu"]))
        yield


def compared(info, settings, dtype, train, **more):
    """(outcome, problem) of one configuration."""

    def run(device, kind, seed):
        del seed
        with capturable_on_cpu(info) if device == "cpu" else contextlib.nullcontext():
            return train(info, copy.deepcopy(settings), device, dtype, kind, **more)

    outcome, problem = verdict(run, dtype, tolerances(info, dtype))
    return outcome, problem and f"{settings}: {problem}"


def steps(info, dtype):
    """Every configuration; sparse gradients where an optimizer takes no others."""
    for settings in settings_of(info):
        if settings.get("differentiable"):
            yield compared(info, settings, dtype, train_differentiably)
        else:
            yield compared(info, settings, dtype, train, sparse=info.only_supports_sparse_grads)


def sparse(info, dtype):
    """Sparse gradients, in every configuration that takes them."""
    for settings in ({**info.metadata_for_sparse[0]}, *settings_of(info)):
        yield compared(info, settings, dtype, train, sparse=True)


def schedulers(info, dtype):
    """The default configuration with the database's schedulers of learning rates."""
    for make_schedulers in info.scheduler_inputs:
        yield compared(info, {}, dtype, train, sparse=info.only_supports_sparse_grads, make_schedulers=make_schedulers)


def errors(info, dtype):
    """The database's wrong constructions and steps: exceptions, or warnings, of the type that the CPU raises."""
    for wrong in info.optim_error_inputs_func(device="cpu", dtype=dtype):
        settings, made = wrong.optimizer_error_input.kwargs, wrong.optimizer_error_input.params

        def call(device, wrong=wrong, settings=settings, made=made):
            copies = {}

            def copied(value):
                if not isinstance(value, torch.Tensor):
                    return value
                if id(value) not in copies:
                    copies[id(value)] = copy_to(device)(value)
                    copies[id(value)].grad = None if value.grad is None else value.grad.to(device)
                return copies[id(value)]

            parameters = [torch.ones(2, 3, dtype=dtype, device=device)] if made is None else tree_map(copied, made)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                optimizer = info.optim_cls(parameters, **settings)
                if wrong.error_on == OptimizerErrorEnum.STEP_ERROR:
                    optimizer.step()

        outcome, problem = refusal(call)
        yield outcome, problem and f"{wrong.optimizer_error_input.desc}: {problem}"


KINDS = {"steps": steps, "sparse": sparse, "schedulers": schedulers, "errors": errors}


def has(info, dtype, kind):
    """Whether the database has samples of this kind for an optimizer."""
    if kind == "errors":
        return dtype == torch.float32
    return kind != "sparse" or info.supports_sparse


def lists(info, dtype):
    """Whether the database says that an optimizer takes the dtype."""
    return info.supports_complex or not dtype.is_complex

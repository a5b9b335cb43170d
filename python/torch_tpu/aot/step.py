"""A step of a model, recorded in a dry run and given to TPU's compiler."""

import collections
import contextlib
import copy
import math
import tempfile
import time

import torch
from torch.utils._pytree import tree_map_only

from torch_tpu.aot import hlo
from torch_tpu.aot.chips import chip_of
from torch_tpu.aot.compiler import CompileError, Compiler
from torch_tpu.aot.recording import capture, dry_run
from torch_tpu.aot.report import Program, Report

LEVELS = {"check": 0, "estimate": None}  # None: the compiler's own


def compile(model, inputs=(), *, topology="v5e:1x1", optimizer=None, targets=(), loss=None, dtype=None, mesh=None,
            parallelize=None, mode="check", timeout=None, libtpu=None) -> Report:
    """Compiles a step for a TPU topology and reports what the compiler says. Nothing is computed here.

    `model`: a module on any device, "meta" included, or a function of tensors. Of its tensors, `inputs` and `targets`
    only shapes and dtypes count. Without `optimizer` the step is an inference, in eval mode and without gradients.
    With one, a function from parameters to an optimizer such as torch.optim.AdamW, it is a training step: forward,
    `loss(output, *targets)`, backward, step. The default loss is output.loss where there is such a thing, else the
    mean of the output. `dtype` is that of autocast.

    `mesh`: {"data": 2, "tensor": 2} for that many devices. All run the step of the first rank, in a process group of
    that size; before, parallelize(model, device_mesh) shards the model and returns it, or None where it changed it in
    place, as fully_shard and parallelize_module do. DistributedDataParallel cannot be recorded: it reads values.
    Figures are those of one device.

    `mode` "check" compiles quickly: accepted or refused, memory, operations, bytes. "estimate" compiles as for a run,
    many times slower, and adds the compiler's own schedule to the estimate of time. `timeout`: seconds for a program.

    Raises ValueError for a topology that there is not, CompileError where libtpu is missing.
    """
    if optimizer is not None and not isinstance(model, torch.nn.Module):
        raise TypeError("a training step needs a module, for its parameters")
    if mode not in LEVELS:
        raise ValueError(f"mode is 'check' or 'estimate', not {mode!r}")
    with Compiler(topology, libtpu=libtpu) as compiler:
        names = compiler.describe()["topologies"]
        if topology not in names:
            raise ValueError(f"{topology!r} is no TPU topology; there are {', '.join(names)}")
        with dry_run(), _device_mesh(mesh) as device_mesh:
            model, inputs, targets = _without_values(model), _without_values(inputs), _without_values(targets)
            if parallelize is not None:
                model = parallelize(model, device_mesh) or model
            step = (_training(model, inputs, targets, optimizer, loss or _default_loss, dtype) if optimizer
                    else _inference(model, inputs, dtype))
            texts = _record(step)
        devices = math.prod((mesh or {}).values())
        options = {"level": LEVELS[mode], "timeout": timeout, "replicas": devices}
        cycles_per_second = chip_of(topology).cycles_per_second if mode == "estimate" else None
        return Report(topology, mode, devices, [_compile(compiler, text, runs, options, cycles_per_second)
                                                for text, runs in texts.items()])


def _record(step):
    """{program: how often it runs} in one step, once its optimizer has its states."""
    step()
    torch.tpu.synchronize()
    with capture(sources=True) as programs:
        result = step()  # held until the block ends, because it is what the step computes
    del result
    return collections.Counter(programs)


@contextlib.contextmanager
def _device_mesh(mesh):
    """A default process group of as many ranks as the mesh has, of which this process is the first; its DeviceMesh."""
    if not mesh:
        yield None
        return
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    if dist.is_initialized():
        raise ValueError("mesh= makes a default process group of its own, but there is one already")
    dist.init_process_group("tpu", store=dist.HashStore(), rank=0, world_size=math.prod(mesh.values()))
    try:
        yield init_device_mesh("tpu", tuple(mesh.values()), mesh_dim_names=tuple(mesh))
    finally:
        dist.destroy_process_group()


def _default_loss(output, *targets):
    if hasattr(output, "loss"):
        return output.loss
    return (output[0] if isinstance(output, tuple) else output).float().mean()


def _training(model, inputs, targets, make_optimizer, loss, dtype):
    optimizer = make_optimizer(model.train().parameters())

    def step():
        with _autocast(dtype):
            value = loss(model(*inputs), *targets)
        value.backward()
        optimizer.step()
        optimizer.zero_grad()
        return value.detach()

    return step


def _inference(model, inputs, dtype):
    if isinstance(model, torch.nn.Module):
        model.eval()

    def step():
        with torch.no_grad(), _autocast(dtype):
            return model(*inputs)

    return step


def _autocast(dtype):
    return torch.autocast("tpu", dtype or torch.bfloat16, enabled=dtype is not None)


def _without_values(values):
    """A copy whose tensors are on tpu, with the same shapes, strides and dtypes. Weights that are tied stay so."""
    if isinstance(values, torch.nn.Module):
        tensors = [*values.parameters(), *values.buffers()]
        return copy.deepcopy(values, {id(tensor): _tensor_like(tensor) for tensor in tensors})
    if callable(values):
        return values
    return tree_map_only(torch.Tensor, _tensor_like, values)


def _tensor_like(tensor):
    empty = torch.empty_like(tensor, device="tpu", requires_grad=False)
    empty.zero_()  # what was never written would be a constant in the program
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(empty, tensor.requires_grad)
    return empty.requires_grad_(tensor.requires_grad)


def _compile(compiler, text, runs, options, cycles_per_second) -> Program:
    program = Program(text=text, runs=runs, collectives=hlo.collectives(text))
    started = time.perf_counter()
    try:
        with tempfile.TemporaryDirectory(prefix="torch_tpu_aot_") as folder:
            compiled = compiler.compile(text, xla_dump_to=folder, **options)
            schedule = hlo.schedule_of(folder)
    except CompileError as error:
        program.refused = error
        if error.reason not in ("out_of_memory", "timeout"):
            program.source = hlo.first_refused(text, lambda part: _is_refused(compiler, part, options))
    else:
        program.take(compiled, schedule, cycles_per_second)
    program.seconds = time.perf_counter() - started
    return program


def _is_refused(compiler, text, options):
    try:
        compiler.compile(text, **options)
    except CompileError:
        return True
    return False

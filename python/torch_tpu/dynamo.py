"""torch.compile(backend="tpu"), and what Dynamo asks about the device.

Graphs are traced to ATen by AOTAutograd and recorded call by call; the engine turns what a graph records
into a program, keyed and cached like eager ones. A graph of fixed sizes is recorded once and then repeated
as one call.
"""

import functools
import operator

import torch
from torch._dynamo import device_interface
from torch._dynamo.backends.common import aot_autograd
from torch._prims import rng_prims
from torch.utils._pytree import tree_leaves
from functorch.compile import make_boxed_func

from torch_tpu import _C, host_part


class TpuInterface(device_interface.DeviceInterface):
    """Dynamo's view of torch.tpu."""

    Stream = torch.Stream
    Event = torch.Event

    class device:
        def __new__(cls, index):
            return torch.tpu.device(index)

    class Worker:
        @staticmethod
        def set_device(device: int):
            torch.tpu.set_device(device)

        @staticmethod
        def current_device():
            return torch.tpu.current_device()

        @staticmethod
        def get_device_properties(device=None):
            return torch.tpu.get_device_properties(device)

    current_device = staticmethod(lambda: torch.accelerator.current_device_index())
    set_device = staticmethod(lambda device: torch.tpu.set_device(device))
    device_count = staticmethod(lambda: torch.tpu.device_count())
    is_available = staticmethod(lambda: torch.tpu.is_available())
    synchronize = staticmethod(lambda device=None: torch.accelerator.synchronize())
    exchange_device = staticmethod(lambda device: torch.tpu._exchange_device(device))
    maybe_exchange_device = staticmethod(lambda device: torch.tpu._maybe_exchange_device(device))
    current_stream = staticmethod(lambda device=None: torch.accelerator.current_stream())
    get_raw_stream = staticmethod(lambda device: 0)
    get_device_properties = staticmethod(lambda device=None: torch.tpu.get_device_properties(device))
    get_compute_capability = staticmethod(lambda device=None: (0, 0))
    is_bf16_supported = staticmethod(lambda including_emulation=True: True)
    is_dtype_supported = staticmethod(lambda dtype, including_emulation=True: True)


def _drawing_device(args, kwargs):
    """The tpu whose generator a random operator draws from; None for those of other devices."""
    devices = [value.device for value in args if isinstance(value, torch.Tensor)]
    device = torch.device(kwargs["device"]) if kwargs.get("device") else next(iter(devices), None)
    return device if device is not None and device.type == "tpu" else None


def _run_and_save_rng_state(operator, *args, **kwargs):
    device = _drawing_device(args, kwargs)
    if device is None:
        return rng_prims.run_and_save_rng_state(operator, *args, **kwargs)
    return torch.tpu.get_rng_state(device), operator(*args, **kwargs)


def _run_with_rng_state(state, operator, *args, **kwargs):
    device = _drawing_device(args, kwargs)
    if device is None:
        return rng_prims.run_with_rng_state(state, operator, *args, **kwargs)
    current = torch.tpu.get_rng_state(device)
    torch.tpu.set_rng_state(state, device)
    try:
        return operator(*args, **kwargs)
    finally:
        torch.tpu.set_rng_state(current, device)


# AOTAutograd wraps the random operators of activation checkpoints in operators that know some devices by name.
_RANDOM_WRAPPERS = {
    rng_prims.run_and_save_rng_state: _run_and_save_rng_state,
    rng_prims.run_with_rng_state: _run_with_rng_state,
}


def _replay_random_numbers(graph_module):
    wrapped = [node for node in graph_module.graph.nodes if node.target in _RANDOM_WRAPPERS]
    for node in wrapped:
        node.target = _RANDOM_WRAPPERS[node.target]
    if wrapped:
        graph_module.recompile()


def _is_static(node):
    """Whether a node only computes tensors on tpu of sizes that are known."""
    values = [value for value in tree_leaves(node.meta.get("val")) if value is not None]
    if not all(isinstance(value, torch.Tensor) and value.device.type == "tpu" for value in values):
        return False
    if any(isinstance(size, torch.SymInt) for value in values for size in value.shape):
        return False
    if node.op == "call_function" and node.target is not operator.getitem:
        return isinstance(node.target, torch._ops.OpOverload) and node.target.namespace in ("aten", "prims")
    return node.op in ("placeholder", "call_function", "output")


def _interpreter(graph_module, buckets):
    """Runs a graph node by node."""

    def forward(*args):
        previous = _C.set_buckets(True) if buckets else None
        try:
            return graph_module.forward(*args)
        except Exception as error:
            _name_node(error, graph_module)
            raise
        finally:
            if buckets:
                _C.set_buckets(previous)

    return forward


def _compile_graph(graph_module, example_inputs, buckets=False):
    _replay_random_numbers(graph_module)
    parts = host_part.split(graph_module)
    nodes = [node for node in graph_module.graph.nodes if parts is None or not host_part.is_on_host(node)]
    if not all(_is_static(node) for node in nodes):
        return make_boxed_func(_interpreter(graph_module, buckets))
    graph = _C.RecordedGraph(_interpreter(graph_module if parts is None else parts.device, False))

    def run(args):
        return graph(args) if parts is None else parts.run(graph, args)

    run._boxed_call = True
    return run


_OPTIONS = {"bucket": (None, "pow2")}


def _checked(options):
    """The options of torch.compile; ValueError for what is none of ours."""
    for name, value in (options or {}).items():
        if name not in _OPTIONS:
            raise ValueError(f"the backend \"tpu\" has no option {name!r}; its options are {sorted(_OPTIONS)}")
        if value not in _OPTIONS[name]:
            raise ValueError(f"the option {name!r} of the backend \"tpu\" is one of {_OPTIONS[name]}, not {value!r}")
    return options or {}


def _name_node(error, graph_module):
    """Adds to `error` which node of the graph raised it: its operator, shapes, and line in the user's model."""
    code, trace, line = graph_module.forward.__code__, error.__traceback__, None
    while trace is not None:
        if trace.tb_frame.f_code is code:
            line = trace.tb_lineno
        trace = trace.tb_next
    nodes, number = list(graph_module.graph.nodes), None
    if line is not None:
        number = (graph_module._lineno_map or {}).get(line - graph_module._prologue_start)
    if number is None:
        return
    node = nodes[number]
    shapes = [f"{tuple(value.shape)} {value.dtype}" for argument in node.all_input_nodes
              for value in tree_leaves(argument.meta.get("val")) if isinstance(value, torch.Tensor)]
    note = f"in the compiled graph: {node.format_node()}\n  of {', '.join(shapes) or 'no tensors'}"
    error.add_note(note + (f"\n{node.stack_trace}" if node.stack_trace else ""))


def _backend(options):
    compiler = functools.partial(_compile_graph, buckets=options.get("bucket") is not None)
    return aot_autograd(fw_compiler=compiler, keep_inference_input_mutations=True)


def tpu(graph_module, example_inputs, *, options=None, **kwargs):
    """The Dynamo backend "tpu".

    `options={"bucket": "pow2"}`: with sizes that change (`dynamic=True`), the program of a power of two serves all
    sizes up to it, padded and masked, however often one of them comes. Without it a size that comes often gets a
    program of its own. Raises ValueError for other options.
    """
    # Core registers an interface of its own for "tpu" on first use; ours must come after it.
    list(device_interface.get_registered_device_interfaces())
    device_interface.register_interface_for_device("tpu", TpuInterface)
    return _backend(_checked(options))(graph_module, example_inputs)


def _is_on_tpu(graph_module, example_inputs) -> bool:
    values = [*example_inputs, *(node.meta.get("example_value") for node in graph_module.graph.nodes)]
    return any(isinstance(value, torch.Tensor) and value.device.type == "tpu" for value in values)


def default(graph_module, example_inputs, mode=None, options=None, **kwargs):
    """torch.compile without a backend: graphs on tpu are ours, all others Inductor's."""
    if _is_on_tpu(graph_module, example_inputs):
        return tpu(graph_module, example_inputs, options=options)
    inductor = torch._TorchCompileInductorWrapper(mode, options, kwargs.get("dynamic"))
    return inductor(graph_module, example_inputs)

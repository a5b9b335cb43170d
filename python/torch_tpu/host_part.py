"""Graphs that compute numbers on the CPU for tensors on the device: an optimizer's step counts and rates.

Such a graph is split in two. The host part runs as it is; the numbers that the device part needs are sent in one
tensor per dtype, so that the device part only computes on the device and can be recorded.
"""

import operator

import torch
from torch import fx
from torch.utils._pytree import tree_leaves


def _tensors(node):
    return [value for value in tree_leaves(node.meta.get("val")) if isinstance(value, torch.Tensor)]


def is_on_host(node):
    """Whether all that a node gives are tensors on the CPU."""
    tensors = _tensors(node)
    return bool(tensors) and all(tensor.device.type == "cpu" for tensor in tensors)


def _is_write(node):
    return node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload) \
        and node.target._schema.is_mutable


def _sent_numbers(nodes, host):
    """The numbers of the host part that the device part uses, or None where it uses more than single numbers."""
    sent = {}
    for node in nodes:
        if node in host or node.op in ("placeholder", "output"):
            continue
        for source in node.all_input_nodes:
            if source not in host:
                continue
            values = _tensors(source)
            if len(values) != 1 or values[0].ndim > 0:
                return None
            sent.setdefault(values[0].dtype, {})[source] = None
    return {dtype: list(sources) for dtype, sources in sent.items()}


def _host_graph(placeholders, computed, sent, results):
    """A graph that gives the sent numbers, packed by dtype, then `results`."""
    graph, copies = fx.Graph(), {}
    for node in [*placeholders, *(node for node in computed if not _is_write(node))]:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    packed = [graph.call_function(torch.stack, ([copies[node] for node in nodes],)) for nodes in sent.values()]
    for node in filter(_is_write, computed):
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output((packed, [copies[node] for node in results]))
    return graph


def _device_graph(placeholders, computed, sent, results):
    """A graph on the device arguments and the packed numbers that gives `results`."""
    graph, copies = fx.Graph(), {}
    for node in placeholders:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    packed = [graph.placeholder(f"packed_{i}") for i in range(len(sent))]
    for pack, nodes in zip(packed, sent.values()):
        numbers = graph.call_function(torch.ops.aten.unbind.int, (pack,))
        for i, node in enumerate(nodes):
            copies[node] = graph.call_function(operator.getitem, (numbers, i))
    for node in computed:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(tuple(copies[node] for node in results))
    return graph


class Split:
    """The parts of a graph: `host(*host_arguments)` gives (packed numbers, results), the graph module `device` of
    (*arguments, *packed) results; the rest tells how to put arguments and results together."""

    def __init__(self, graph_module, host_nodes, sent):
        nodes = list(graph_module.graph.nodes)
        placeholders = [node for node in nodes if node.op == "placeholder"]
        computed = [node for node in nodes if node.op == "call_function"]
        self.on_host = [node in host_nodes for node in placeholders]
        returned, = nodes[-1].args
        self.results = []  # (whether the host gave it, its number there), or a constant
        host_results, device_results = [], []
        for value in returned:
            if not isinstance(value, fx.Node):
                self.results.append(value)
                continue
            part = host_results if value in host_nodes else device_results
            self.results.append((value in host_nodes, len(part)))
            part.append(value)
        self.device_of_numbers = next((tensor.device for node in computed if node not in host_nodes
                                       for tensor in _tensors(node)), None)
        self.host = fx.GraphModule(graph_module, _host_graph(
            [node for node in placeholders if node in host_nodes], [node for node in computed if node in host_nodes],
            sent, host_results)).forward
        self.device = fx.GraphModule(graph_module, _device_graph(
            [node for node in placeholders if node not in host_nodes],
            [node for node in computed if node not in host_nodes], sent, device_results))

    def run(self, device, args):
        """The graph's results; `device` is what takes the list of the device part's arguments."""
        packed, host_results = self.host(*[arg for arg, on_host in zip(args, self.on_host) if on_host])
        device_args = [arg for arg, on_host in zip(args, self.on_host) if not on_host]
        args.clear()
        device_args.extend(numbers.to(self.device_of_numbers) for numbers in packed)
        results = host_results, device(device_args)
        return [results[not place[0]][place[1]] if isinstance(place, tuple) else place for place in self.results]


def split(graph_module):
    """The Split of a graph, or None where there is none: no host part, one that is all of the graph, reads the device's
    results, or gives it more than single numbers."""
    nodes = list(graph_module.graph.nodes)
    if any(node.op not in ("placeholder", "call_function", "output") for node in nodes):
        return None
    host = {node for node in nodes if node.op != "output" and is_on_host(node)}
    computed = {node for node in nodes if node.op == "call_function"}
    if not host or computed <= host or any(source not in host for node in host for source in node.all_input_nodes):
        return None
    sent = _sent_numbers(nodes, host)
    return Split(graph_module, host, sent) if sent is not None else None

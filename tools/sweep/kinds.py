"""The ways in which a sample of an operator is run on both devices and compared.

Every kind is a function of (operator, dtype, how many samples) that yields (outcome, problem): outcome is "refused"
(the CPU does not run it: not executed), "equal", "reasoned" (the problem is a fact that explains the difference) or
"failing".
"""
import contextlib
import itertools

import torch
from torch.testing._internal import common_methods_invocations
from torch.utils._pytree import tree_flatten, tree_map

from .judge import difference, in_double, nearest, rounded, tolerances
from .ties import STABLE
from .transfer import DEVICE, arguments_on, tensors_in, to_cpu
from .verdict import agree, judgement, outcome_of, refusal, require_placed, sentence, strict_mode

DOUBLES = {torch.float64, torch.complex128}
UNINITIALISED = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}
CROSSES_DEVICES = {"to", "cpu"}  # their results are where they were asked to be


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


def gradients_of(outputs, inputs):
    """The gradients by `inputs` of outputs, with the cotangents of weights_for()."""
    pairs = [(t, w.to(t.device)) for t, w in zip(outputs, weights_for(outputs)) if w is not None]
    if not pairs or not inputs:
        return []
    outputs, weights = zip(*pairs)
    return list(torch.autograd.grad(outputs, inputs, weights, allow_unused=True))


def names_device(arguments):
    """Whether arguments say where the results are to be: factories make them on the CPU without."""
    return any(isinstance(leaf, (torch.Tensor, torch.device)) for leaf in tree_flatten(arguments)[0])


def evaluate(op, sample, device, backward, seed=0, function=None):
    """(the outputs, the gradients) of a sample, on the CPU; of another function of the same arguments if given."""
    arguments = arguments_on(device, sample)
    with seeded(seed):
        result = (function or op)(arguments[0], *arguments[1], **arguments[2])
    # The database's way to make results unique: eigenvectors, for one, have no sign.
    result = sample.output_process_fn_grad(result)
    gradients = []
    if backward:
        gradients = gradients_of(tensors_in(result), [t for t in tensors_in(arguments) if t.requires_grad])
    if names_device(arguments) and op.name not in CROSSES_DEVICES:
        require_placed(tensors_in((result, gradients)), device)
    return to_cpu((result, gradients))


def is_random(op, sample):
    """Whether results depend on the seed, so that only shapes and dtypes can be compared."""
    first, *others = (evaluate(op, sample, "cpu", False, seed)[0] for seed in range(8))
    return any(difference(first, other) for other in others)


def in_double_precision(op, sample, dtype, backward):
    """evaluate() on the CPU, with doubles in the places of smaller numbers and of what becomes of integers."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        return evaluate(op, in_double(sample, dtype), "cpu", backward)
    finally:
        torch.set_default_dtype(default)


def compare(op, sample, dtype, backward, function=None):
    """(outcome, problem) of one sample, forward and backward; on our device of another function if given."""
    try:
        expected = evaluate(op, sample, "cpu", backward)
    except Exception:  # noqa: BLE001  the CPU's refusal is not our subject
        return "refused", ""
    try:
        actual = evaluate(op, sample, DEVICE, backward, function=function)
    except Exception as error:  # noqa: BLE001  any exception is a finding
        return "failing", sentence(error)
    asked = tolerances(op, dtype)
    values = op.name not in UNINITIALISED
    found = difference(expected, actual, asked, values)
    if found and values and is_random(op, sample):
        values = False
        found = difference(expected, actual, asked, values)
    if found and values and dtype not in DOUBLES:
        judged = judgement(expected, actual, asked, dtype,
                           in_double=lambda: in_double_precision(op, sample, dtype, backward),
                           in_strict_mode=lambda: evaluate(op, sample, DEVICE, backward, function=function))
        if judged:
            return judged
    if found and values and op.name in STABLE:
        with contextlib.suppress(Exception):  # 0-dim tensors have no order
            if not difference(evaluate(op, sample, "cpu", backward, function=STABLE[op.name]), actual, asked):
                return "equal", ""
    if not found:
        return "equal", ""
    forward = difference(expected[0], actual[0], asked, values)
    return "failing", forward or "gradient: " + found


# --- kinds --------------------------------------------------------------------------------------------------------


def samples_of(op, dtype, count, backward=False):
    return itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=backward), count)


def has_gradient(op, dtype):
    return op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")


def plain(op, dtype, count, backward=True):
    """Forward, and backward where the operator has a gradient."""
    backward = backward and has_gradient(op, dtype)
    for sample in samples_of(op, dtype, count, backward):
        yield compare(op, sample, dtype, backward)


def forward(op, dtype, count):
    """Forward only."""
    return plain(op, dtype, count, backward=False)


def noncontiguous(op, dtype, count):
    """plain, with arguments that are not contiguous."""
    backward = has_gradient(op, dtype)
    for sample in samples_of(op, dtype, count, backward):
        yield compare(op, sample.noncontiguous(), dtype, backward)


def agreement(op, sample, dtype, call):
    """(outcome, problem) of call(op, sample, device) on both devices; in shapes and dtypes only where results are
    random, element by element the CPU's or those of double precision."""
    on_cpu = outcome_of(lambda: call(op, sample, "cpu"))
    on_device = outcome_of(lambda: call(op, sample, DEVICE))
    asked = tolerances(op, dtype)
    outcome, problem = agree(on_cpu, on_device, asked, op.name not in UNINITIALISED)
    if outcome == "equal" or on_cpu[0] == "error" or on_device[0] == "error":
        return outcome, problem
    if is_random(op, sample):
        return agree(on_cpu, on_device, asked, values=False)
    judges = []
    with contextlib.suppress(Exception):  # not every operator takes doubles
        judged = rounded(to_cpu(call(op, in_double(sample, dtype), "cpu")), on_cpu[1])
        judges.append(nearest(on_cpu[1], judged, on_device[1], asked))
    with contextlib.suppress(Exception):  # 0-dim tensors have no order
        stable = evaluate(op, sample, "cpu", False, function=STABLE[op.name])[0]
        judges.append(rounded(stable, on_cpu[1]))
    found = [agree(("value", expected), on_device, asked) for expected in judges]
    return ("equal", "") if ("equal", "") in found else (outcome, problem)


def synchronized(result):
    """The result, once errors of the execution had their chance."""
    torch.tpu.synchronize()
    return result


def call_with_out(op, sample, device, make_out):
    """The sample with out= tensors that `make_out` makes of the results: those tensors, as precise as the results."""
    arguments = arguments_on(device, sample)
    with seeded(0):
        result = op(arguments[0], *arguments[1], **arguments[2])
    out = tree_map(lambda t: make_out(t) if isinstance(t, torch.Tensor) else t, result)
    if isinstance(out, list):
        out = tuple(out)
    before = [(t.shape, t.stride()) for t in tensors_in(out)]
    arguments = arguments_on(device, sample)
    with seeded(0):
        returned = op(arguments[0], *arguments[1], **arguments[2], out=out)
    for mine, theirs, (shape, stride) in zip(tensors_in(returned), tensors_in(out), before):
        if mine is not theirs:
            raise AssertionError("what is returned is not the out= tensor")
        if mine.shape == shape and mine.stride() != stride:
            raise AssertionError("the strides of the out= tensor changed")
    if device == DEVICE:
        synchronized(None)
    # The database's way to make results unique, of a tuple of the operator's own type.
    out = sample.output_process_fn_grad(returned)
    result = sample.output_process_fn_grad(result)
    wide = any(t.dtype == torch.float64 for t in tensors_in(out))
    return rounded(out, result) if wide else out


OUTS = {
    "of the shape": lambda t: torch.full_like(t, 1),
    "transposed": lambda t: torch.full_like(t, 1).mT.contiguous().mT if t.dim() > 1 else torch.full_like(t, 1),
    "empty": lambda t: t.new_empty((0,)),
    "of another shape": lambda t: t.new_ones((3, *t.shape)),
    "of integers": lambda t: torch.ones_like(t, dtype=torch.int32),
    "of doubles": lambda t: torch.ones_like(t, dtype=torch.float64),
}


def out(op, dtype, count):
    """With out=: the right shape, strides of its own, empty, another shape, a smaller and a larger dtype."""
    if not op.supports_out:
        return
    for sample in samples_of(op, dtype, count):
        if outcome_of(lambda: call_with_out(op, sample, "cpu", OUTS["of the shape"]))[0] == "error":
            yield "refused", ""
            continue
        for name, make_out in OUTS.items():
            def call(function, sample, device, make_out=make_out):
                return call_with_out(function, sample, device, make_out)

            outcome, problem = agreement(op, sample, dtype, call)
            yield outcome, problem and f"out= {name}: {problem}"


def call_in_place(op, inplace, sample, device):
    input, args, kwargs = arguments_on(device, sample)  # noqa: A001
    with seeded(0):
        returned = inplace(input, *args, **kwargs)
    if returned is not input and not isinstance(input, (list, tuple)):
        raise AssertionError("what is returned is not the tensor itself")
    if device == DEVICE:
        synchronized(None)
    return input


def inplace(op, dtype, count):
    """The in-place form: the same results, or an exception of the same type."""
    variant = op.get_inplace()
    if variant is None:
        return
    for sample in samples_of(op, dtype, count):
        yield agreement(op, sample, dtype, lambda _, sample, device: call_in_place(op, variant, sample, device))


def errors(op, dtype, count):
    """The database's wrong calls: exceptions of the type that the CPU raises. They have dtypes of their own."""
    del dtype
    if op.error_inputs_func is None:
        return
    for wrong in itertools.islice(op.error_inputs("cpu"), count):
        def call(device, sample=wrong.sample_input):
            input, args, kwargs = arguments_on(device, sample)  # noqa: A001
            result = op(input, *args, **kwargs)
            return synchronized(result) if device == DEVICE else result

        yield refusal(call)


def gradcheck(op, dtype, count):
    """Numerical against analytical gradients, on our device, in float64."""
    if not has_gradient(op, dtype) or op.name in UNINITIALISED:
        return
    for sample in samples_of(op, dtype, count, True):
        input, args, kwargs = arguments_on(DEVICE, sample)  # noqa: A001

        def function(*tensors, args=args, kwargs=kwargs):
            with seeded(0):
                return sample.output_process_fn_grad(op(*tensors, *args, **kwargs))

        if not isinstance(input, torch.Tensor) or not input.requires_grad or input.numel() > 1000:
            yield "refused", ""
            continue
        try:
            with strict_mode():  # what a program rounds depends on its other operators; gradcheck wants equal bits
                torch.autograd.gradcheck(function, (input,), nondet_tol=op.gradcheck_nondet_tol, fast_mode=True)
            yield "equal", ""
        except Exception as error:  # noqa: BLE001
            with contextlib.suppress(Exception):
                on_cpu, cpu_args, cpu_kwargs = arguments_on("cpu", sample)
                torch.autograd.gradcheck(lambda x: function(x, args=cpu_args, kwargs=cpu_kwargs), (on_cpu,),
                                         nondet_tol=op.gradcheck_nondet_tol, fast_mode=True)
                yield "failing", sentence(error)
                continue
            yield "refused", ""


def whole_graph(op, backend):
    """The operator as one compiled graph."""
    torch.compiler.reset()

    def call(*args, **kwargs):
        return op.op(*args, **kwargs)

    return torch.compile(call, backend=backend, fullgraph=True, dynamic=False)


@contextlib.contextmanager
def seeded_outside():
    """The database's random operators seed inside, which Dynamo does not trace; here they do not."""
    original = common_methods_invocations.wrapper_set_seed
    common_methods_invocations.wrapper_set_seed = lambda function, *args, **kwargs: function(*args, **kwargs)
    try:
        yield
    finally:
        common_methods_invocations.wrapper_set_seed = original


def compiled(op, dtype, count):
    """plain, under torch.compile(fullgraph=True). What Dynamo cannot trace on the CPU either is refused."""
    backward = has_gradient(op, dtype)
    for sample in samples_of(op, dtype, count, backward):
        with seeded_outside():
            outcome, problem = compare(op, sample, dtype, backward, whole_graph(op, "tpu"))
            if outcome == "failing":
                traced = outcome_of(
                    lambda: evaluate(op, sample, "cpu", backward, function=whole_graph(op, "aot_eager")))
                if traced[0] == "error":
                    outcome, problem = "refused", ""
        yield outcome, problem


KINDS = {f.__name__: f for f in (plain, forward, noncontiguous, out, inplace, errors, gradcheck, compiled)}

"""When two results are equal: torch.testing's limits, or the wider ones that an OpInfo asks for."""
import torch
from torch.testing._comparison import default_tolerances
from torch.testing._internal.common_device_type import precisionOverride, toleranceOverride
from torch.utils._pytree import tree_flatten, tree_unflatten


def tolerances(info, dtype):
    """(rtol, atol) that an OpInfo or ModuleInfo asks for, of inputs of this dtype; (0, 0) where it asks for nothing."""
    rtol = atol = 0.0
    for decorator in info.decorators or ():
        if getattr(decorator, "device_type", None) not in (None, "cpu", "cuda"):
            continue
        for override in getattr(decorator, "decorators", [decorator]):
            if isinstance(override, toleranceOverride) and dtype in override.d:
                rtol, atol = max(rtol, override.d[dtype].rtol), max(atol, override.d[dtype].atol)
            elif isinstance(override, precisionOverride) and dtype in override.d:
                atol = max(atol, override.d[dtype])
    return rtol, atol


def limits(dtype, asked):
    """(rtol, atol) for results of this dtype."""
    rtol, atol = default_tolerances(dtype)
    return (max(rtol, asked[0]), max(atol, asked[1])) if rtol > 0 else (rtol, atol)


def tensor_difference(a, b, asked, values):
    """What differs between tensor `a` and what should equal it, or ''."""
    if not isinstance(b, torch.Tensor):
        return f"{b!r} instead of a tensor"
    if a.dtype != b.dtype or a.shape != b.shape:
        return f"{b.dtype}{list(b.shape)} instead of {a.dtype}{list(a.shape)}"
    if not values:
        return ""
    rtol, atol = limits(a.dtype, asked)
    try:
        torch.testing.assert_close(b, a, rtol=rtol, atol=atol, equal_nan=True)
    except AssertionError as error:
        return " ".join(str(error).split())[:300]
    return ""


def difference(expected, actual, asked=(0, 0), values=True):
    """What differs between two trees of results, or ''; without `values`, in shapes and dtypes only."""
    expected, actual = tree_flatten(expected)[0], tree_flatten(actual)[0]
    if len(expected) != len(actual):
        return f"{len(actual)} results instead of {len(expected)}"
    for a, b in zip(expected, actual):
        if isinstance(a, torch.Tensor):
            if found := tensor_difference(a, b, asked, values):
                return found
        elif a != b and values:
            return f"{b!r} instead of {a!r}"
    return ""


WIDER = {torch.bfloat16: torch.float64, torch.float16: torch.float64, torch.float32: torch.float64,
         torch.complex64: torch.complex128}


def widened(value, dtype):
    """A tensor of `dtype`, or of the real numbers of a complex one, in double precision; other values as they are."""
    if isinstance(value, torch.Tensor) and value.dtype in WIDER and value.dtype in (dtype, dtype.to_real()):
        return value.detach().to(WIDER[value.dtype]).requires_grad_(value.requires_grad)
    return value


def in_double(sample, dtype):
    """The sample with tensors of `dtype` in double precision: the judge where the CPU's result and ours differ."""
    return sample.transform(lambda value: widened(value, dtype))


def rounded(tree, like):
    """A tree with its tensors rounded to the dtypes of those of the tree `like`."""
    leaves, structure = tree_flatten(tree)
    others = tree_flatten(like)[0]
    pairs = zip(leaves, others, strict=True)
    return tree_unflatten([a.to(b.dtype) if isinstance(a, torch.Tensor) else a for a, b in pairs], structure)


def isclose(a, b, asked, error=0.0):
    """Which elements of `a` equal those of `b`, within the limits and an error on top of them."""
    rtol, atol = limits(a.dtype, asked)
    return torch.isclose(a, b, rtol=rtol, atol=atol + error, equal_nan=True)


def largest_error(a, b):
    """The largest finite difference between two tensors."""
    errors = (a - b).abs().flatten().to(torch.float64)
    return errors[errors.isfinite()].max().item() if errors.isfinite().any() else 0.0


def nearest(expected, judged, actual, asked, as_accurate=False):
    """The tree `expected`, with those elements of `judged` that equal the ones of `actual` in their places;
    `as_accurate`: with those of `actual` that are no farther from `judged` than twice the worst of `expected` and
    the limits."""

    def choose(a, b, c):
        comparable = all(isinstance(t, torch.Tensor) and t.is_floating_point() | t.is_complex() for t in (a, b, c))
        if not comparable or not a.dtype == b.dtype == c.dtype or not a.shape == b.shape == c.shape:
            return a
        if a.layout == b.layout == c.layout == torch.sparse_csr:
            if not a.values().shape == b.values().shape == c.values().shape:
                return a
            values = choose(a.values(), b.values(), c.values())
            return torch.sparse_csr_tensor(a.crow_indices(), a.col_indices(), values, a.shape)
        if as_accurate:
            return torch.where(isclose(c, b, asked, 2 * largest_error(a, b)), c, a)
        return torch.where(isclose(c, b, asked), b, a)

    leaves, structure = tree_flatten(expected)
    triples = zip(leaves, tree_flatten(judged)[0], tree_flatten(actual)[0], strict=True)
    return tree_unflatten([choose(*triple) for triple in triples], structure)

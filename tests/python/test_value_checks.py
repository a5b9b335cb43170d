"""Calls that are wrong by the values of their tensors: the exception of the CPU, and a device that works on."""
import re

import pytest
import torch
from torch import nn

F = nn.functional


class Maker:
    """Short forms for the tensors of one device."""

    def __init__(self, device):
        self.device = device

    def index(self, *numbers, dtype=torch.long):
        return torch.tensor(numbers, dtype=dtype, device=self.device)

    def floats(self, *numbers):
        return torch.tensor(numbers, dtype=torch.float, device=self.device)

    def x(self, *sizes, dtype=torch.float):
        sizes = torch.Size(sizes or (3, 4))
        return torch.arange(1, 1 + sizes.numel(), device=self.device).reshape(sizes).to(dtype)

    def flags(self, *flags):
        return torch.tensor(flags, device=self.device)


INF, NAN = float("inf"), float("nan")

# The call, and what both messages have in common.
CASES = {
    "index": (lambda t: t.x()[t.index(5)], "index 5 is out of bounds"),
    "index from the end": (lambda t: t.x()[t.index(-4)], "index -4 is out of bounds"),
    "index pairs": (lambda t: t.x()[t.index(0, 1), t.index(1, 7)], "index 7 is out of bounds"),
    "index apart": (lambda t: t.x(2, 3, 4)[t.index(0, 1), :, t.index(1, 7)], "index 7 is out of bounds"),
    "index int32": (lambda t: t.x()[:, t.index(9, dtype=torch.int32)], "index 9 is out of bounds"),
    "index of nothing": (lambda t: t.x(0, 3)[t.index(0)], "out of bounds for dimension with size 0"),
    "index in vain": (lambda t: t.x(3, 0)[t.index(5)], None),
    "index_put": (lambda t: t.x().index_put_((t.index(5),), t.floats(1)), "index 5 is out of bounds"),
    "index_put accumulate": (lambda t: t.x().index_put((t.index(-5),), t.floats(1), accumulate=True),
                             "index -5 is out of bounds"),
    "setitem": (lambda t: t.x().__setitem__(t.index(3), 1.0), "index 3 is out of bounds"),
    "gather": (lambda t: t.x().gather(1, t.index(0, 5)[None]), "index 5 is out of bounds for dimension 1 with size 4"),
    "gather from the end": (lambda t: t.x().gather(1, t.index(-1)[None]), "index -1 is out of bounds"),
    "gather from nothing": (lambda t: t.x(0).gather(0, t.index(0)), "index 0 is out of bounds"),
    "scatter": (lambda t: t.x().scatter(1, t.index(4)[None], t.x(1, 1)), "index 4 is out of bounds for dimension 1"),
    "scatter value": (lambda t: t.x().scatter_(0, t.index(4)[None], 2.0), "index 4 is out of bounds for dimension 0"),
    "scatter reduce": (lambda t: t.x().scatter(1, t.index(-1)[None], t.x(1, 1), reduce="add"), "index -1 is out of"),
    "scatter value reduce": (lambda t: t.x().scatter(1, t.index(4)[None], 2.0, reduce="multiply"), "index 4 is out of"),
    "scatter_add": (lambda t: t.x().scatter_add(1, t.index(4)[None], t.x(1, 1)), "index 4 is out of bounds"),
    "scatter_add rank 1": (lambda t: t.x(3).scatter_add(0, t.index(4), t.x(1)), "index 4 is out of bounds"),
    "scatter_reduce": (lambda t: t.x().scatter_reduce(1, t.index(4)[None], t.x(1, 1), "amax"), "index 4 is out of"),
    "take": (lambda t: t.x().take(t.index(12)), "tried to access index 12 on a tensor of 12 elements"),
    "take from the end": (lambda t: t.x().take(t.index(-13)), "tried to access index -13 on a tensor of 12 elements"),
    "put": (lambda t: t.x().put_(t.index(12), t.x(1)), "tried to access index 12 on a tensor of 12 elements"),
    "put accumulate": (lambda t: t.x().put(t.index(-13), t.x(1), accumulate=True), "tried to access index -13"),
    "index_select": (lambda t: t.x().index_select(1, t.index(4)), "INDICES element is out of DATA bounds, id=4"),
    "index_select rows": (lambda t: t.x().index_select(0, t.index(-1)), "index out of range in self"),
    "index_select int": (lambda t: t.x(dtype=torch.int).index_select(1, t.index(4)), "id=4 axis_dim=4"),
    "index_select rank 1": (lambda t: t.x(3).index_select(0, t.index(4)), "index out of range in self"),
    "index_add": (lambda t: t.x().index_add(0, t.index(3), t.x(1, 4)), "index 3 is out of bounds"),
    "index_add rank 1": (lambda t: t.x(3).index_add(0, t.index(-1), t.x(1)), "index out of range in self"),
    "index_copy": (lambda t: t.x().index_copy(0, t.index(3), t.x(1, 4)), "index_copy_(): index 3 is out of bounds"),
    "index_fill": (lambda t: t.x().index_fill(0, t.index(-4), 1.0), "index -4 is out of bounds"),
    "index_reduce": (lambda t: t.x().index_reduce(0, t.index(3), t.x(1, 4), "amax"), "index out of range in self"),
    "embedding": (lambda t: F.embedding(t.index(3), t.x()), "index out of range in self"),
    "embedding renorm": (lambda t: F.embedding(t.index(3), t.x(), max_norm=1.0), "out of range"),
    "embedding_bag": (lambda t: F.embedding_bag(t.index(0, 3), t.x(), t.index(0)), ""),
    "embedding_bag max": (lambda t: F.embedding_bag(t.index(0, 3), t.x(), t.index(0), mode="max"), "found idx to be 3"),
    "embedding_bag offsets": (lambda t: F.embedding_bag(t.index(0, 1), t.x(), t.index(0, 4)), "offsets[-1] of 4"),
    "embedding_bag negative": (lambda t: F.embedding_bag(t.index(0, 1), t.x(), t.index(0, -1)), "out of range in self"),
    "embedding_bag offset past the end": (lambda t: F.embedding_bag(t.index(0, 1), t.x(), t.index(0, 4, 1), mode="max"),
                                          "index out of range in self"),
    "embedding_bag falling offsets": (lambda t: F.embedding_bag(t.index(0, 1, 2), t.x(), t.index(0, 2, 1)), "Expected"),
    "embedding_bag start": (lambda t: F.embedding_bag(t.index(0, 1), t.x(), t.index(1)), "offsets[0] has to be 0"),
    "cross_entropy": (lambda t: F.cross_entropy(t.x(), t.index(0, 1, 5)), "Target 5 is out of bounds."),
    "cross_entropy none": (lambda t: F.cross_entropy(t.x(), t.index(0, 1, -3), reduction="none"), "Target -3 is out"),
    "cross_entropy smooth": (lambda t: F.cross_entropy(t.x(), t.index(0, 1, 5), label_smoothing=0.1), "Target 5 is out"),
    "cross_entropy ignore": (lambda t: F.cross_entropy(t.x(), t.index(0, 1, 5), ignore_index=5), None),
    "nll_loss": (lambda t: F.nll_loss(t.x(4), t.index(5)[0]), "Target 5 is out of bounds."),
    "nll_loss2d": (lambda t: F.nll_loss(t.x(1, 2, 2, 2), t.index(0, 1, 2, 1).view(1, 2, 2)), "Target 2 is out of"),
    "one_hot": (lambda t: F.one_hot(t.index(0, 5), 3), ""),
    "one_hot negative": (lambda t: F.one_hot(t.index(0, -1), 3), ""),
    "multi_margin_loss": (lambda t: F.multi_margin_loss(t.x(), t.index(0, 1, 4)), "target out of range"),
    "multilabel_margin_loss": (lambda t: F.multilabel_margin_loss(t.x(), t.index(*[4] * 12).view(3, 4)),
                               "'target' is out of range"),
    "binary_cross_entropy": (lambda t: F.binary_cross_entropy(t.floats(1.5), t.floats(1)), "all elements of input"),
    "binary_cross_entropy nan": (lambda t: F.binary_cross_entropy(t.floats(NAN), t.floats(1)), "all elements of input"),
    "binary_cross_entropy target": (lambda t: F.binary_cross_entropy(t.floats(0.5), t.floats(2)),
                                    "all elements of target should be between 0 and 1"),
    "multinomial": (lambda t: torch.multinomial(t.floats(1, -1), 1), "contains either `inf`, `nan` or element < 0"),
    "multinomial inf": (lambda t: torch.multinomial(t.floats(1, INF), 1), "contains either `inf`, `nan` or element < 0"),
    "multinomial nan": (lambda t: torch.multinomial(t.floats(1, NAN), 1), "contains either `inf`, `nan` or element < 0"),
    "multinomial zero": (lambda t: torch.multinomial(t.floats(0, 0), 1), "sum of probabilities <= 0"),
    "multinomial again": (lambda t: torch.multinomial(t.floats(0, 0), 2, replacement=True), "sum of probabilities <= 0"),
    "bernoulli": (lambda t: torch.bernoulli(t.floats(0.5, 2)), "Expected p_in >= 0 && p_in <= 1 to be true"),
    "bernoulli nan": (lambda t: torch.bernoulli(t.floats(NAN)), "Expected p_in >= 0 && p_in <= 1 to be true"),
    "bernoulli_": (lambda t: t.x(2).bernoulli_(t.floats(0.5, -1)), "Expected p_in >= 0 && p_in <= 1 to be true"),
    "bernoulli_ number": (lambda t: t.x(2).bernoulli_(2.0), "bernoulli_ expects p to be in [0, 1]"),
    "normal": (lambda t: torch.normal(t.x(2), t.floats(1, -1)), "normal expects all elements of std >= 0.0"),
    "normal nan": (lambda t: torch.normal(0.0, t.floats(1, NAN)), "normal expects all elements of std >= 0.0"),
    "normal_": (lambda t: t.x(2).normal_(0, -1), "normal expects std >= 0.0"),
    "uniform_": (lambda t: t.x(2).uniform_(2, 1), "uniform_ expects to return a [from, to) range"),
    "uniform_ too wide": (lambda t: t.x(2).uniform_(-3e38, 3e38), "uniform_ expects to-from <="),
    "random_": (lambda t: t.x(2, dtype=torch.uint8).random_(0, 1000), "to - 1 is out of bounds for"),
    "poisson nan": (lambda t: torch.poisson(t.floats(NAN)), "expected rate to be non-negative"),
    "poisson": (lambda t: torch.poisson(t.floats(-1)), "expected rate to be non-negative"),
    "dropout": (lambda t: torch.native_dropout(t.x(2), 1.5, True), "bernoulli_ expects p to be in [0, 1]"),
    "max_unpool1d": (lambda t: F.max_unpool1d(t.x(1, 2), t.index(0, 9)[None], 2), "Found an invalid max index: 9"),
    "max_unpool2d": (lambda t: F.max_unpool2d(t.x(1, 1, 2, 2), t.index(0, 1, 2, -1).view(1, 1, 2, 2), 2),
                     "Found an invalid max index: -1 (output volumes are of size 4x4)"),
    "max_unpool3d": (lambda t: F.max_unpool3d(t.x(1, 1, 1, 2, 2), t.index(0, 1, 2, 90).view(1, 1, 1, 2, 2), 2),
                     "Found an invalid max index: 90 (output volumes are of size 2x4x4)"),
    "bincount": (lambda t: torch.bincount(t.index(1, -1)), "bincount only supports 1-d non-negative"),
    "repeat_interleave": (lambda t: t.x(2).repeat_interleave(t.index(1, -1)), "repeats can not be negative"),
    "repeat_interleave size": (lambda t: torch.repeat_interleave(t.index(1, 2), output_size=4),
                               "allocated size does not match required size"),
    "ctc_loss": (lambda t: F.ctc_loss(t.x(5, 1, 3).log_softmax(2), t.index(1, 2)[None], t.index(6), t.index(2)),
                 "Expected input_lengths to have value at most 5, but got value 6"),
    "floor_divide": (lambda t: t.index(1, 2) // t.index(1, 0), "ZeroDivisionError"),
    "floor_divide number": (lambda t: t.index(1, 2) // 0, "ZeroDivisionError"),
    "floor_divide nothing": (lambda t: t.index() // 0, None),
    "floor_divide bool": (lambda t: t.index(1, 2) // t.flags(True, False), "ZeroDivisionError"),
    "floor_divide floats": (lambda t: t.x(2) // t.floats(1, 0), None),
    "div trunc": (lambda t: torch.div(t.index(1, 2), t.index(1, 0), rounding_mode="trunc"), "ZeroDivisionError"),
    "div": (lambda t: t.index(1, 2) / t.index(1, 0), None),
    "remainder": (lambda t: t.index(1, 2) % t.index(1, 0), "ZeroDivisionError"),
    "remainder in place": (lambda t: t.index(1, 2).remainder_(0), "ZeroDivisionError"),
    "remainder of a number": (lambda t: torch.remainder(3, t.index(1, 0)), "ZeroDivisionError"),
    "remainder bool": (lambda t: t.flags(True) % t.flags(False), '"remainder_cpu" not implemented for \'Bool\''),
    "fmod": (lambda t: torch.fmod(t.index(1, 2, dtype=torch.uint8), 0), "ZeroDivisionError"),
    "pow": (lambda t: t.index(1, 2)**-1, "Integers to negative integer powers are not allowed."),
    "pow -5": (lambda t: t.index(1, 2)**-5, "Integers to negative integer powers are not allowed."),
    "pow bool": (lambda t: t.flags(True, False)**-1, "Integers to negative integer powers are not allowed."),
    "pow tensor": (lambda t: t.index(1, 2)**t.index(1, -1), None),
    "pow float": (lambda t: t.index(1, 2)**-1.5, None),
    "searchsorted": (lambda t: torch.searchsorted(t.index(3, 1, 2), t.index(2), sorter=t.index(0, 1, 9)),
                     "torch.searchsorted(): sorter index out of range"),
    "histc nan": (lambda t: torch.histc(t.floats(1, NAN)), "is not finite"),
    "histc infinite range": (lambda t: torch.histc(t.x(2), 4, 0, INF), "is not finite"),
    "histc order": (lambda t: torch.histc(t.x(2), 4, 3, 1), "max must be larger than min"),
    "histogram": (lambda t: torch.histogram(t.floats(1, NAN), 3), "is not finite"),
    "histogram order": (lambda t: torch.histogram(t.x(2), 3, range=(2.0, 1.0)), "min should not exceed max"),
    "histogramdd bins": (lambda t: torch.histogramdd(t.x(3, 2), [3, 0]), "bins must be > 0, but got 0 for dimension 1"),
    "quantile": (lambda t: torch.quantile(t.x(3), t.floats(0.5, 1.5)), "quantile() q values must be in the range"),
    "quantile negative": (lambda t: torch.quantile(t.x(3), t.floats(-0.1)), "q values must be in the range [0, 1]"),
    "quantile nan": (lambda t: torch.quantile(t.x(3), t.floats(NAN), dim=0), "q values must be in the range [0, 1]"),
    "quantile number": (lambda t: torch.quantile(t.x(3), 1.5), "q must be in the range [0, 1] but got 1.5"),
    "quantile out": (lambda t: torch.quantile(t.x(3), t.floats(2), out=t.x(1)), "q values must be in the range [0, 1]"),
    "nanquantile": (lambda t: torch.nanquantile(t.x(3), t.floats(1.5)), "q values must be in the range [0, 1]"),
    "quantile of all": (lambda t: torch.quantile(t.x(3), t.floats(0, 1)), None),
    "bincount weighted": (lambda t: torch.bincount(t.index(1, -1), t.floats(1, 2)), "bincount only supports 1-d"),
    "mvlgamma": (lambda t: torch.mvlgamma(t.floats(3), 0), "p has to be greater than or equal to 1"),
    "assert": (lambda t: torch._assert_async(t.floats(0)), "Expected Tensor with single nonzero value, but got zero"),
    "assert with words": (lambda t: torch._assert_async(t.flags(False), "not so"), "not so"),
    "assert of two": (lambda t: torch._assert_async(t.floats(1, 1)), "with more than one value is ambiguous"),
    "assert what holds": (lambda t: torch._assert_async(t.floats(2)), None),
    "masked_scatter": (lambda t: t.x().masked_scatter_(t.x() > 2, t.x(3)),
                       "Number of elements of source < number of ones in mask"),
    "mask of another shape": (lambda t: t.x()[t.x(3, 3) > 2], "The shape of the mask [3, 3] at index 1 does not match"),
    "mask of another count": (lambda t: t.x().__setitem__(t.x() > 2, t.x(3)),
                              "value tensor of shape [3] cannot be broadcast to indexing result of shape [10]"),
    "segment_reduce": (lambda t: torch.segment_reduce(t.x(3), "sum", lengths=t.index(1, 1)), "Expected all rows of"),
    "segment_reduce negative": (lambda t: torch.segment_reduce(t.x(3), "sum", lengths=t.index(4, -1)),
                                "lengths contains negative value!"),
    "segment_reduce offsets": (lambda t: torch.segment_reduce(t.x(3), "sum", offsets=t.index(0, 2, 1)),
                               "Expected segment_length >= 0 to be true"),
    "lu_unpack": (lambda t: torch.lu_unpack(t.x(2, 2), t.index(0, 1, dtype=torch.int32)), "pivots passed to lu_unpack"),
    "lu_solve": (lambda t: torch.linalg.lu_solve(t.x(2, 2), t.index(1, 5, dtype=torch.int32), t.x(2, 1)),
                 "Pivots given to lu_solve must all be smaller"),
    "ldl_solve": (lambda t: torch.linalg.ldl_solve(t.x(2, 2), t.index(3, 1, dtype=torch.int32), t.x(2, 1)),
                  "Pivots given to ldl_solve must all satisfy |pivot| <= LD.size(-2). Did you properly"),
    "ldl_solve zero": (lambda t: torch.linalg.ldl_solve(t.x(2, 2), t.index(0, 1, dtype=torch.int32), t.x(2, 1)),
                       "Pivots given to ldl_solve must all satisfy |pivot| >= 1."),
    # The shapes are wrong, and the type is not that of the Meta kernel.
    "index_copy shapes": (lambda t: t.x().index_copy(0, t.index(0, 1), t.x(1, 4)), ""),
    "index_add shapes": (lambda t: t.x().index_add(0, t.index(0, 1), t.x(1, 4)), ""),
    "index shapes": (lambda t: t.x()[t.index(0, 1), t.index(0, 1, 2)], "shape mismatch: indexing tensors could not"),
    "index dtype": (lambda t: t.x()[t.floats(1)], "tensors used as indices must be long, int, byte or bool"),
    "index count": (lambda t: t.x(3)[t.index(0), t.index(0)], "too many indices for tensor of dimension 1"),
    "index_put shapes": (lambda t: t.x().index_put((t.index(0, 1),), t.x(3)), "shape mismatch: value tensor"),
    "index_put dtype": (lambda t: t.x().index_put((t.index(0),), t.index(1)), "source and destination dtypes match"),
    "put count": (lambda t: t.x().put(t.index(0, 1), t.x(1)), "same number of elements"),
    "take of nothing": (lambda t: t.x(0).take(t.index(0)), ""),
}


def outcome(use, device):
    """The exception that the call or the next synchronisation raises, or None."""
    try:
        use(Maker(device))
        if device == "tpu":
            torch.tpu.synchronize()
    except Exception as error:  # noqa: BLE001  it is what is compared
        return error
    return None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_like_the_cpu(name):
    use, words = CASES[name]
    error, expected = outcome(use, "tpu"), outcome(use, "cpu")
    assert type(error) is type(expected), repr(error)
    if expected is None:
        assert words is None
    else:
        assert re.search(re.escape(words), str(expected)) and re.search(re.escape(words), str(error)), str(error)
        assert "INTERNAL ASSERT" not in str(error)
    assert (torch.ones(2, device="tpu") + 1).tolist() == [2, 2]


def test_the_error_comes_with_the_next_read(mode):
    x = torch.arange(3.0, device="tpu")
    if mode == "fused":
        wrong = x[torch.tensor([3], device="tpu")]
        with pytest.raises(IndexError, match="index 3 is out of bounds"):
            wrong.cpu()
    else:
        with pytest.raises(IndexError, match="index 3 is out of bounds"):
            x[torch.tensor([3], device="tpu")]
    assert (x + 1).tolist() == [1, 2, 3]
    torch.tpu.synchronize()


def test_training_goes_on_after_a_bad_target():
    layer = nn.Linear(4, 3).to("tpu")
    x = torch.ones(2, 4, device="tpu")
    with pytest.raises(IndexError, match="Target 3 is out of bounds."):
        F.cross_entropy(layer(x), torch.tensor([0, 3], device="tpu")).backward()
        torch.tpu.synchronize()
    layer.zero_grad()
    F.cross_entropy(layer(x), torch.tensor([0, 2], device="tpu")).backward()
    assert layer.weight.grad.isfinite().all().item()


def aliased(device, use):
    x = torch.arange(16, device=device).view(4, 4) % 4
    return use(x, torch.arange(4, device=device))


# An out= or in-place form whose input is the tensor that it writes.
ALIASED = {
    "gather": lambda x, i: torch.gather(x, 0, x.clone(), out=x),
    "gather by itself": lambda x, i: torch.gather(x, 1, x, out=x),
    "gather by the result": lambda x, i: torch.gather(x.clone(), 1, x, out=x),
    "gather by a part of the result": lambda x, i: torch.gather(x.clone(), 1, x[:3], out=x[1:]),
    "index_select": lambda x, i: torch.index_select(x, 0, i, out=x),
    "take": lambda x, i: torch.take(x, x.clone(), out=x),
    "cat": lambda x, i: torch.cat([x], out=x),
    "scatter into itself": lambda x, i: torch.scatter(x, 0, x.clone(), x.clone(), out=x),
    "scatter from itself": lambda x, i: x.scatter_(0, x.clone(), x),
    "scatter by itself": lambda x, i: x.scatter_(0, x, 1),
    "scatter_add": lambda x, i: x.scatter_add_(0, x.clone(), x),
    "scatter_reduce": lambda x, i: x.scatter_reduce_(0, x.clone(), x, "amax"),
    "index_add": lambda x, i: x.index_add_(0, i, x),
    "index_add into itself": lambda x, i: torch.index_add(x, 0, i, x.clone(), out=x),
    "index_copy": lambda x, i: x.index_copy_(0, i, x),
    "index_fill": lambda x, i: x.index_fill_(0, x[0], 1),
    "index_reduce": lambda x, i: x.index_reduce_(0, i, x, "amax"),
    "put": lambda x, i: x.put_(x.clone(), x),
    "index": lambda x, i: torch.ops.aten.index.Tensor_out(x, [i], out=x),
    "index_put": lambda x, i: x.index_put_((i,), x),
    "index_put by itself": lambda x, i: x.index_put_((x[0],), x.clone()),
    "masked_scatter": lambda x, i: x.masked_scatter_(x > 1, x),
    "nonzero": lambda x, i: torch.nonzero(x, out=x),
    "masked_select": lambda x, i: torch.masked_select(x, x > 1, out=x),
    "kthvalue": lambda x, i: torch.kthvalue(x, 1, out=(x, x.clone())),
    "median": lambda x, i: torch.median(x, 0, out=(x, x.clone())),
    "cross": lambda x, i: torch.cross(x[:3], x[:3], dim=0, out=x[:3]),
    "sort": lambda x, i: torch.sort(x, out=(x, x.clone())),
    "add": lambda x, i: torch.add(x, x, out=x),
    "where": lambda x, i: torch.where(x > 1, x, x, out=x),
    "mm": lambda x, i: torch.mm(x, x.clone(), out=x),
}


@pytest.mark.parametrize("name", ALIASED)
def test_writing_what_is_read(name):
    """Refused where the CPU refuses it."""
    outcomes = []
    for device in ("cpu", "tpu"):
        try:
            aliased(device, ALIASED[name])
            outcomes.append("done")
        except RuntimeError as error:
            outcomes.append("overlap" if "memory" in str(error) else str(error))
    assert outcomes[0] == outcomes[1]

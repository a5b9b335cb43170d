"""Operators whose result sizes depend on values: equal to the CPU, contiguous, and few programs for many sizes."""
import pytest
import torch


def ramp(device):
    return torch.arange(400, device=device)


def below(count, device):
    """A mask with `count` elements set, spread out."""
    return (ramp(device) * 37 % 400) < count


# Each has a result of about `count` rows; the input has one shape.
SIZED = {
    "nonzero": lambda count, device: torch.nonzero(below(count, device)),
    "nonzero of a matrix": lambda count, device: below(count, device).view(20, 20).nonzero(),
    "where": lambda count, device: torch.where(below(count, device).view(20, 20)),
    "argwhere": lambda count, device: torch.argwhere(below(count, device)),
    "masked_select": lambda count, device: ramp(device).masked_select(below(count, device)),
    "mask": lambda count, device: ramp(device)[below(count, device)],
    "mask of rows": lambda count, device: ramp(device)[:, None].expand(400, 3)[below(count, device)],
    "mask of a matrix": lambda count, device: ramp(device).view(20, 20)[below(count, device).view(20, 20)],
    "fill by mask": lambda count, device: ramp(device).index_put((below(count, device),), torch.tensor(5, device=device)),
    "unique": lambda count, device: torch.unique(ramp(device) % count, return_inverse=True, return_counts=True),
    "unique rows": lambda count, device: torch.unique(
        (ramp(device) % count)[:, None].expand(400, 2), dim=0, return_inverse=True, return_counts=True),
    "unique_consecutive": lambda count, device: torch.unique_consecutive(
        ramp(device).clamp(max=count), return_inverse=True, return_counts=True),
    "unique_consecutive rows": lambda count, device: torch.unique_consecutive(
        ramp(device).clamp(max=count).view(200, 2), return_counts=True, dim=0),
    "bincount": lambda count, device: torch.bincount(ramp(device) % count),
    "weighted bincount": lambda count, device: torch.bincount(ramp(device) % count, weights=ramp(device).float()),
    "repeat_interleave": lambda count, device: torch.repeat_interleave(below(count, device).long() * 2),
}


@pytest.mark.parametrize("name", SIZED)
def test_programs_for_many_sizes(name):
    """200 sizes, read on the host, take at most twelve programs."""
    torch.tpu.synchronize()
    before = torch.tpu.counters()["compiles"]
    for count in range(1, 401, 2):
        results, expected = (SIZED[name](count, device) for device in ("tpu", "cpu"))
        for result, wanted in zip(*(r if isinstance(r, tuple) else (r,) for r in (results, expected)), strict=True):
            assert result.shape == wanted.shape and result.dtype == wanted.dtype
            assert torch.equal(result.cpu(), wanted)
    assert torch.tpu.counters()["compiles"] - before <= 12


@pytest.mark.parametrize("name", SIZED)
def test_results_are_tensors_like_others(name):
    """Padding is not to be seen: contiguous results can be viewed, resized, written and saved."""
    for result in (r if isinstance(r := SIZED[name](37, "tpu"), tuple) else (r,)):
        values = result.cpu()
        if values.is_contiguous():
            assert result.view(-1).shape == values.view(-1).shape or name == "where"
        assert torch.equal(result.clone().cpu(), values) and torch.equal((result + 1).cpu(), values + 1)
        first = values.flatten()[:1]
        resized = result.clone().resize_(values.numel() * 2 + 3)
        assert resized.shape == (values.numel() * 2 + 3,) and torch.equal(resized[:1].cpu(), first)
        result.zero_()
        assert result.cpu().eq(0).all()


def both(use):
    outcomes = []
    for device in ("cpu", "tpu"):
        try:
            results = use(device)
            if device == "tpu":
                torch.tpu.synchronize()
            outcomes.append([r.cpu() for r in (results if isinstance(results, (tuple, list)) else (results,))])
        except Exception as error:  # noqa: BLE001  the type is what is compared
            outcomes.append((type(error), str(error)))
    return outcomes


NAN = float("nan")
DETAILS = {
    "nan": lambda d: torch.unique(torch.tensor([NAN, 1, NAN, 0., -0., 0.], device=d), return_inverse=True,
                                  return_counts=True),
    "nan neighbours": lambda d: torch.unique_consecutive(torch.tensor([NAN, NAN, 1, 1], device=d), return_counts=True),
    "nan rows": lambda d: torch.unique(torch.tensor([[NAN, 1], [NAN, 1], [0, 1]], device=d), dim=0,
                                       return_counts=True)[1].sum(),
    "bool": lambda d: torch.unique(torch.tensor([True, False, True], device=d), return_counts=True),
    "rank 0": lambda d: torch.unique(torch.tensor(3, device=d), return_inverse=True, return_counts=True),
    "int64 bounds": lambda d: torch.unique(torch.tensor([2**63 - 1, -2**63, 0, -2**63], device=d)),
    "uint8": lambda d: torch.unique(torch.tensor([200, 100, 200], dtype=torch.uint8, device=d)),
    "rows in order": lambda d: torch.unique(torch.tensor([[3, 1, 2], [2, 9, 0], [3, 1, 2], [2, 3, 4]], device=d), dim=0,
                                            return_inverse=True, return_counts=True),
    "columns": lambda d: torch.unique(torch.tensor([[3, 1, 3], [2, 9, 2]], device=d), dim=1, return_inverse=True),
    "consecutive columns": lambda d: torch.unique_consecutive(torch.tensor([[3, 3, 1], [2, 2, 2]], device=d), dim=-1),
    "empty": lambda d: torch.unique(torch.empty(0, 3, device=d), return_inverse=True, return_counts=True),
    "empty rows": lambda d: torch.unique(torch.empty(0, 3, device=d), dim=0, return_inverse=True, return_counts=True),
    "empty columns": lambda d: torch.unique(torch.empty(0, 3, device=d), dim=1),
    "twice empty": lambda d: torch.unique(torch.empty(0, 0, device=d), dim=0),
    "no dimension": lambda d: torch.unique(torch.tensor(3, device=d), dim=0),
    "no such dimension": lambda d: torch.unique(torch.ones(3, 2, device=d), dim=2),
    "complex": lambda d: torch.unique(torch.ones(3, dtype=torch.complex64, device=d)),
    "repeats": lambda d: torch.repeat_interleave(torch.tensor([0, 2, 0, 3], dtype=torch.int32, device=d)),
    "repeats of rows": lambda d: torch.tensor([[7, 1], [8, 2]], device=d).repeat_interleave(
        torch.tensor([1, 3], device=d), dim=0),
    "no repeats": lambda d: torch.repeat_interleave(torch.tensor([0, 0], device=d)),
    "repeats of known size": lambda d: torch.repeat_interleave(torch.tensor([2, 3], device=d), output_size=5),
    "repeats of wrong size": lambda d: torch.repeat_interleave(torch.tensor([2, 3], device=d), output_size=4),
    "repeats of no size": lambda d: torch.repeat_interleave(torch.tensor([2, 3], device=d), output_size=0),
    "negative repeats": lambda d: torch.repeat_interleave(torch.tensor([2, -3], device=d)),
    "repeats in a matrix": lambda d: torch.repeat_interleave(torch.tensor([[2]], device=d)),
    "float repeats": lambda d: torch.repeat_interleave(torch.tensor([2.], device=d)),
    "bins": lambda d: torch.bincount(torch.tensor([1, 5, 1], dtype=torch.int16, device=d), minlength=3),
    "more bins": lambda d: torch.bincount(torch.tensor([1, 5, 1], dtype=torch.int16, device=d), minlength=9),
    "no numbers": lambda d: torch.bincount(torch.tensor([], dtype=torch.long, device=d), minlength=3),
    "negative numbers": lambda d: torch.bincount(torch.tensor([1, -1], device=d)),
    "float numbers": lambda d: torch.bincount(torch.tensor([1.], device=d)),
    "half weights": lambda d: torch.bincount(torch.tensor([1, 1], device=d), weights=torch.ones(2, device=d).half()),
    "wrong weights": lambda d: torch.bincount(torch.tensor([1, 1], device=d), weights=torch.ones(3, device=d)),
    "masks with numbers": lambda d: torch.arange(12, device=d).view(3, 4)[
        torch.tensor([True, False, True], device=d), torch.tensor([1, 3], device=d)],
    "mask of the last dimension": lambda d: torch.arange(12, device=d).view(3, 4)[
        :, torch.tensor([True, False, True, True], device=d)],
    "mask on the host": lambda d: torch.arange(3, device=d)[torch.tensor([True, False, True])],
    "mask of bytes": lambda d: torch.arange(3, device=d)[torch.tensor([1, 0, 1], dtype=torch.uint8, device=d)],
    "mask of another shape": lambda d: torch.ones(3, 4, device=d)[torch.ones(3, 3, dtype=torch.bool, device=d)],
    "fill the last dimension": lambda d: torch.ones(3, 4, device=d).index_put_(
        (None, torch.tensor([True, False, True, True], device=d)), torch.tensor([5.], device=d)),
    "parts": lambda d: torch.tensor_split(torch.arange(7, device=d), torch.tensor([2, 5], device=d)),
    "number of parts": lambda d: torch.tensor_split(torch.arange(7, device=d), torch.tensor(3, device=d)),
}


@pytest.mark.filterwarnings("ignore:.*uint8.*")
@pytest.mark.parametrize("name", DETAILS)
def test_like_the_cpu(name):
    cpu, tpu = both(DETAILS[name])
    if isinstance(cpu, tuple):
        assert isinstance(tpu, tuple) and tpu[0] is cpu[0], tpu
        assert tpu[1].startswith(cpu[1]), tpu
    else:
        assert isinstance(tpu, list), tpu
        torch.testing.assert_close(tpu, cpu, rtol=0, atol=0, equal_nan=True)


def test_gradients_through_masks():
    x, reference = (torch.arange(6.0, device=device).view(3, 2).requires_grad_() for device in ("tpu", "cpu"))
    for tensor in (x, reference):
        mask = torch.tensor([True, False, True], device=tensor.device)
        (tensor[mask] ** 2).sum().backward()
        split = torch.tensor_split(tensor, torch.tensor([1], device=tensor.device))
        (split[1] * 3).sum().backward()
    assert torch.equal(x.grad.cpu(), reference.grad)


def test_parts_of_a_tensor_are_read_without_programs():
    x = torch.arange(1000, device="tpu") * 2
    x.cpu()
    before = torch.tpu.counters()["compiles"]
    for end in range(300, 900, 50):
        assert torch.equal(x[3:end].cpu(), torch.arange(3, end) * 2)
        assert torch.equal(x.view(10, 100)[:, 2::3].cpu(), (torch.arange(1000) * 2).view(10, 100)[:, 2::3])
    assert torch.tpu.counters()["compiles"] == before

"""What mixtures of experts are made of: products of groups of rows that the device counts, and counts of integers."""
import pytest
import torch
import torch.nn.functional as F

FORMS = {  # shapes of the operands for rows, groups, inner and outer size
    "rows": lambda rows, groups, inner, outer: ((rows, inner), (groups, inner, outer)),
    "columns": lambda rows, groups, inner, outer: ((groups, outer, inner), (inner, rows)),
    "inner": lambda rows, groups, inner, outer: ((inner, rows), (rows, outer)),
}


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-4), (torch.bfloat16, 6e-2)])
@pytest.mark.parametrize("rows, groups", [(8, 3), (256, 3), (400, 1), (1000, 16)])
@pytest.mark.parametrize("form", FORMS)
def test_grouped_products(form, rows, groups, dtype, tolerance):
    """Forward and backward as on the CPU; the same programs for other numbers of rows in each group."""
    compiles = []
    for _ in range(3):
        ends = torch.randint(rows + 1, (groups,)).sort().values.int()
        ends[-1] = rows
        operands = [torch.randn(shape, dtype=dtype) for shape in FORMS[form](rows, groups, 16, 24)]
        theirs, ours = ([x.clone().to(device).requires_grad_() for x in operands] for device in ("cpu", "tpu"))
        expected, actual = F.grouped_mm(*theirs, offs=ends), F.grouped_mm(*ours, offs=ends.tpu())
        gradient = torch.randn_like(expected)
        expected.backward(gradient)
        actual.backward(gradient.tpu())
        for mine, reference in zip([actual, *(x.grad for x in ours)], [expected, *(x.grad for x in theirs)]):
            torch.testing.assert_close(mine.cpu(), reference, rtol=tolerance, atol=tolerance * 4)
        compiles.append(torch.tpu.counters()["compiles"])
    assert compiles[0] == compiles[2]


def test_rows_beyond_the_last_group():
    """They are no group's, and do not disturb the others."""
    x, matrices = torch.randn(300, 8), torch.randn(2, 8, 8)
    actual = F.grouped_mm(x.tpu(), matrices.tpu(), offs=torch.tensor([130, 140], dtype=torch.int32).tpu()).cpu()
    torch.testing.assert_close(actual[:130], x[:130] @ matrices[0], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(actual[130:140], x[130:140] @ matrices[1], rtol=1e-4, atol=1e-4)
    assert not actual[140:].any()


@pytest.mark.parametrize("operands, ends, message", [
    (((4, 8), (2, 8, 8)), None, "Have to provide offsets"),
    (((2, 4, 8), (2, 8, 8)), [2, 4], "or no offset if both matrices are 3d"),
    (((4, 8), (2, 7, 8)), [2, 4], "contraction dimension"),
    (((4, 8), (3, 8, 8)), [2, 4], "batch sizes have to match"),
    (((4,), (2, 8, 8)), [2, 4], "mat_a has to be 2 or 3d"),
])
def test_refusals(operands, ends, message):
    a, b = (torch.randn(shape, device="tpu") for shape in operands)
    offsets = None if ends is None else torch.tensor(ends, dtype=torch.int32, device="tpu")
    with pytest.raises(RuntimeError, match=message):
        F.grouped_mm(a, b, offs=offsets)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64])
def test_histograms_of_integers(dtype):
    """As CUDA counts them; the CPU refuses."""
    x = torch.randint(20, (100,), dtype=dtype)
    for bins, low, high in ((20, 0, 19), (4, 2, 17), (5, 0, 0)):
        actual = torch.histc(x.tpu(), bins, low, high)
        assert actual.dtype is dtype
        torch.testing.assert_close(actual.cpu(), torch.histc(x.double(), bins, low, high).to(dtype))

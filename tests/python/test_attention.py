"""scaled_dot_product_attention: one operator per call, equal to the CPU's in values, gradients and strides."""

import itertools

import pytest
import torch
import torch.nn.functional as F

BATCH, HEADS, QUERIES, KEYS, SIZE = 2, 4, 5, 9, 8

OPTIONS = {
    "plain": {},
    "causal": {"is_causal": True},
    "bool mask": {"attn_mask": torch.arange(QUERIES * KEYS).view(QUERIES, KEYS) % 3 > 0},
    "float mask": {"attn_mask": torch.linspace(-2, 2, BATCH * QUERIES * KEYS).view(BATCH, 1, QUERIES, KEYS)},
    "scale": {"scale": 0.3},
}
DTYPES = {torch.float32: 1e-6, torch.bfloat16: 1e-2, torch.float16: 2e-3, torch.float64: 1e-14}


def inputs(heads=(HEADS, HEADS, HEADS), dtype=torch.float32):
    rows = QUERIES, KEYS, KEYS
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(BATCH, heads[i], rows[i], SIZE, generator=generator).to(dtype) for i in range(3)]


def attention(device, tensors, options, backward=True):
    """[output, gradients …] on the CPU, and the output's strides."""
    tensors = [tensor.to(device).requires_grad_(backward) for tensor in tensors]
    options = {key: value.to(device) if torch.is_tensor(value) else value for key, value in options.items()}
    if torch.is_tensor(mask := options.get("attn_mask")) and mask.is_floating_point():
        options["attn_mask"] = mask.to(tensors[0].dtype)
    output = F.scaled_dot_product_attention(*tensors, **options)
    if backward:
        output.backward(torch.linspace(-1, 1, output.numel()).view_as(output).to(output))
    return [output.detach().cpu(), *(tensor.grad.cpu() for tensor in tensors if backward)], output.stride()


@pytest.mark.parametrize("dtype, name", list(itertools.product(DTYPES, OPTIONS)), ids=str)
def test_equal_to_cpu(dtype, name):
    (ours, strides), (theirs, their_strides) = (
        attention(device, inputs(dtype=dtype), OPTIONS[name]) for device in ("tpu", "cpu"))
    assert strides == their_strides
    for ours, theirs in zip(ours, theirs, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=DTYPES[dtype])


def test_shared_keys():
    """Query heads that share keys: without gradients in one operator, with them in ATen's composition."""
    for backward in False, True:
        results = (attention(device, inputs((HEADS, 2, 2)), {"enable_gqa": True}, backward)[0]
                   for device in ("tpu", "cpu"))
        for ours, theirs in zip(*results, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)


def test_row_without_keys():
    mask = torch.ones(QUERIES, KEYS, dtype=torch.bool)
    mask[2] = False
    (ours, _), (theirs, _) = (attention(device, inputs(), {"attn_mask": mask}) for device in ("tpu", "cpu"))
    assert (ours[0][:, :, 2] == 0).all()
    for ours, theirs in zip(ours, theirs, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)


def test_nan_stays():
    tensors = inputs()
    tensors[1][0, 1, 3, 0] = float("nan")
    (ours, _), (theirs, _) = (attention(device, tensors, {}, backward=False) for device in ("tpu", "cpu"))
    assert torch.equal(ours[0].isnan(), theirs[0].isnan()) and ours[0].isnan().any()


@pytest.mark.parametrize("options", [{}, {"is_causal": True}], ids=["plain", "causal"])
def test_one_operator(options):
    tensors = [tensor.to("tpu").requires_grad_() for tensor in inputs()]
    before = torch.tpu.counters()["ops_recorded"]
    output = F.scaled_dot_product_attention(*tensors, **options)
    assert torch.tpu.counters()["ops_recorded"] == before + 1
    output.sum().backward()
    assert torch.tpu.counters()["ops_recorded"] <= before + 6  # the sum, its gradient, ours, and views


def test_compositions():
    """What the operator does not take: dropout, masks with gradients, other ranks and sizes."""
    query, key, value = (tensor.to("tpu") for tensor in inputs())
    assert F.scaled_dot_product_attention(query, key, value, dropout_p=0.5).shape == query.shape
    mask = torch.zeros(QUERIES, KEYS, device="tpu", requires_grad=True)
    F.scaled_dot_product_attention(query, key, value, attn_mask=mask).sum().backward()
    assert mask.grad.shape == mask.shape
    flat = F.scaled_dot_product_attention(query[0], key[0], value[0])
    torch.testing.assert_close(flat, F.scaled_dot_product_attention(query, key, value)[0], rtol=0, atol=1e-6)
    assert F.scaled_dot_product_attention(query, key, value[..., :3]).shape[-1] == 3
    assert F.scaled_dot_product_attention(query[:, :, :0], key, value).numel() == 0

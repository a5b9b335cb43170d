"""Views, storages and copies: everything that shares memory does so as on the CPU."""
import copy
import io
import pickle

import numpy as np
import pytest
import torch
from torch import nn


def filled(shape=(4, 6), dtype=torch.float32, device="tpu"):
    count = 1
    for size in shape:
        count *= size
    return torch.arange(count, dtype=dtype).view(shape).to(device)


# Each takes a [4, 6] tensor and returns a view of it.
VIEWS = {
    "split": lambda t: t.split(2)[1],
    "split sizes": lambda t: t.split([1, 2, 3], dim=1)[2],
    "chunk": lambda t: t.chunk(3, dim=1)[1],
    "unbind": lambda t: t.unbind(1)[4],
    "select chain": lambda t: t[2][1:][::2],
    "steps": lambda t: t[1::2, ::3],
    "slice": lambda t: t[1:3, 2:5],
    "narrow": lambda t: t.narrow(1, 2, 3),
    "transpose": lambda t: t.t(),
    "permute": lambda t: t.view(2, 2, 6).permute(2, 0, 1),
    "view": lambda t: t.view(3, 8)[1],
    "reshape": lambda t: t[:, :4].reshape(4, 2, 2)[:, 1],
    "diagonal": lambda t: t.diagonal(),
    "diagonal offset": lambda t: t.view(2, 2, 6).diagonal(1, dim1=-1, dim2=0),
    "as_strided": lambda t: t.as_strided((3, 2), (7, 2), 3),
    "unfold": lambda t: t.unfold(1, 2, 3),
    "unsqueeze": lambda t: t.unsqueeze(1).squeeze(),
    "flatten": lambda t: t.flatten()[5:17],
    "unflatten": lambda t: t.unflatten(1, (2, 3))[:, 1],
    "movedim": lambda t: t.view(2, 2, 2, 3).movedim(0, -1),
    "swapaxes": lambda t: t.swapaxes(0, 1)[1:4],
    "detach": lambda t: t.detach()[0],
    "data": lambda t: t.data[1],
    "alias": lambda t: torch.ops.aten.alias(t)[3],
    "view_as": lambda t: t.view_as(torch.empty(2, 12))[1],
    "tensor_split": lambda t: t.tensor_split(4, dim=1)[3],
    "hsplit": lambda t: t.hsplit(2)[1],
    "ravel": lambda t: t.ravel()[::5],
    "mT": lambda t: t.view(2, 2, 6).mT[1],
    "int32": lambda t: t.view(torch.int32)[1:3],
    "int16": lambda t: t.view(torch.int16)[:, 1::2],
    "bytes": lambda t: t.view(torch.uint8)[2, 3:9],
    "float64": lambda t: t.view(torch.float64)[:, 1],
    "complex": lambda t: torch.view_as_complex(t.view(4, 3, 2)).real[1:],
    "imag": lambda t: torch.view_as_complex(t.view(4, 3, 2)).imag[:, ::2],
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_alias(name):
    """A view reads what the base holds, and each sees what the other writes."""
    results = {}
    for device in ("cpu", "tpu"):
        base = filled(device=device)
        view = VIEWS[name](base)
        assert view.untyped_storage().data_ptr() == base.untyped_storage().data_ptr()
        first = view.clone()
        view.mul_(2)
        after = base.clone()
        base.add_(1)
        second = view.clone()
        base[1:3, 1:].zero_()
        view.copy_(first)
        results[device] = [t.cpu() for t in (first, after, second, view, base)]
        assert (view.size(), view.stride(), view.storage_offset()) == \
               (VIEWS[name](filled(device="cpu")).size(), VIEWS[name](filled(device="cpu")).stride(),
                VIEWS[name](filled(device="cpu")).storage_offset())
    for expected, actual in zip(results["cpu"], results["tpu"]):
        torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)


def test_written_expanded_views():
    x = torch.zeros(1, 3, device="tpu")
    assert x.expand(4, 3).sum(0).tolist() == [0, 0, 0]
    with pytest.raises(RuntimeError, match="single memory location"):
        x.expand(4, 3).add_(1)
    x.expand(4, 3)[2].add_(1)
    assert x.expand(2, 3).tolist() == [[1, 1, 1]] * 2


def test_overlapping_inputs():
    x = filled((8,))
    x[1:] = x[:-1].clone()
    assert x.tolist() == [0, 0, 1, 2, 3, 4, 5, 6]
    with pytest.raises(RuntimeError, match="refer to a single memory location"):
        x[2:].copy_(x[:-2])
    assert x.tolist() == [0, 0, 1, 2, 3, 4, 5, 6]


def test_conjugate_and_negative_views():
    x = torch.tensor([1 + 2j, 3 - 4j])
    d = x.tpu()
    assert d.conj().is_conj() and d.conj().cpu().tolist() == [1 - 2j, 3 + 4j]
    assert (d.conj() * d).cpu().tolist() == [5, 25]
    assert d.conj().imag.cpu().tolist() == [-2, 4] and d.conj().imag.is_neg()
    assert d.conj().clone().cpu().tolist() == d.conj().resolve_conj().cpu().tolist() == [1 - 2j, 3 + 4j]
    d.conj().copy_(torch.tensor([5 + 1j, 1j]))
    assert d.cpu().tolist() == [5 - 1j, -1j]
    d.copy_(d.conj())
    d.imag.neg_()
    assert d.cpu().tolist() == [5 - 1j, -1j]
    assert torch.view_as_real(d).tolist() == [[5, -1], [0, -1]]


def test_products_of_conjugates():
    """Core hands these their arguments with the conjugation still to be done."""
    a, b = (torch.view_as_complex(torch.randn(3, 3, 2)) for _ in range(2))
    products = {
        "mm": lambda a, b: a.mH @ b,
        "bmm": lambda a, b: a[None].conj().bmm(b[None]),
        "addmm": lambda a, b: torch.addmm(a.conj(), a.conj(), b.conj()),
        "addmm_": lambda a, b: a.clone().addmm_(a.conj(), b.conj()),
        "baddbmm": lambda a, b: torch.baddbmm(a[None], a[None].conj(), b[None]),
        "dot": lambda a, b: torch.dot(a[0].conj(), b[0]),
        "vdot": lambda a, b: torch.vdot(a[0].conj(), b[0].conj()),
        "mv": lambda a, b: a.conj() @ b[0].conj(),
        "solve": lambda a, b: torch.linalg.solve(a.mH, b),
        "svd": lambda a, b: torch.linalg.svd(a.conj())[1],
    }
    different = [name for name, use in products.items()
                 if not torch.allclose(use(a.tpu(), b.tpu()).cpu(), use(a, b), rtol=1e-3, atol=1e-4)]
    assert not different


def test_metadata_changes_in_place():
    x = filled((2, 3))
    row = x[0]
    x.t_()
    x[0, 1] = 50
    assert x.tolist() == [[0, 50], [1, 4], [2, 5]] and x.stride() == (1, 3) and row.tolist() == [0, 1, 2]
    x.unsqueeze_(0).squeeze_(0).transpose_(0, 1).as_strided_((2, 2), (3, 2))
    assert x.tolist() == [[0, 2], [50, 5]]


def test_set_and_resize():
    x, y = filled((6,)), torch.empty(0, device="tpu")
    y.set_(x)
    y[1] = 9
    assert x[1].item() == 9 and y.data_ptr() == x.data_ptr()
    y.set_(x.untyped_storage(), 2, (2, 2), (2, 1))
    assert y.tolist() == [[2, 3], [4, 5]]
    x.resize_(2, 2)
    assert x.tolist() == [[0, 9], [2, 3]] and x.untyped_storage().nbytes() == 24
    x.resize_(8)
    assert x[:6].tolist() == [0, 9, 2, 3, 4, 5] and x.untyped_storage().nbytes() == 32
    out = torch.empty(0, device="tpu")
    torch.add(y, 1, out=out)
    assert out.tolist() == [[3, 4], [5, 6]]
    y.set_()
    assert y.numel() == 0


def test_data_is_rebound():
    x = torch.zeros(6, device="tpu")
    view = x.view(3, 2)
    x.data = x.data + 7
    x.data.add_(1)
    assert view.sum().item() == 0 and x.tolist() == [8] * 6
    parameter = nn.Parameter(torch.ones(2))
    parameter.data = torch.zeros(3, device="tpu")
    assert parameter.is_tpu and parameter.shape == (3,)


def test_untyped_storage():
    x = filled((4,), torch.int16)
    storage = x.untyped_storage()
    assert storage.nbytes() == 8 and storage.device.type == "tpu" and list(storage.cpu()) == [0, 0, 1, 0, 2, 0, 3, 0]
    assert storage[2] == 1
    storage.fill_(1)
    assert x.tolist() == [257] * 4
    storage.copy_(filled((4,), torch.int16, "cpu").untyped_storage())
    assert x.tolist() == [0, 1, 2, 3]
    assert torch.tensor([], dtype=torch.int16, device="tpu").set_(storage.clone()).tolist() == [0, 1, 2, 3]
    storage.resize_(0)
    assert storage.nbytes() == 0
    storage.resize_(8)
    x.copy_(torch.tensor([4, 5, 6, 7]))
    assert x.tolist() == [4, 5, 6, 7]
    fresh = torch.UntypedStorage(8, device="tpu")
    assert fresh.device.type == "tpu" and fresh.nbytes() == 8


def test_addresses():
    x = torch.zeros(4, 3, device="tpu")
    address = x.data_ptr()
    x.add_(1).mul_(2)
    x[1] = 5
    x.cpu()
    assert x.data_ptr() == address != 0 and x[1].data_ptr() == address + 12
    assert x.view(-1).data_ptr() == address and x.clone().data_ptr() != address
    assert x.to("tpu") is x and x.to("tpu", copy=True).data_ptr() != address
    out = torch.empty(3, device="tpu")
    before = out.data_ptr()
    torch.sum(x, 0, out=out)
    assert out.data_ptr() == before and torch.empty(0, device="tpu").data_ptr() == 0


def test_strides_of_results():
    for device in ("cpu", "tpu"):
        x = torch.randn(2, 3, 4, 5).to(device).to(memory_format=torch.channels_last)
        assert x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
        assert (x + 1).stride() == x.stride() == x.relu().stride() == torch.empty_like(x).stride() == (60, 1, 15, 3)
        assert x.contiguous().stride() == (60, 20, 5, 1)
        assert x.clone().stride() == x.stride() and x.cpu().stride() == x.stride()
        conv = nn.Conv2d(3, 2, 1, device=device).to(memory_format=torch.channels_last)
        assert conv.weight.is_contiguous(memory_format=torch.channels_last)
        y = torch.randn(3, 4).to(device).t()
        assert (y + y).stride() == (1, 4) and (y * 2).stride() == (1, 4) and y.exp().is_contiguous() is False
        assert x.double().stride() == x.stride() and y.to(torch.int32).stride() == (1, 4)


def test_host_conversions():
    x = filled((2, 3), torch.int64)
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]] and x[1, 2].item() == 5 and int(x[0, 1]) == 1 and bool(x[1, 1])
    assert np.array_equal(x.cpu().numpy(), np.arange(6).reshape(2, 3))
    assert x.t().cpu().numpy().strides == (8, 24)
    with pytest.raises(TypeError, match="cpu"):
        x.numpy()
    assert torch.from_numpy(np.arange(3.0)).to("tpu").sum().item() == 3
    assert torch.as_tensor(np.eye(2), device="tpu").tolist() == [[1, 0], [0, 1]]
    assert f"{x[0, 2]}" == "2" and "[3, 4, 5]" in str(x) and len(x) == 2 and [int(row.sum()) for row in x] == [3, 12]
    with pytest.raises(RuntimeError):
        bool(x)


DTYPES = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
          torch.float32, torch.float64, torch.complex64]


@pytest.mark.parametrize("source", DTYPES, ids=str)
def test_copies_between_dtypes(source):
    values = torch.tensor([0, 1, 2, 100]).to(source)
    on_tpu = values.tpu()
    assert on_tpu.dtype == source and torch.equal(on_tpu.cpu(), values)
    converted = [(values.to(target), on_tpu.to(target), torch.empty(4, dtype=target, device="tpu"))
                 for target in DTYPES if target.is_complex or not source.is_complex]
    for _, _, out in converted:
        out.copy_(values, non_blocking=True)  # from the CPU, with a conversion
    for expected, actual, out in converted:
        assert torch.equal(actual.cpu(), expected) and torch.equal(out.cpu(), expected)
        assert torch.equal(torch.empty(4, dtype=source).copy_(values), values)


def test_copies_of_views():
    host = torch.arange(12.0).view(3, 4)
    device = torch.zeros(4, 3, device="tpu")
    device.t().copy_(host)
    assert device.tolist() == host.t().tolist()
    device[1:3] = host[:2, 1:]
    host.t().copy_(device)
    assert host.t().tolist() == device.tolist()
    host[0, ::2].copy_(device[0, :2])
    device.copy_(torch.ones(3))
    assert device.sum().item() == 12
    with pytest.raises(RuntimeError, match="expand|match|broadcast"):
        device.copy_(torch.ones(4))


def test_host_memory_may_change_after_a_copy():
    host = torch.arange(1000.0)
    device = host.to("tpu", non_blocking=True)
    host.zero_()
    assert device.sum().item() == 499500


def two_tied_layers():
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    second.weight = first.weight
    return nn.Sequential(first, nn.BatchNorm1d(3), second)


def test_module_identity():
    model = two_tied_layers()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    parameters = list(model.parameters())
    model.to("tpu")
    assert all(a is b for a, b in zip(parameters, model.parameters())) and model[0].weight is model[2].weight
    assert all(p.is_tpu for p in optimizer.param_groups[0]["params"]) and model[1].running_mean.is_tpu
    before = model[0].weight.detach().cpu()
    model(torch.randn(4, 3, device="tpu")).sum().backward()
    optimizer.step()
    assert not torch.equal(model[0].weight.detach().cpu(), before)
    gradient = model[0].weight.grad
    model.half().cpu()
    assert model[0].weight is parameters[0] and parameters[0].grad.device.type == "cpu" and gradient is not None


def test_deepcopy_and_pickle():
    x = filled((6,))
    a, b = copy.deepcopy([x[:3], x[1:]])
    a[1] = 50
    assert b[0].item() == 50 and x[1].item() == 1 and a.is_tpu
    y = pickle.loads(pickle.dumps(x.view(2, 3).t()))
    assert y.is_tpu and y.stride() == (1, 3) and y.tolist() == [[0, 3], [1, 4], [2, 5]]
    model = copy.deepcopy(two_tied_layers().to("tpu"))
    assert model[0].weight is model[2].weight and model[0].weight.is_tpu
    assert pickle.loads(pickle.dumps(nn.Parameter(x))).requires_grad


def stored(value):
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


@pytest.mark.parametrize("target, device", [(None, "tpu"), ("cpu", "cpu"), ("tpu", "tpu"), ("tpu:0", "tpu"),
                                            (torch.device("tpu"), "tpu"), ({"tpu:0": "cpu"}, "cpu"),
                                            (lambda storage, place: storage, "cpu")])
def test_saved_tensors(target, device):
    base = filled((6,), torch.bfloat16)
    state = two_tied_layers().tpu().state_dict()
    content = stored({"a": base[:3], "b": base[1:], "t": filled((2, 3)).t(), "model": state})
    loaded = torch.load(io.BytesIO(content), map_location=target)
    loaded["a"][1] = 50
    assert loaded["b"].tolist() == [50, 2, 3, 4, 5] and loaded["t"].stride() == (1, 3)
    assert loaded["t"].tolist() == [[0, 3], [1, 4], [2, 5]] and loaded["b"].device.type == device
    model = two_tied_layers().to("tpu")
    model.load_state_dict(loaded["model"])
    assert torch.equal(model[0].weight.cpu(), loaded["model"]["0.weight"].cpu())


def test_files(tmp_path):
    path = tmp_path / "tensor.pt"
    torch.save(filled((100,)), path)
    for options in ({"mmap": True}, {"weights_only": False}, {"map_location": "cpu", "mmap": True}):
        assert torch.load(path, **options).sum().item() == 4950
    torch.save({"cpu": torch.ones(2)}, path)
    assert torch.load(path, map_location="tpu")["cpu"].is_tpu
    torch.save(nn.Linear(2, 2).tpu(), path, _use_new_zipfile_serialization=False)
    assert torch.load(path, weights_only=False).weight.is_tpu

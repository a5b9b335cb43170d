"""Sparse tensors: COO and compressed layouts give on tpu what they give on the CPU."""
import copy
import io

import pytest
import torch
from torch import nn
from torch.nn import functional

pytestmark = pytest.mark.filterwarnings("ignore:Sparse:UserWarning")


def coo(device, dtype=torch.float32):
    """A [4, 3] matrix of five entries, two of them at one place."""
    indices = torch.tensor([[0, 1, 1, 3, 1], [2, 0, 2, 1, 0]], device=device)
    return torch.sparse_coo_tensor(indices, torch.tensor([1, 2, 3, 4, 5], dtype=dtype, device=device), (4, 3))


def hybrid(device):
    """The same places with a row of two values at each."""
    values = torch.arange(10.0, device=device).view(5, 2)
    return torch.sparse_coo_tensor(coo(device)._indices(), values, (4, 3, 2))


def csr(device):
    return torch.sparse_csr_tensor([0, 2, 2, 4], [0, 1, 0, 2], torch.tensor([1.0, -2, 3, 4]), (3, 3), device=device)


def dense(device, *shape):
    count = torch.Size(shape).numel()
    return torch.linspace(-1, 1, count).view(shape).to(device)


def masked_maximum(matrix):
    mask = torch.sparse_csr_tensor(matrix.crow_indices(), matrix.col_indices(), matrix.values() > 0.2, matrix.shape)
    return torch.masked.amax(matrix, 1, keepdim=True, mask=mask)


def saved(tensor):
    memory = io.BytesIO()
    torch.save(tensor, memory)
    memory.seek(0)
    return torch.load(memory)


def numbers(result):
    """A result as dense CPU tensors."""
    if isinstance(result, (tuple, list)):
        return [numbers(element) for element in result]
    if not isinstance(result, torch.Tensor):
        return result
    result = result.detach().cpu()
    return result if result.layout == torch.strided else result.to_dense()


def form(result):
    """What a sparse tensor is beside its numbers."""
    if not isinstance(result, torch.Tensor):
        return None
    coalesced = result.is_coalesced() if result.layout == torch.sparse_coo else None
    entries = result._nnz() if coalesced or result.layout == torch.sparse_csr else None
    return result.layout, result.dtype, result.shape, coalesced, entries


def assert_as_on_cpu(function):
    expected, actual = function("cpu"), function("tpu")
    assert form(actual) == form(expected)
    torch.testing.assert_close(numbers(actual), numbers(expected))


COO = {
    "coalesce": lambda d: coo(d).coalesce(),
    "coalesce hybrid": lambda d: hybrid(d).coalesce(),
    "indices": lambda d: coo(d).coalesce().indices(),
    "values": lambda d: hybrid(d).coalesce().values(),
    "size inferred": lambda d: torch.sparse_coo_tensor([[0, 2], [1, 0]], [1.0, 2.0], device=d),
    "empty": lambda d: torch.sparse_coo_tensor((2, 3), device=d).to_dense(),
    "from the CPU": lambda d: coo("cpu").to(d),
    "dtype": lambda d: coo(d).to(torch.float64),
    "copy_": lambda d: torch.sparse_coo_tensor((4, 3), device=d).copy_(coo("cpu")),
    "zero_": lambda d: coo(d).zero_(),
    "transpose": lambda d: coo(d).t(),
    "unsqueeze": lambda d: coo(d).unsqueeze(1),
    "cat": lambda d: torch.cat([coo(d), coo(d)], 1),
    "index_select": lambda d: coo(d).index_select(0, torch.tensor([1, 3, 1, -4], device=d)),
    "select": lambda d: coo(d)[1],
    "narrow_copy": lambda d: coo(d).narrow_copy(0, 1, 2),
    "add": lambda d: coo(d) + coo(d),
    "add coalesced": lambda d: coo(d).coalesce().add(coo(d).t().t().coalesce(), alpha=3),
    "add hybrid": lambda d: hybrid(d) + hybrid(d).coalesce(),
    "add_": lambda d: coo(d).add_(coo(d)),
    "sub": lambda d: coo(d) - coo(d).coalesce(),
    "dense add": lambda d: dense(d, 4, 3) + coo(d),
    "dense add_": lambda d: dense(d, 3, 4).t().add_(coo(d), alpha=-2),
    "dense add hybrid": lambda d: dense(d, 4, 3, 2) + hybrid(d),
    "neg": lambda d: -coo(d),
    "sin": lambda d: coo(d).sin(),
    "relu_": lambda d: coo(d).coalesce().relu_(),
    "mul number": lambda d: coo(d) * 3,
    "mul dense": lambda d: coo(d) * dense(d, 4, 3),
    "mul dense broadcast": lambda d: coo(d) * dense(d, 2, 4, 3),
    "mul sparse": lambda d: coo(d) * coo(d).coalesce().sin(),
    "div": lambda d: coo(d) / 2,
    "floor_divide": lambda d: coo(d).div(3, rounding_mode="floor"),
    "pow": lambda d: coo(d).pow(2),
    "norm": lambda d: coo(d).norm(),
    "sum": lambda d: coo(d).sum(),
    "sparse.sum": lambda d: torch.sparse.sum(coo(d), 0),
    "sparse.sum hybrid": lambda d: torch.sparse.sum(hybrid(d), (1, 2)),
    "sparse.sum bfloat16": lambda d: torch.sparse.sum(hybrid(d).bfloat16(), (0, 2)),
    "softmax": lambda d: torch.sparse.softmax(coo(d), 1),
    "softmax dense dim": lambda d: torch.sparse.softmax(hybrid(d), 2),
    "log_softmax": lambda d: torch.sparse.log_softmax(hybrid(d), 0),
    "sparse_mask dense": lambda d: dense(d, 4, 3).sparse_mask(coo(d)),
    "sparse_mask sparse": lambda d: coo(d).sparse_mask(dense(d, 4, 3).relu().to_sparse()),
    "mm": lambda d: coo(d) @ dense(d, 3, 2),
    "mm sparse": lambda d: torch.sparse.mm(coo(d), coo(d).t()),
    "mv": lambda d: coo(d) @ dense(d, 3),
    "addmm": lambda d: torch.addmm(dense(d, 4, 2), coo(d), dense(d, 3, 2), beta=2, alpha=3),
    "bmm": lambda d: torch.bmm(torch.stack([coo(d), coo(d).coalesce().sin()]), dense(d, 2, 3, 2)),
    "hspmm": lambda d: torch.hspmm(coo(d), dense(d, 3, 2)),
    "smm": lambda d: torch.smm(coo(d), dense(d, 3, 2)),
    "sspaddmm": lambda d: torch.sspaddmm(coo(d), coo(d), dense(d, 3, 3), alpha=2),
    "to_sparse": lambda d: dense(d, 4, 3).relu().to_sparse(),
    "to_sparse hybrid": lambda d: dense(d, 4, 3).relu().to_sparse(1),
    "complex": lambda d: coo(d, torch.complex64) @ dense(d, 3, 2).to(torch.complex64),
    "integers": lambda d: coo(d, torch.int64).coalesce(),
    "booleans": lambda d: coo(d, torch.bool).coalesce(),
    "bfloat16": lambda d: coo(d, torch.bfloat16) @ dense(d, 3, 2).to(torch.bfloat16),
    "deepcopy": lambda d: copy.deepcopy(coo(d)),
    "saved": lambda d: saved(coo(d).coalesce()),
}

COMPRESSED = {
    "to_dense": lambda d: csr(d).to_dense(),
    "crow_indices": lambda d: csr(d).crow_indices(),
    "from the CPU": lambda d: csr("cpu").to(d),
    "clone": lambda d: csr(d).clone(),
    "saved": lambda d: saved(csr(d)),
    "from dense": lambda d: dense(d, 4, 3).relu().to_sparse_csr(),
    "from dense csc": lambda d: dense(d, 4, 3).relu().to_sparse_csc(),
    "from dense bsr": lambda d: dense(d, 4, 6).relu().to_sparse_bsr((2, 3)),
    "from dense batch": lambda d: dense(d, 4, 3).abs().repeat(2, 1, 1).to_sparse_csr(),
    "from coo": lambda d: coo(d).to_sparse_csr(),
    "to coo": lambda d: csr(d).to_sparse(),
    "csr to csc": lambda d: csr(d).to_sparse_csc(),
    "bsr to dense": lambda d: dense(d, 4, 6).relu().to_sparse_bsr((2, 3)).to_dense(),
    "select": lambda d: csr(d)[0, 1],
    "neg": lambda d: -csr(d),
    "sin_": lambda d: csr(d).sin_(),
    "add": lambda d: csr(d) + csr(d).t().to_sparse_csr(),
    "dense add": lambda d: dense(d, 3, 3) + csr(d),
    "mul number": lambda d: csr(d) * 2,
    "mul dense": lambda d: csr(d) * dense(d, 3, 3),
    "mm": lambda d: csr(d) @ dense(d, 3, 2),
    "mm csc": lambda d: csr(d).to_sparse_csc() @ dense(d, 3, 2),
    "mm sparse": lambda d: csr(d) @ csr(d),
    "mv": lambda d: csr(d) @ dense(d, 3),
    "addmm": lambda d: torch.addmm(dense(d, 3, 2), csr(d), dense(d, 3, 2), beta=2, alpha=3),
    "sampled_addmm": lambda d: torch.sparse.sampled_addmm(csr(d), dense(d, 3, 2), dense(d, 2, 3), beta=2),
    "mm mean": lambda d: torch.sparse.mm(csr(d), dense(d, 3, 2), "mean"),
    "mm amax": lambda d: torch.sparse.mm(csr(d), dense(d, 3, 2), "amax"),
    "sum": lambda d: csr(d).sum(),
    "sum of rows": lambda d: torch._sparse_csr_sum(csr(d), 1, keepdim=True),
    "masked amax": lambda d: masked_maximum(dense(d, 3, 3).abs().to_sparse_csr()),
    "segment_reduce amin": lambda d: torch.segment_reduce(dense(d, 6), "amin", lengths=torch.tensor([2, 4], device=d)),
    "prod of columns": lambda d: torch._sparse_csr_prod(csr(d), 0, keepdim=True),
}


@pytest.mark.parametrize("name", COO)
def test_coo(name):
    assert_as_on_cpu(COO[name])


@pytest.mark.parametrize("name", COMPRESSED)
def test_compressed(name):
    assert_as_on_cpu(COMPRESSED[name])


@pytest.mark.parametrize("make", [coo, hybrid, csr])
def test_printed(make):
    assert repr(make("tpu")).replace("device='tpu:0', ", "") == repr(make("cpu"))


def gradients(make, function, device):
    matrix = make(device).requires_grad_()
    other = dense(device, 3, 2).requires_grad_()
    result = function(matrix, other)
    if result.layout != torch.strided:
        result = result.to_dense()
    (result * result).sum().backward()
    return matrix.grad, other.grad


@pytest.mark.parametrize("make", [coo, csr])
def test_mm_gradients(make):
    assert_as_on_cpu(lambda d: gradients(make, torch.sparse.mm, d))


@pytest.mark.parametrize("reduce", ["sum", "mean", "amax", "amin"])
def test_mm_reduce_gradients(reduce):
    assert_as_on_cpu(lambda d: gradients(csr, lambda a, b: torch.sparse.mm(a, b, reduce), d))


GRADIENTS = {
    "sum": lambda x: torch.sparse.sum(x, 0),
    "sum all": lambda x: torch.sparse.sum(x).unsqueeze(0),
    "softmax": lambda x: torch.sparse.softmax(x, 1),
    "log_softmax": lambda x: torch.sparse.log_softmax(x, 0),
    "to_dense": lambda x: x.to_dense(),
    "mm sparse": lambda x: torch.sparse.mm(x, x.t()),
    "mul": lambda x: x * x,
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_coo_gradients(name):
    def gradient(device):
        x = coo(device).coalesce().requires_grad_()
        result = GRADIENTS[name](x)
        result = result.to_dense() if result.layout != torch.strided else result
        (result * result).sum().backward()
        return x.grad.coalesce()

    assert_as_on_cpu(gradient)


def test_gradients_of_entries():
    def gradient(device):
        values = torch.tensor([1.0, 2, 3, 4, 5], device=device, requires_grad=True)
        matrix = torch.sparse_coo_tensor(coo(device)._indices(), values, (4, 3))
        torch.sparse.mm(matrix, dense(device, 3, 2)).sum().backward()
        return values.grad

    assert_as_on_cpu(gradient)


class Recommender(nn.Module):
    """The shape of DLRM: tables with sparse gradients, their rows through a small network."""

    def __init__(self):
        super().__init__()
        self.bags = nn.EmbeddingBag(50, 4, mode="sum", sparse=True)
        self.items = nn.Embedding(30, 4, sparse=True, padding_idx=0)
        self.top = nn.Linear(8, 1)

    def forward(self, words, offsets, items):
        return self.top(torch.cat([self.bags(words, offsets), self.items(items)], 1)).squeeze(1)


def train(device, optimizer, steps=3):
    torch.manual_seed(0)
    model = Recommender().to(device)
    tables = [model.bags.weight, model.items.weight]
    optimizers = [optimizer(tables), torch.optim.SGD(model.top.parameters(), lr=0.1)]
    losses = []
    for _ in range(steps):
        words = torch.randint(50, (24,)).to(device)
        items = torch.randint(30, (8,)).to(device)
        target = torch.rand(8).to(device)
        loss = functional.binary_cross_entropy_with_logits(
            model(words, torch.arange(0, 24, 3, device=device), items), target)
        loss.backward()
        assert all(table.grad.is_sparse for table in tables)
        for each in optimizers:
            each.step()
            each.zero_grad()
        losses.append(loss.detach())
    return losses + [parameter.detach() for parameter in model.parameters()]


@pytest.mark.parametrize("optimizer", [
    lambda tables: torch.optim.SparseAdam(tables, lr=0.1),
    lambda tables: torch.optim.SGD(tables, lr=0.1),
    lambda tables: torch.optim.Adagrad(tables, lr=0.1),
], ids=["SparseAdam", "SGD", "Adagrad"])
def test_recommender_trains(optimizer):
    torch.testing.assert_close(numbers(train("tpu", optimizer)), numbers(train("cpu", optimizer)))


@pytest.mark.parametrize("mode", ["sum", "mean"])
@pytest.mark.parametrize("padding", [None, 2])
def test_embedding_bag_gradients(mode, padding):
    def gradient(device):
        table = dense(device, 6, 3).requires_grad_()
        weights = torch.tensor([1.0, 2, 3, 4, 5]).to(device) if mode == "sum" else None
        bags = functional.embedding_bag(
            torch.tensor([2, 1, 2, 5, 0], device=device), table, torch.tensor([0, 2, 3], device=device), mode=mode,
            sparse=True, per_sample_weights=weights, padding_idx=padding)
        (bags * bags).sum().backward()
        return table.grad

    assert_as_on_cpu(gradient)


def test_sgd_reads_nothing_on_the_host():
    """The update of a table has no shape that depends on values."""
    table = nn.Embedding(50, 4, sparse=True, device="tpu")
    optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
    table(torch.arange(8, device="tpu")).sum().backward()
    before = torch.tpu.counters()["host_reads"]
    optimizer.step()
    assert torch.tpu.counters()["host_reads"] == before


def outcome(function, device):
    try:
        function(device)
    except Exception as error:  # noqa: BLE001
        return type(error), str(error).replace("tpu:0", "cpu")
    return None


WRONG = {
    "negative": lambda d: torch.sparse_coo_tensor([[0, -1]], [1.0, 2.0], (3,), device=d, check_invariants=True),
    "outside": lambda d: torch.sparse_coo_tensor([[0, 3]], [1.0, 2.0], (3,), device=d, check_invariants=True),
    "dimensions": lambda d: torch.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (3, 3), device=d),
    "crow_indices": lambda d: torch.sparse_csr_tensor([0, 2, 1], [0, 1], [1.0, 2.0], device=d, check_invariants=True),
    "uncoalesced indices": lambda d: coo(d).indices(),
    "sizes": lambda d: coo(d) + coo(d).t(),
    "shapes": lambda d: csr(d) @ dense(d, 2, 2),
    "sparse add dense": lambda d: coo(d) + dense(d, 4, 3),
    "segment_reduce": lambda d: torch.segment_reduce(dense(d, 2), "most", lengths=torch.tensor([2], device=d)),
    "select outside": lambda d: coo(d).index_select(0, torch.tensor([4], device=d)),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_calls(name):
    expected = outcome(WRONG[name], "cpu")
    assert expected is not None and outcome(WRONG[name], "tpu")[0] is expected[0]


@pytest.mark.parametrize("make", [coo, csr])
def test_missing_operators_are_named(make):
    with pytest.raises(NotImplementedError, match="'aten::exp(.out)?'.*sparse.*tpu"):
        make("tpu").exp()

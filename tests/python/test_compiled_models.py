"""The models of bench/ in small sizes under torch.compile: whole graphs, the curves and tokens of eager code, and
nothing compiled twice."""
import gc
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from bench.decoder import Llama
from bench.models import DLRM, GPT, MLP, ResNet, UNet, optimizer_of


class TrainedLlama(Llama):
    """The decoder with the logits of all places as its objective."""

    def loss(self, tokens, targets):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return F.cross_entropy(self(tokens, places, *self.caches()), targets)


LLAMA = SimpleNamespace(layers=2, width=32, heads=4, key_heads=2, hidden=48, vocabulary=50, prompt=8, tokens=12)
GPT_SIZES = SimpleNamespace(layers=2, width=32, heads=4, context=64, batch=4, vocabulary=50)


def images(classes, *size):
    return torch.randn(4, 3, 32, 32), torch.randint(classes, (4, *size))


CASES = {
    "gpt": (lambda: GPT(GPT_SIZES), lambda: (torch.randint(50, (4, 16)), torch.randint(50, (4, 16)))),
    "mlp": (lambda: MLP(SimpleNamespace(layers=3, width=32)), lambda: (torch.randn(8, 32), torch.randn(8, 32))),
    "resnet": (lambda: ResNet(SimpleNamespace(classes=5, stages=(8, 16))), lambda: images(5)),
    "unet": (lambda: UNet(SimpleNamespace(channels=(4, 8, 16), classes=3)), lambda: images(3, 32, 32)),
    "dlrm": (lambda: DLRM(SimpleNamespace(tables=3, rows=20, width=8, dense=5, bottom=(16, 8), top=(16, 1))),
             lambda: (torch.randn(16, 5), torch.randint(20, (16, 3)), torch.rand(16, 1).round())),
    "llama": (lambda: TrainedLlama(LLAMA), lambda: (torch.randint(50, (1, 8)), torch.randint(50, (1,)))),
}


@pytest.fixture(autouse=True)
def fresh_dynamo():
    """Nothing that a test compiled outlives it."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
    gc.collect()


def train(name, compiles):
    """The losses of six steps; what was compiled and run from the third on; graphs of Dynamo, and its breaks."""
    torch.manual_seed(0)
    make, batch = CASES[name]
    model, batch = make(), batch()
    model, batch = model.tpu().train(), [tensor.tpu() for tensor in batch]
    optimizer = optimizer_of(name, model.parameters())
    loss_of, update = model.loss, optimizer.step
    if compiles:
        torch._dynamo.utils.counters.clear()
        loss_of = torch.compile(loss_of, backend="tpu", fullgraph=True)
        update = torch.compile(update, backend="tpu")
    losses, before = [], None
    for i in range(6):
        if i == 3:
            before = torch.tpu.counters()
        losses.append(loss_of(*batch))
        losses[-1].backward()
        update()
        optimizer.zero_grad()
        torch.tpu.synchronize()
    after = torch.tpu.counters()
    breaks = dict(torch._dynamo.utils.counters["graph_break"]) if compiles else {}
    return ([loss.item() for loss in losses], after["compiles"] - before["compiles"],
            after["programs_run"] - before["programs_run"], breaks)


@pytest.mark.parametrize("name", CASES)
def test_training(name):
    expected, *_ = train(name, compiles=False)
    losses, compiles, programs, breaks = train(name, compiles=True)
    torch.testing.assert_close(losses, expected, rtol=1e-3, atol=1e-4)
    assert losses[-1] < losses[0]
    assert compiles == 0 and programs <= 3 * 3
    # torch's Optimizer.step breaks the graph itself, before its first operator and for any backend.
    assert all("User-inserted graph break" in reason for reason in breaks)


@torch.no_grad()
def generate(step, start):
    """Greedy decoding with the static cache, each token read as it comes."""
    ids, places, caches = start
    generated = []
    for _ in range(LLAMA.tokens):
        ids, places = step(ids, places, caches)
        generated.append(ids.item())
    return generated


def test_static_cache():
    """The tokens of the CPU with exactly two programs: one for the prompt, one for a token."""
    torch.manual_seed(0)
    model, prompt = Llama(LLAMA).eval(), torch.randint(50, (1, LLAMA.prompt))

    def start(device):
        values = prompt.to(device), torch.arange(LLAMA.prompt, device=device), model.caches()
        if device == "tpu":
            torch.tpu.synchronize()
        return values

    def following(tokens, places, caches):
        return model(tokens, places, *caches).argmax(-1, keepdim=True), places[-1:] + 1

    expected = generate(following, start("cpu"))
    model.tpu()
    step, values = torch.compile(following, backend="tpu", fullgraph=True), start("tpu")
    before = torch.tpu.counters()
    assert generate(step, values) == expected
    for _ in range(2):
        assert generate(step, start("tpu")) == expected
    after = torch.tpu.counters()
    assert after["compiles"] - before["compiles"] == 2


@torch.no_grad()
def test_growing_cache():
    """Keys and values that grow by cat: as many tokens as the CPU's, in a few programs."""
    class Attention(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.qkv = torch.nn.Embedding(50, 32), torch.nn.Linear(32, 96)
            self.head = torch.nn.Linear(32, 50)

        def forward(self, ids, keys, values):
            x = self.tokens(ids)
            query, key, value = (part.view(1, -1, 4, 8).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
            keys, values = torch.cat([keys, key], 2), torch.cat([values, value], 2)
            attended = F.scaled_dot_product_attention(query, keys, values)
            x = x + attended.transpose(1, 2).reshape(x.shape)
            return self.head(x[:, -1:]).argmax(-1), keys, values

    def tokens(step, device):
        keys, values = (torch.zeros(1, 4, 0, 8, device=device) for _ in range(2))
        ids, generated = torch.tensor([[3, 1, 4]], device=device), []
        for _ in range(40):
            ids, keys, values = step(ids, keys, values)
            generated.append(ids.item())
        return generated

    torch.manual_seed(0)
    model = Attention().eval()
    expected = tokens(model, "cpu")
    model.tpu()
    graphs = []

    def counting(graph, inputs, **options):
        from torch_tpu.dynamo import tpu
        graphs.append(graph)
        return tpu(graph, inputs, **options)

    step = torch.compile(model, backend=counting, dynamic=True)
    before = torch.tpu.counters()["compiles"]
    assert tokens(step, "tpu") == expected
    assert len(graphs) <= 3 and torch.tpu.counters()["compiles"] - before <= 12


@pytest.mark.parametrize("options", [None, {"bucket": "pow2"}])
@torch.no_grad()
def test_sizes_that_change(options):
    """64 lengths of a sequence: two graphs at most, a few programs, what each length gives by itself."""
    torch.manual_seed(0)
    model = GPT(GPT_SIZES).eval()
    lengths = torch.randperm(64).add(1).tolist()
    sequences = [torch.randint(50, (2, length)) for length in lengths]
    expected = [model(ids) for ids in sequences]
    model.tpu()
    torch._dynamo.utils.counters.clear()
    forward = torch.compile(model, backend="tpu", dynamic=True, fullgraph=True, options=options)
    before = torch.tpu.counters()["compiles"]
    for ids, logits in zip(sequences, expected):
        torch.testing.assert_close(forward(ids.tpu()).cpu(), logits, rtol=1e-4, atol=1e-5)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 2
    if options is not None:
        assert torch.tpu.counters()["compiles"] - before <= 8


@pytest.mark.parametrize("options", [{"bucket": "pow3"}, {"buckets": "pow2"}])
def test_unknown_options(options):
    forward = torch.compile(torch.sin, backend="tpu", options=options)
    with pytest.raises(Exception, match="bucket"):
        forward(torch.ones(2, device="tpu"))


def test_errors_name_the_node():
    """What fails while a graph runs says which node it was, its shapes, and the line of the user's model."""
    @torch.library.custom_op("test_compiled_models::refuses", mutates_args=())
    def refuses(x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("not today")

    refuses.register_fake(torch.empty_like)

    def model(x):
        y = x * 2
        return refuses(y) + 1  # the line that fails

    forward = torch.compile(model, backend="tpu", fullgraph=True)
    with pytest.raises(RuntimeError, match="not today") as caught:
        forward(torch.ones(2, 3, device="tpu"))
    notes = "\n".join(caught.value.__notes__)
    assert "test_compiled_models.refuses" in notes and "(2, 3) torch.float32" in notes
    assert "the line that fails" in notes

"""Graphs of torch.compile: recorded once, then repeated as one call; the same results, the same side effects."""
import contextlib
import gc

import pytest
import torch
import torch.nn.functional as F
from models import Training, gpt
from torch import nn


@pytest.fixture(autouse=True)
def fresh_dynamo():
    """Nothing that a test compiled outlives it."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
    gc.collect()


def compiled(function):
    return torch.compile(function, backend="tpu", fullgraph=True)


@contextlib.contextmanager
def recorded(most):
    """At most so many calls are recorded inside."""
    before = torch.tpu.counters()["ops_recorded"]
    yield
    assert torch.tpu.counters()["ops_recorded"] - before <= most


def chain(x, y):
    for _ in range(20):
        x = torch.sin(x) * y + 1
    return x, x.sum(0)


def test_a_graph_is_one_call():
    function = compiled(chain)
    arguments = [(torch.randn(4, 3), torch.randn(3)) for _ in range(4)]
    for i, (x, y) in enumerate(arguments):
        x_tpu, y_tpu = x.tpu(), y.tpu()
        with recorded(1 if i > 0 else 100):
            results = function(x_tpu, y_tpu)
        torch.testing.assert_close([r.cpu() for r in results], list(chain(x, y)))


def test_layouts_that_change():
    """Each layout of an argument in its storage is recorded for itself."""
    function = compiled(lambda x, y: (x * 2 + y, x.t()))
    base = torch.randn(6, 6)
    views = [lambda b: b[:4, :4], lambda b: b[2:, 2:], lambda b: b[:4, :4].clone(), lambda b: b.t()[:4, :4]]
    for _ in range(2):
        for view in views:
            torch._dynamo.reset()
            one, two = base.tpu(), base.clone().tpu()
            for x, y in ((view(one), view(two)), (view(one), view(one)), (view(two), view(one))):
                total, turned = function(x, y)
                torch.testing.assert_close(total.cpu(), view(base) * 3)
                torch.testing.assert_close(turned.cpu(), view(base).t())


def test_layouts_without_end():
    """After a few layouts the others are interpreted."""
    function = compiled(lambda x: x * 2 + 1)
    base = torch.randn(40).tpu()
    for _ in range(2):
        for i in range(20):
            torch.testing.assert_close(function(base[i:i + 8]).cpu(), base.cpu()[i:i + 8] * 2 + 1)


def test_arguments_that_are_one():
    """An argument given twice, or two views of one storage, is not what was recorded of two tensors."""
    function = compiled(lambda x, y: (x + y * 2, x * y))
    x, y = torch.randn(4), torch.randn(4)
    x_tpu, y_tpu = x.tpu(), y.tpu()
    for a, b in ((x_tpu, y_tpu), (x_tpu, x_tpu), (y_tpu, x_tpu), (x_tpu[:2], x_tpu[2:]), (x_tpu[:2], y_tpu[2:])) * 2:
        for result, expected in zip(function(a, b), (a.cpu() + b.cpu() * 2, a.cpu() * b.cpu())):
            torch.testing.assert_close(result.cpu(), expected)


def test_writes():
    """What a graph writes is written each time: whole arguments, parts of them, and what others see."""
    def step(state, total, x):
        state.add_(x)
        total[1:3] = state[:2] * 2
        return state.view(2, 2), x.neg()

    function = compiled(step)
    state, total = torch.zeros(4, device="tpu"), torch.zeros(4, device="tpu")
    seen = state[1:]
    expected, expected_total = torch.zeros(4), torch.zeros(4)
    for i in range(5):
        x = torch.full((4,), float(i))
        view, negated = function(state, total, x.tpu())
        step(expected, expected_total, x)
        torch.testing.assert_close(state.cpu(), expected)
        torch.testing.assert_close(total.cpu(), expected_total)
        torch.testing.assert_close(seen.cpu(), expected[1:])
        torch.testing.assert_close(negated.cpu(), -x)
        view[0, 0] += 1  # the result is a view of the argument
        expected[0] += 1
        torch.testing.assert_close(state.cpu(), expected)


def test_results_are_new():
    """Results of two calls share no memory; those of one call do where the function says so."""
    function = compiled(lambda x: (x * 2, (x * 3).view(2, 2)))
    x = torch.ones(4, device="tpu")
    results = [function(x) for _ in range(3)]
    results[1][0].zero_()
    results[1][1].zero_()
    for doubled, tripled in (results[0], results[2]):
        assert doubled.tolist() == [2] * 4 and tripled.tolist() == [[3, 3], [3, 3]]


def test_random_numbers():
    """Each call draws anew, what eager code draws."""
    def noise(x):
        return F.dropout(x, 0.5) + torch.rand_like(x), torch.randn(3, device=x.device)

    function, x = compiled(noise), torch.ones(64, device="tpu")
    torch.manual_seed(5)
    expected = [[r.cpu() for r in noise(x)] for _ in range(4)]
    torch.manual_seed(5)
    drawn = [[r.cpu() for r in function(x)] for _ in range(4)]
    torch.testing.assert_close(drawn, expected)
    assert len({tuple(numbers.tolist()) for _, numbers in drawn}) == 4


@pytest.mark.parametrize("kind", ["mlp", "convnet", "gpt"])
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_training_is_three_calls(kind, optimizer):
    """Forward, backward and the optimizer, whose step counts are on the CPU; the curve is that of eager code."""
    losses = []
    for compiles in (False, True):
        torch._dynamo.reset()
        torch.manual_seed(0)
        training = Training(kind, "tpu", optimizer)
        if compiles:
            model = training.model
            if kind == "gpt":
                model.loss = torch.compile(model.loss, backend="tpu", fullgraph=True)
            else:
                training.model = torch.compile(model, backend="tpu", fullgraph=True)
            training.optimizer.step = torch.compile(training.optimizer.step, backend="tpu")
        curve = []
        for i in range(6):
            # With the batch, the loss outside of the model, and the numbers of the optimizer.
            with recorded(16 if compiles and i >= 3 else 10**6):
                curve.append(training.step())
        losses.append([loss.item() for loss in curve])
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-3, atol=1e-4)


def test_loops_without_reads_repeat():
    """A large graph that comes again ends the program before it: one program for each turn, two in all."""
    function = compiled(lambda x: chain(chain(x, x)[0], x)[0])
    x = torch.randn(8, device="tpu")
    for _ in range(3):
        x = function(x)
    torch.tpu.synchronize()
    before = torch.tpu.counters()
    for _ in range(20):
        x = function(x)
    torch.tpu.synchronize()
    after = torch.tpu.counters()
    assert after["compiles"] == before["compiles"]
    assert after["programs_run"] - before["programs_run"] == 20


def test_broken_checks_name_the_operator():
    function = compiled(lambda table, index: F.embedding(index, table).sin() * 2)
    table, good, bad = torch.randn(4, 2).tpu(), torch.tensor([1, 2]).tpu(), torch.tensor([1, 7]).tpu()
    for _ in range(2):
        function(table, good).cpu()
    with pytest.raises(IndexError, match="aten::embedding"):
        function(table, bad).cpu()
    torch.testing.assert_close(function(table, good).cpu(), table.cpu()[[1, 2]].sin() * 2)


def test_what_cannot_be_repeated_is_interpreted():
    """Graphs with CPU tensors, and functions that look at values, run call by call."""
    function = torch.compile(lambda x, y: x * 2 + y.to(x.device), backend="tpu")
    for i in range(3):
        assert function(torch.ones(2, device="tpu"), torch.full((2,), float(i))).tolist() == [2 + i] * 2
    masked = torch.compile(lambda x: x[x > 0].sum() * 2, backend="tpu")
    for x in ([1.0, -1.0], [2.0, 3.0], [-1.0, -1.0]):
        assert masked(torch.tensor(x, device="tpu")).item() == 2 * sum(e for e in x if e > 0)


def test_graphs_of_the_cpu():
    """A graph that has nothing to do on the device."""
    function = torch.compile(lambda x: x.sin() * 2, backend="tpu")
    for _ in range(3):
        torch.testing.assert_close(function(torch.ones(3)), torch.ones(3).sin() * 2)


def test_numbers_on_the_host():
    """0-dim CPU tensors that a graph updates and uses: sent anew each time, the device part is one call."""
    def step(x, count, rate):
        count.add_(1)
        scale = rate / (1 - 0.9 ** count)
        x.add_(x * scale)
        return x.sum() * scale, count * 2

    function = compiled(step)
    x, count, rate = torch.ones(3), torch.zeros(()), torch.tensor(0.5)
    x_tpu, own_count = x.tpu(), count.clone()
    for i in range(5):
        expected = step(x, count, rate)
        with recorded(2 if i > 1 else 100):
            results = function(x_tpu, own_count, rate)
        torch.testing.assert_close([r.cpu() for r in results], list(expected))
        torch.testing.assert_close(x_tpu.cpu(), x)
        torch.testing.assert_close(own_count, count)


def test_static_cache_decodes_like_the_cpu():
    """A decoder with a cache that is written at a place: two graphs, two programs, the tokens of the CPU."""
    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.head = nn.Embedding(16, 8), nn.Linear(8, 16)
            self.query, self.key = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, ids, places, cache):
            x = self.tokens(ids)
            cache.index_copy_(1, places, self.key(x))
            mask = torch.arange(cache.shape[1], device=ids.device) <= places[:, None]
            attended = F.scaled_dot_product_attention(self.query(x)[None], cache[None], cache[None], attn_mask=mask)
            return self.head(x + attended[0])[:, -1:].argmax(-1), places[-1:] + 1

    torch.manual_seed(0)
    model = Decoder().eval()
    prompt = torch.tensor([[3, 1, 4, 1]])

    @torch.no_grad()
    def generate(model, step, device):
        cache = torch.zeros(1, 12, 8, device=device)
        ids, places = step(prompt.to(device), torch.arange(4, device=device), cache)
        tokens = [ids]
        for _ in range(7):
            ids, places = step(ids, places, cache)
            tokens.append(ids)
        return torch.cat(tokens, 1).tolist()

    expected = generate(model, model, "cpu")
    model.tpu()
    step = compiled(model)
    generate(model, step, "tpu")
    before = torch.tpu.counters()
    assert generate(model, step, "tpu") == expected
    after = torch.tpu.counters()
    assert after["compiles"] - before["compiles"] <= 2
    with recorded(8 + 12):
        assert generate(model, step, "tpu") == expected


def test_threads_that_record_meanwhile():
    """A graph that is recorded while another thread computes, or that fails, leaves all as it is."""
    def fails(x):
        raise ValueError("no")

    from torch_tpu import _C
    graph = _C.RecordedGraph(fails)
    x = torch.ones(3, device="tpu")
    for _ in range(10):
        with pytest.raises(ValueError, match="no"):
            graph([x])
    assert (x + 1).tolist() == [2] * 3
    reads = _C.RecordedGraph(lambda x: (x * x.sum().item(),))
    for _ in range(10):
        assert reads([x])[0].tolist() == [3] * 3
    assert gpt().tpu()(torch.arange(4, device="tpu")[None]).shape == (1, 4, 11)

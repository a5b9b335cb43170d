"""Random numbers: states, generators, the same numbers in every mode, and replay under checkpointing."""
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


def ones(*shape, **options):
    return torch.ones(*(shape or (64,)), device="tpu", **options)


# Every operator that takes a generator.
WITH_GENERATOR = {
    "rand": lambda **g: torch.rand(64, device="tpu", **g),
    "rand out": lambda **g: torch.rand(64, out=ones(), **g),
    "rand_like": lambda **g: torch.rand_like(ones(), **g),
    "randn": lambda **g: torch.randn(64, device="tpu", **g),
    "randn_like": lambda **g: torch.randn_like(ones(), **g),
    "randint": lambda **g: torch.randint(3, 40, (64,), device="tpu", **g),
    "randint to": lambda **g: torch.randint(40, (64,), device="tpu", **g),
    "randint_like": lambda **g: torch.randint_like(ones(), 9, **g),
    "randperm": lambda **g: torch.randperm(64, device="tpu", **g),
    "bernoulli": lambda **g: torch.bernoulli(ones() * 0.5, **g),
    "bernoulli p": lambda **g: torch.bernoulli(ones(), 0.3, **g),
    "bernoulli_": lambda **g: ones().bernoulli_(0.3, **g),
    "bernoulli_ of chances": lambda **g: ones().bernoulli_(ones() * 0.3, **g),
    "uniform_": lambda **g: ones().uniform_(**g),
    "normal_": lambda **g: ones().normal_(**g),
    "normal": lambda **g: torch.normal(0.0, 1.0, (64,), device="tpu", **g),
    "normal of means": lambda **g: torch.normal(ones(), 2.0, **g),
    "normal of deviations": lambda **g: torch.normal(2.0, ones(), **g),
    "normal of both": lambda **g: torch.normal(ones(), ones(), **g),
    "exponential_": lambda **g: ones().exponential_(2, **g),
    "cauchy_": lambda **g: ones().cauchy_(**g),
    "log_normal_": lambda **g: ones().log_normal_(**g),
    "geometric_": lambda **g: ones().geometric_(0.3, **g),
    "random_": lambda **g: ones(dtype=torch.int64).random_(**g),
    "random_ to": lambda **g: ones().random_(9, **g),
    "random_ from": lambda **g: ones().random_(2, 9, **g),
    "poisson": lambda **g: torch.poisson(ones() * 5, **g),
    "binomial": lambda **g: torch.binomial(ones() * 9, ones() * 0.3, **g),
    "_standard_gamma": lambda **g: torch._standard_gamma(ones() * 3, **g),
    "_sample_dirichlet": lambda **g: torch._sample_dirichlet(ones(8, 8), **g),
    "multinomial": lambda **g: torch.multinomial(ones(), 9, **g),
    "multinomial with replacement": lambda **g: torch.multinomial(ones(), 9, True, **g),
    "rrelu": lambda **g: torch.ops.aten.rrelu(-ones(), 0.1, 0.4, True, **g),
}
WITHOUT = {
    "dropout": lambda: F.dropout(ones(), 0.3),
    "dropout in place": lambda: F.dropout(ones() * 2, 0.3, True, True),
    "dropout2d": lambda: F.dropout2d(ones(2, 4, 4, 4), 0.3),
    "alpha_dropout": lambda: F.alpha_dropout(ones(), 0.3, True),
    "feature_alpha_dropout": lambda: F.feature_alpha_dropout(ones(2, 4, 4), 0.3, True),
    "rrelu in place": lambda: F.rrelu(-ones(), 0.1, 0.4, True, True),
    "gumbel_softmax": lambda: F.gumbel_softmax(ones(8, 8)),
    "attention": lambda: F.scaled_dot_product_attention(*[ones(1, 2, 8, 4)] * 3, dropout_p=0.4),
    "Normal": lambda: torch.distributions.Normal(ones(), ones()).sample(),
    "Beta": lambda: torch.distributions.Beta(ones(), ones()).sample(),
}
EVERYTHING = WITH_GENERATOR | WITHOUT


def twice(draw, seed=3):
    """Two draws after seeding, on the CPU."""
    torch.manual_seed(seed)
    return [draw().cpu() for _ in range(2)]


def draws(device="tpu"):
    """A bit of everything, on the CPU."""
    like = torch.empty(7, device=device)
    values = [torch.rand(3, 3, device=device), torch.randn(5, device=device), torch.randint(100, (4,), device=device),
              torch.randperm(9, device=device), like.clone().bernoulli_(0.4), like.clone().exponential_(),
              nn.functional.dropout(torch.ones(8, device=device)), torch.normal(2.0, 3.0, (4,), device=device),
              torch.rand(6, device=device).multinomial(3), torch.rand_like(like), like.clone().uniform_(2, 3),
              torch.rand(3, device=device, dtype=torch.bfloat16), torch.randn(2, device=device, dtype=torch.float64)]
    return [v.cpu() for v in values]


def same(first, second):
    return [torch.equal(a, b) for a, b in zip(first, second)]


def test_seeds_reproduce():
    torch.manual_seed(5)
    first = draws()
    second = draws()
    torch.tpu.manual_seed(5)
    assert all(same(first, draws())) and all(same(second, draws()))
    assert not any(same(first, second)[:3])
    torch.tpu.manual_seed_all(6)
    assert not any(same(first, draws())[:3])


def test_modes_agree():
    torch.manual_seed(5)
    fused = draws()
    for mode in ("strict", "blocking"):
        torch.tpu.set_mode(mode)
        torch.manual_seed(5)
        assert all(same(fused, draws())), mode


@pytest.mark.parametrize("name", EVERYTHING)
def test_operators_agree_in_all_modes(name):
    draw = EVERYTHING[name]
    fused = twice(draw)
    assert not torch.equal(*fused)
    offset = torch.tpu.get_rng_state()[8:].view(torch.int64).item()
    torch.tpu.set_mode("strict")
    assert all(same(fused, twice(draw)))
    torch.tpu.set_mode("fused")
    if not name.startswith("random_"):  # Dynamo does not trace it
        torch._dynamo.reset()
        assert all(same(fused, twice(torch.compile(draw, backend="tpu", fullgraph=True))))
        assert torch.tpu.get_rng_state()[8:].view(torch.int64).item() == offset  # tracing draws nothing


def test_large_programs_draw_the_same():
    """Beside other work, in programs that are compiled at full effort."""
    for name in ("rand", "randn", "dropout"):
        small = twice(EVERYTHING[name])
        torch.manual_seed(3)
        work = [torch.ones(200_000, device="tpu") * 2, EVERYTHING[name](), EVERYTHING[name]()]
        assert all(same(small, [w.cpu() for w in work[1:]])), name


def test_processes_agree(forked):
    code = """
        torch.manual_seed(11)
        print(torch.rand(3, device="tpu").tolist(), torch.randint(1000, (3,), device="tpu").tolist())
    """
    torch.manual_seed(11)
    here = f"{torch.rand(3, device='tpu').tolist()} {torch.randint(1000, (3,), device='tpu').tolist()}"
    assert forked(code).check() == forked(code, {"TORCH_TPU_MODE": "strict"}).check() == here


def test_generators():
    a, b = (torch.Generator(device="tpu").manual_seed(3) for _ in range(2))
    state = torch.tpu.get_rng_state()
    x = torch.rand(4, device="tpu", generator=a)
    assert torch.equal(x.cpu(), torch.empty(4, device="tpu").uniform_(generator=b).cpu())
    assert torch.equal(torch.tpu.get_rng_state(), state)  # the default generator was not touched
    assert a.device.type == "tpu" and a.initial_seed() == 3
    middle = a.get_state()
    first = torch.randn(4, device="tpu", generator=a).cpu()
    a.set_state(middle)
    assert torch.equal(first, torch.randn(4, device="tpu", generator=a).cpu())
    copied = a.clone_state()
    assert torch.equal(torch.randperm(9, device="tpu", generator=a).cpu(),
                       torch.randperm(9, device="tpu", generator=copied).cpu())
    assert a.seed() != b.seed()
    a.manual_seed(-1)
    torch.rand(1, device="tpu", generator=a)
    assert torch.tpu.default_generators[0].device.type == "tpu"


@pytest.mark.parametrize("name", WITH_GENERATOR)
def test_generator_argument(name):
    """The numbers of the default generator with that seed, which itself stays as it is."""
    draw = WITH_GENERATOR[name]
    expected = twice(draw)
    state = torch.tpu.get_rng_state()
    generator = torch.Generator("tpu").manual_seed(3)
    assert all(same(expected, [draw(generator=generator).cpu() for _ in range(2)]))
    assert torch.equal(torch.tpu.get_rng_state(), state)
    with pytest.raises(RuntimeError, match="'tpu'"):
        draw(generator=torch.Generator())


def test_seeds():
    generator = torch.Generator("tpu")
    first = {}
    for seed in (0, 1, 2**63, 2**64 - 1, -1, -(2**63)):
        assert generator.manual_seed(seed) is generator
        assert generator.initial_seed() == seed % 2**64
        first[generator.initial_seed()] = torch.rand(4, device="tpu", generator=generator).tolist()
    assert first[2**64 - 1] == torch.rand(4, device="tpu", generator=generator.manual_seed(-1)).tolist()
    assert len({tuple(numbers) for numbers in first.values()}) == 4
    assert generator.seed() == generator.initial_seed()
    restored = torch.Generator("tpu")
    restored.set_state(generator.get_state())
    assert restored.initial_seed() == generator.initial_seed()


def test_generator_of_another_device():
    for generator in (torch.Generator("tpu"), torch.tpu.default_generators[0]):
        with pytest.raises(RuntimeError, match="device"):
            torch.rand(2, generator=generator)


def test_states():
    state = torch.tpu.get_rng_state()
    assert state.dtype == torch.uint8 and state.device.type == "cpu"
    first = draws()
    torch.tpu.set_rng_state(state)
    assert all(same(first, draws()))
    torch.tpu.set_rng_state_all([state])
    assert all(same(first, draws())) and len(torch.tpu.get_rng_state_all()) == 1
    for wrong in (torch.zeros(3, dtype=torch.uint8), torch.zeros(16)):
        with pytest.raises((RuntimeError, TypeError), match="RNG state"):
            torch.tpu.set_rng_state(wrong)
    assert torch.tpu.initial_seed() == 0
    torch.tpu.seed_all()
    torch.tpu.seed()
    assert torch.tpu.initial_seed() != 0


def test_fork_rng():
    state = torch.tpu.get_rng_state()
    with torch.random.fork_rng(device_type="tpu"):
        torch.manual_seed(123)
        torch.rand(3, device="tpu")
    assert torch.equal(torch.tpu.get_rng_state(), state)
    with torch.random.fork_rng(devices=[0], device_type="tpu"):
        torch.rand(3, device="tpu")
    assert torch.equal(torch.tpu.get_rng_state(), state)
    expected = torch.rand(3, device="tpu")
    torch.tpu.set_rng_state(state)
    with pytest.raises(ZeroDivisionError), torch.random.fork_rng(device_type="tpu"):
        torch.rand(3, device="tpu")
        raise ZeroDivisionError
    assert torch.equal(torch.rand(3, device="tpu"), expected)
    state = torch.tpu.get_rng_state()
    with torch.random.fork_rng(enabled=False, device_type="tpu"):
        torch.rand(3, device="tpu")
    assert not torch.equal(torch.tpu.get_rng_state(), state)


class Noisy(nn.Module):
    """All modules that draw; GELU comes last because checkpoint stops before torch's RReLU has written its noise."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.noise = nn.Sequential(nn.Dropout(0.5), nn.RReLU(), nn.AlphaDropout(0.2), nn.GELU())
        self.attention = nn.MultiheadAttention(6, 2, dropout=0.3, batch_first=True)
        self.last = nn.Sequential(nn.Dropout1d(0.3), nn.FeatureAlphaDropout(0.2), nn.Dropout(0.3), nn.GELU())

    def forward(self, x):
        x = self.noise(self.first(x))
        x = x + self.attention(x, x, x, need_weights=False)[0] + torch.randn_like(x) * torch.rand_like(x)
        return self.last(x)


def step(run, module, x):
    """One forward and backward pass after seeding: the output, the gradients and the generator's last state."""
    torch.manual_seed(7)
    x = x.clone().requires_grad_()
    module.zero_grad()
    y = run(x)
    y.square().sum().backward()
    return [y.detach(), x.grad, *(p.grad for p in module.parameters()), torch.tpu.get_rng_state().long()]


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
def test_random_modules_replay_under_checkpoint(reentrant, compiled):
    module, x = Noisy().to("tpu"), torch.randn(4, 5, 6, device="tpu")
    expected = step(module, module, x)
    run = lambda t: checkpoint(module, t, use_reentrant=reentrant)  # noqa: E731
    torch._dynamo.reset()
    results = step(torch.compile(run, backend="tpu") if compiled else run, module, x)
    torch.testing.assert_close(results, expected, rtol=1e-5, atol=1e-5)


def test_replays_of_several_forwards():
    """Compiled checkpoints keep the state of each call until its backward pass, in any order."""
    module, x = nn.Sequential(nn.Dropout(0.5), nn.GELU(), nn.Dropout(0.3), nn.GELU()), torch.randn(4, 6, device="tpu")
    gradients = []
    torch._dynamo.reset()
    for run in (module, torch.compile(lambda t: checkpoint(module, t, use_reentrant=False), backend="tpu")):
        torch.manual_seed(7)
        inputs = [x.clone().requires_grad_() for _ in range(3)]
        outputs = [run(t) for t in inputs]
        for i in (1, 2, 0):
            outputs[i].square().sum().backward()
        gradients.append([t.grad for t in inputs])
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-5)


def test_checkpoints_that_keep_no_state():
    dropout, x = nn.Dropout(0.5), ones(64, requires_grad=True)
    torch.manual_seed(7)
    y = checkpoint(lambda t: dropout(t * 1).exp(), x, use_reentrant=False, preserve_rng_state=False)
    y.sum().backward()
    assert not torch.equal((x.grad != 0).cpu(), (y != 1).cpu())  # the second mask is another


def test_modules_start_alike():
    """Initialisation on the device draws from the device's generator."""
    torch.manual_seed(2)
    first = nn.Linear(4, 4, device="tpu").weight.detach().cpu()
    torch.manual_seed(2)
    assert torch.equal(first, nn.Linear(4, 4, device="tpu").weight.detach().cpu())
    assert first.abs().max() <= 0.5

"""Random numbers: reproducible across modes, states, distributions, and replay under checkpointing."""
import math

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

COUNT = 20_000


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


def test_generator_of_another_device():
    generator = torch.Generator()
    for use in (lambda: torch.rand(2, device="tpu", generator=generator),
                lambda: torch.ones(2, device="tpu").bernoulli(generator=generator),
                lambda: torch.ones(2, device="tpu").normal_(generator=generator),
                lambda: torch.ones(2, device="tpu").multinomial(1, generator=generator),
                lambda: torch.randperm(3, device="tpu", generator=generator)):
        with pytest.raises(RuntimeError, match="'tpu'"):
            use()
    with pytest.raises(RuntimeError, match="device"):
        torch.rand(2, generator=torch.Generator(device="tpu"))


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


@pytest.mark.parametrize("reentrant", [False, True])
def test_dropout_replays_under_checkpoint(reentrant):
    layers = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5), nn.GELU(), nn.Dropout(0.3)).to("tpu")
    x = torch.randn(4, 6).to("tpu").requires_grad_()
    results = []
    for run in (layers, lambda t: checkpoint(layers, t, use_reentrant=reentrant)):
        torch.manual_seed(7)
        x.grad = None
        layers.zero_grad()
        y = run(x)
        y.square().sum().backward()
        results.append([y.detach().cpu(), x.grad.cpu(), layers[0].weight.grad.cpu()])
    for a, b in zip(*results):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


# name: (draw COUNT numbers on a device, mean, variance); None: not stated
DISTRIBUTIONS = {
    "rand": (lambda d: torch.rand(COUNT, device=d), 0.5, 1 / 12),
    "rand bfloat16": (lambda d: torch.rand(COUNT, device=d, dtype=torch.bfloat16), 0.5, 1 / 12),
    "rand float64": (lambda d: torch.rand(COUNT, device=d, dtype=torch.float64), 0.5, 1 / 12),
    "uniform_": (lambda d: torch.empty(COUNT, device=d).uniform_(-3, 5), 1, 64 / 12),
    "randn": (lambda d: torch.randn(COUNT, device=d), 0, 1),
    "randn float64": (lambda d: torch.randn(COUNT, device=d, dtype=torch.float64), 0, 1),
    "normal_": (lambda d: torch.empty(COUNT, device=d).normal_(2, 3), 2, 9),
    "normal tensors": (lambda d: torch.normal(torch.full((COUNT,), 1.0, device=d), 0.5), 1, 0.25),
    "bernoulli_": (lambda d: torch.empty(COUNT, device=d).bernoulli_(0.3), 0.3, 0.21),
    "bernoulli": (lambda d: torch.full((COUNT,), 0.8, device=d).bernoulli(), 0.8, 0.16),
    "dropout": (lambda d: nn.functional.dropout(torch.ones(COUNT, device=d), 0.25), 1, 1 / 3),
    "randint": (lambda d: torch.randint(-5, 10, (COUNT,), device=d), 2, (15**2 - 1) / 12),
    "randint large": (lambda d: torch.randint(0, 2**40, (COUNT,), device=d), 2.0**39, 2.0**80 / 12),
    "random_": (lambda d: torch.empty(COUNT, dtype=torch.int64, device=d).random_(0, 7), 3, 4),
    "exponential_": (lambda d: torch.empty(COUNT, device=d).exponential_(2.0), 0.5, 0.25),
    "randperm": (lambda d: torch.randperm(COUNT, device=d), (COUNT - 1) / 2, (COUNT**2 - 1) / 12),
    "multinomial": (lambda d: torch.tensor([1.0, 2, 3, 4], device=d).multinomial(COUNT, replacement=True), 2, 1),
    "geometric_": (lambda d: torch.empty(COUNT, device=d).geometric_(0.4), 2.5, 0.6 / 0.16),
    "log_normal_": (lambda d: torch.empty(COUNT, device=d).log_normal_(0, 0.5), math.exp(0.125),
                    (math.exp(0.25) - 1) * math.exp(0.25)),
    "cauchy_": (lambda d: torch.empty(COUNT, device=d).cauchy_(), None, None),
    "poisson": (lambda d: torch.poisson(torch.full((COUNT,), 4.0, device=d)), 4, 4),
    "gamma": (lambda d: torch._standard_gamma(torch.full((COUNT,), 2.0, device=d)), 2, 2),
}


def largest_gap(a, b):
    """The Kolmogorov-Smirnov statistic: the largest difference of two empirical distribution functions."""
    a, b = a.double().sort().values, b.double().sort().values
    both = torch.cat([a, b])
    below = [torch.searchsorted(t, both, right=True) / len(t) for t in (a, b)]
    return (below[0] - below[1]).abs().max().item()


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_distributions(name):
    draw, mean, variance = DISTRIBUTIONS[name]
    torch.manual_seed(1234)
    x, reference = draw("tpu").cpu(), draw("cpu")
    assert x.dtype == reference.dtype and x.shape == reference.shape
    assert largest_gap(x, reference) < 2.2 * math.sqrt(2 / COUNT)  # p < 1e-4 for continuous distributions
    x = x.double()
    if mean is not None:
        assert abs(x.mean().item() - mean) < 5 * math.sqrt(variance / COUNT)
        assert abs(x.var().item() / variance - 1) < 0.12
    if "bernoulli" not in name and name != "randperm":  # neighbours are independent
        shifted = (x[1:] - x.median()).sign() * (x[:-1] - x.median()).sign()
        assert abs(shifted.mean().item()) < 0.08 or x.unique().numel() < 20
    if name == "randperm":
        assert torch.equal(x.sort().values, torch.arange(COUNT).double())


def test_multinomial_without_replacement():
    weights = torch.tensor([[0.0, 1, 2, 0, 4], [1, 1, 0, 1, 1]])
    picks = torch.stack([weights.tpu().multinomial(3) for _ in range(50)]).cpu()
    assert (picks.sort(-1).values.diff(dim=-1) > 0).all()  # no pick twice
    assert set(picks[:, 0].flatten().tolist()) == {1, 2, 4} and 2 not in picks[:, 1]
    assert picks[:, 0, 0].bincount(minlength=5)[4] > 15


def test_ranges():
    x = torch.rand(200_000, device="tpu")
    low, high = x.min().item(), x.max().item()
    assert 0 <= low < 1e-3 and 1 - 1e-3 < high < 1
    normal = torch.randn(200_000, device="tpu").abs().max().item()
    assert 4 < normal < 7 and torch.empty(100_000, device="tpu").exponential_().min().item() > 0


def test_modules_start_alike():
    """Initialisation on the device draws from the device's generator."""
    torch.manual_seed(2)
    first = nn.Linear(4, 4, device="tpu").weight.detach().cpu()
    torch.manual_seed(2)
    assert torch.equal(first, nn.Linear(4, 4, device="tpu").weight.detach().cpu())
    assert first.abs().max() <= 0.5

"""Random operators and torch.distributions draw what the CPU draws: two-sample tests at fixed seeds, and refusals."""
import math

import pytest
import torch
import torch.distributions as D
from torch.nn import functional as F

PIECES, COUNT = 5, 4000  # small programs compile quickly, so samples are drawn in pieces
LEAST = 1e-4  # of the probability that two samples of one distribution differ as much
F32, F64, BF16, F16, C64 = torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64
I64, I8, U8, BOOL = torch.int64, torch.int8, torch.uint8, torch.bool
REAL = (F32, BF16, F16, F64)


def kolmogorov_smirnov(a, b):
    """The probability of so large a gap between two empirical distribution functions; more where values repeat."""
    a, b = a.sort().values, b.sort().values
    both = torch.cat([a, b])
    first, second = (torch.searchsorted(t, both, right=True) / len(t) for t in (a, b))
    root = math.sqrt(len(a) * len(b) / (len(a) + len(b)))
    x = (root + 0.12 + 0.11 / root) * (first - second).abs().max().item()
    return min(1.0, 2 * sum((-1) ** (k - 1) * math.exp(-2 * (k * x) ** 2) for k in range(1, 100))) if x > 0.3 else 1.0


def chi_square(a, b):
    """The probability of so different counts of each value; rare values count as one."""
    values, index = torch.cat([a, b]).unique(return_inverse=True)
    first, second = (torch.bincount(part, minlength=len(values)).double() for part in index.split([len(a), len(b)]))
    often = first + second >= 16
    first, second = (torch.cat([t[often], t[~often].sum()[None]]) for t in (first, second))
    ratio = math.sqrt(len(b) / len(a))
    terms = (first * ratio - second / ratio) ** 2 / (first + second).clamp(min=1)
    degrees = max((first + second > 0).sum().item() - 1, 1)
    return torch.special.gammaincc(torch.tensor(degrees / 2, dtype=F64), terms.sum() / 2).item()


def assert_alike(ours, theirs, discrete=None):
    """Two-sample tests of each column; of each value as well where there are few."""
    assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
    ours, theirs = (t.double().reshape(len(t), -1) for t in (ours.cpu(), theirs))
    if discrete is None:
        discrete = max(ours.unique().numel(), theirs.unique().numel()) <= 1000
    for column, (a, b) in enumerate(zip(ours.T, theirs.T)):
        assert kolmogorov_smirnov(a, b) > LEAST, f"column {column}"
        assert not discrete or chi_square(a, b) > LEAST, f"column {column}"


def sample(draw, device, dtype, pieces=PIECES):
    """Some pieces of a sampler's numbers, on the CPU."""
    torch.manual_seed(1)
    return torch.cat([draw(device, dtype).cpu() for _ in range(pieces)])


def columns(*values):
    """A sampler's parameters: rows of `values`."""
    return lambda device, dtype: torch.tensor(values, device=device, dtype=dtype).expand(COUNT // 4, len(values))


def empty(device, dtype):
    return torch.empty(COUNT, device=device, dtype=dtype)


def ones(device, dtype, *shape):
    return torch.ones(*(shape or (COUNT,)), device=device, dtype=dtype)


rates = columns(0.0, 0.5, 4, 9.99, 10, 12, 300)
trials, odds = columns(1, 5, 25, 26, 40, 100, 10, 10, 1000), columns(0.5, 0.3, 0.4, 0.4, 0.5, 0.9, 0.0, 1.0, 0.02)
shapes, concentrations = columns(0.001, 0.05, 0.5, 0.999, 1, 3.5, 60, 1e5), columns(0.02, 0.4, 1, 3)
weights = columns(1, 0, 3, 4, 0.5)
chances = columns(0, 0.01, 0.3, 0.5, 0.99, 1)

# operator: (draws on a device in a dtype, dtypes)
SAMPLERS = {
    "rand": (lambda d, t: torch.rand(COUNT, device=d, dtype=t), REAL),
    "rand complex": (lambda d, t: torch.view_as_real(torch.rand(COUNT, device=d, dtype=t)), [C64]),
    "rand_like": (lambda d, t: torch.rand_like(empty(d, t)), [F32]),
    "uniform_": (lambda d, t: empty(d, t).uniform_(-3, 5), [F32, BF16]),
    "randn": (lambda d, t: torch.randn(COUNT, device=d, dtype=t), REAL),
    "randn complex": (lambda d, t: torch.view_as_real(torch.randn(COUNT, device=d, dtype=t)), [C64]),
    "randn_like": (lambda d, t: torch.randn_like(empty(d, t)), [F32]),
    "normal_": (lambda d, t: empty(d, t).normal_(2, 3), [F32, BF16]),
    "normal": (lambda d, t: torch.normal(1.0, 2.0, (COUNT,), device=d, dtype=t), [F32]),
    "normal of means": (lambda d, t: torch.normal(columns(-1, 0, 7)(d, t), 1.5), [F32, F16]),
    "normal of deviations": (lambda d, t: torch.normal(1.5, columns(0, 0.5, 7)(d, t)), [F32, F16]),
    "normal of both": (lambda d, t: torch.normal(columns(1, 0, 7)(d, t), columns(0, 0.5, 7)(d, t)), [F32, BF16]),
    "log_normal_": (lambda d, t: empty(d, t).log_normal_(0.5, 0.7), [F32, BF16]),
    "exponential_": (lambda d, t: empty(d, t).exponential_(1.7), [F32, BF16]),
    "cauchy_": (lambda d, t: empty(d, t).cauchy_(1, 2), [F32, F16]),
    "geometric_": (lambda d, t: empty(d, t).geometric_(0.2), [F32, BF16, I64, U8]),
    "randint": (lambda d, t: torch.randint(3, 40, (COUNT,), device=d, dtype=t), [I64, U8, F32]),
    "randint bool": (lambda d, t: torch.randint(2, (COUNT,), device=d, dtype=t), [BOOL]),
    "randint long": (lambda d, t: torch.randint(-(2**62), 2**62, (COUNT,), device=d, dtype=t), [I64]),
    "randint_like": (lambda d, t: torch.randint_like(empty(d, t), 5, 9), [I64, F32]),
    "random_": (lambda d, t: empty(d, t).random_(), [I64, U8, BOOL, F32, BF16]),
    "random_ to": (lambda d, t: empty(d, t).random_(50), [I64, U8, F32]),
    "random_ from": (lambda d, t: empty(d, t).random_(5, None), [I64, I8, BF16]),
    "random_ all bits": (lambda d, t: empty(d, t).random_(-(2**63), None), [I64, F32]),
    "randperm": (lambda d, t: torch.randperm(20_000, device=d, dtype=t)[:COUNT], [I64, F32]),
    "bernoulli": (lambda d, t: chances(d, t).bernoulli(), [F32, F16]),
    "bernoulli p": (lambda d, t: torch.bernoulli(empty(d, t), 0.3), [F32]),
    "bernoulli_": (lambda d, t: empty(d, t).bernoulli_(0.3), [F32, I64, BOOL]),
    "bernoulli_ of chances": (lambda d, t: torch.empty_like(chances(d, t)).bernoulli_(chances(d, F32)), [F32, U8]),
    "poisson": (lambda d, t: torch.poisson(rates(d, t)), [F32, BF16]),
    "binomial": (lambda d, t: torch.binomial(trials(d, t), odds(d, t)), [F32]),
    "_standard_gamma": (lambda d, t: torch._standard_gamma(shapes(d, t)), [F32, F64]),
    "_sample_dirichlet": (lambda d, t: torch._sample_dirichlet(concentrations(d, t)), [F32, F64]),
    "multinomial": (lambda d, t: weights(d, t)[0].multinomial(COUNT, replacement=True), [F32, BF16, F64]),
    "multinomial of rows": (lambda d, t: weights(d, t).multinomial(2, replacement=True), [F32]),
    "multinomial once": (lambda d, t: weights(d, t).multinomial(1), [F32, F16]),
    "multinomial without replacement": (lambda d, t: weights(d, t).multinomial(3), [F32, BF16]),
    "dropout": (lambda d, t: F.dropout(ones(d, t), 0.3), [F32, BF16]),
    "native_dropout": (lambda d, t: torch.native_dropout(ones(d, t), 0.3, True)[1], [F32]),
    "dropout2d": (lambda d, t: F.dropout2d(ones(d, t, COUNT // 4, 4, 2, 2), 0.3), [F32]),
    "alpha_dropout": (lambda d, t: F.alpha_dropout(ones(d, t), 0.3, training=True), [F32, BF16]),
    "feature_alpha_dropout": (lambda d, t: F.feature_alpha_dropout(ones(d, t, COUNT // 4, 4, 2), 0.3, True), [F32]),
    "rrelu": (lambda d, t: F.rrelu(-ones(d, t), 0.1, 0.6, training=True), [F32, BF16]),
    "gumbel_softmax": (lambda d, t: F.gumbel_softmax(ones(d, t, COUNT // 4, 4), 0.7)[:, 0], [F32]),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_operators(name):
    draw, dtypes = SAMPLERS[name]
    for dtype in dtypes:
        # The CPU rounds normal numbers of half precision twice: they have the same distribution, other values.
        discrete = False if "norm" in name else None
        assert_alike(sample(draw, "tpu", dtype), sample(draw, "cpu", dtype), discrete)


def test_half_precision_that_the_cpu_has_not():
    """As on CUDA; compared with float32."""
    for name in ("binomial", "_standard_gamma", "_sample_dirichlet"):
        draw, _ = SAMPLERS[name]
        ours = sample(draw, "tpu", BF16)
        # The last column's parameter is rounded.
        assert_alike(ours[:, :-1], sample(draw, "cpu", F32).bfloat16()[:, :-1], False)


def parameters(*values):
    return [torch.tensor(v) for v in values]


# distribution: (its type or a function, parameters)
DISTRIBUTIONS = {
    "Bernoulli": (D.Bernoulli, parameters([0.1, 0.5, 0.9])),
    "Beta": (D.Beta, parameters([0.5, 2.0], [1.5, 3.0])),
    "Binomial": (D.Binomial, parameters([10.0, 40.0], [0.3, 0.6])),
    "Categorical": (D.Categorical, parameters([[1.0, 2, 3], [3.0, 0, 1]])),
    "Cauchy": (D.Cauchy, parameters([0.0, 1.0], [1.0, 2.0])),
    "Chi2": (D.Chi2, parameters([1.0, 4.0])),
    "ContinuousBernoulli": (D.ContinuousBernoulli, parameters([0.2, 0.5])),
    "Dirichlet": (D.Dirichlet, parameters([0.5, 1.0, 4.0])),
    "Exponential": (D.Exponential, parameters([0.5, 3.0])),
    "FisherSnedecor": (D.FisherSnedecor, parameters([3.0, 5.0], [8.0, 10.0])),
    "Gamma": (D.Gamma, parameters([0.3, 5.0], [1.0, 2.0])),
    "GeneralizedPareto": (D.GeneralizedPareto, parameters([0.0, 1.0], [1.0, 2.0], [0.2, 0.4])),
    "Geometric": (D.Geometric, parameters([0.2, 0.7])),
    "Gumbel": (D.Gumbel, parameters([0.0, 1.0], [1.0, 2.0])),
    "HalfCauchy": (D.HalfCauchy, parameters([1.0, 2.0])),
    "HalfNormal": (D.HalfNormal, parameters([1.0, 2.0])),
    "Independent": (lambda mean, std: D.Independent(D.Normal(mean, std), 1), parameters([0.0, 1.0], [1.0, 2.0])),
    "InverseGamma": (D.InverseGamma, parameters([2.0, 3.0], [1.0, 2.0])),
    "Kumaraswamy": (D.Kumaraswamy, parameters([0.8, 2.0], [1.5, 3.0])),
    "LKJCholesky": (lambda concentration: D.LKJCholesky(3, concentration), parameters(0.7)),
    "Laplace": (D.Laplace, parameters([0.0, 1.0], [1.0, 2.0])),
    "LogNormal": (D.LogNormal, parameters([0.0, 1.0], [0.5, 1.0])),
    "LogisticNormal": (D.LogisticNormal, parameters([0.0, 1.0], [1.0, 2.0])),
    "LowRankMultivariateNormal": (D.LowRankMultivariateNormal, parameters([0.0, 1.0], [[1.0], [0.5]], [1.0, 2.0])),
    "MixtureSameFamily": (lambda w, mean, std: D.MixtureSameFamily(D.Categorical(w), D.Normal(mean, std)),
                          parameters([0.3, 0.7], [-2.0, 2.0], [1.0, 0.5])),
    "Multinomial": (lambda weights: D.Multinomial(10, weights), parameters([1.0, 2.0, 3.0])),
    "MultivariateNormal": (D.MultivariateNormal, parameters([0.0, 1.0], [[2.0, 0.5], [0.5, 1.0]])),
    "NegativeBinomial": (D.NegativeBinomial, parameters([3.0, 8.0], [0.3, 0.6])),
    "Normal": (D.Normal, parameters([0.0, 1.0], [1.0, 2.0])),
    "OneHotCategorical": (D.OneHotCategorical, parameters([1.0, 2.0, 3.0])),
    "OneHotCategoricalStraightThrough": (D.OneHotCategoricalStraightThrough, parameters([1.0, 2.0, 3.0])),
    "Pareto": (D.Pareto, parameters([1.0, 2.0], [2.0, 3.0])),
    "Poisson": (D.Poisson, parameters([0.5, 20.0])),
    "RelaxedBernoulli": (D.RelaxedBernoulli, parameters(0.7, [0.2, 0.6])),
    "RelaxedOneHotCategorical": (D.RelaxedOneHotCategorical, parameters(0.7, [1.0, 2.0, 3.0])),
    "StudentT": (D.StudentT, parameters([3.0, 8.0])),
    "TransformedDistribution": (
        lambda mean, std: D.TransformedDistribution(D.Normal(mean, std), [D.SigmoidTransform()]),
        parameters([0.0, 1.0], [1.0, 2.0])),
    "Uniform": (D.Uniform, parameters([-1.0, 0.0], [1.0, 3.0])),
    "VonMises": (D.VonMises, parameters([0.0, 1.0], [1.0, 4.0])),
    "Weibull": (D.Weibull, parameters([1.0, 2.0], [2.0, 0.7])),
    "Wishart": (D.Wishart, parameters(5.0, [[2.0, 0.5], [0.5, 1.0]])),
}


def test_every_distribution_is_here():
    known = {c.__name__ for c in vars(D).values() if isinstance(c, type) and issubclass(c, D.Distribution)}
    assert known - {"Distribution", "ExponentialFamily"} == set(DISTRIBUTIONS)


@pytest.mark.filterwarnings("ignore:Singular sample")
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_distributions(name):
    make, values = DISTRIBUTIONS[name]
    torch.manual_seed(1)
    ours, theirs = (make(*(v.to(device) for v in values)).sample((2000,)) for device in ("tpu", "cpu"))
    assert_alike(ours, theirs)


def test_gradients_of_samples():
    """Those of gamma and Dirichlet variates equal the CPU's for the same sample; those of the others are zero."""
    shape = shapes("tpu", F64)[:50, 1:].contiguous().requires_grad_()
    drawn = torch._standard_gamma(shape)
    drawn.sum().backward()
    torch.testing.assert_close(shape.grad.cpu(), torch._standard_gamma_grad(shape.detach().cpu(), drawn.detach().cpu()))
    concentration = concentrations("tpu", F64)[:50].contiguous().requires_grad_()
    drawn = D.Dirichlet(concentration).rsample()
    drawn.square().sum().backward()
    x, c = drawn.detach().cpu(), concentration.detach().cpu()
    step = torch._dirichlet_grad(x, c, c.sum(-1, True).expand_as(c))
    assert concentration.grad.isfinite().all()
    torch.testing.assert_close(concentration.grad.cpu(), step * (2 * x - (x * 2 * x).sum(-1, keepdim=True)))
    for draw in (torch.poisson, torch.bernoulli, lambda t: (t * 1).uniform_()):
        p = torch.full((4,), 0.5, device="tpu", requires_grad=True)
        draw(p).sum().backward()
        assert p.grad is None or not p.grad.any()


@pytest.mark.parametrize("name", ["rand", "randn", "exponential_", "poisson", "_standard_gamma", "binomial"])
def test_independence(name):
    """Neighbours, successive draws, draws from successive seeds and from a seed's halves are uncorrelated."""
    draw = SAMPLERS[name][0]
    samples = []
    for seed in (0, None, 1, 2**32):
        if seed is not None:
            torch.manual_seed(seed)
        samples.append(draw("tpu", F32).cpu().double())
    samples = [t.reshape(len(t), -1)[:, -1] for t in samples]
    pairs = [(samples[i], samples[j]) for i in range(4) for j in range(i)] + [(t[1:], t[:-1]) for t in samples]
    for pair in pairs:
        assert abs(torch.corrcoef(torch.stack(pair))[0, 1].item()) < 4.5 / math.sqrt(len(samples[0]))


def test_permutations():
    for n in (0, 1, 2, 1000, 20_000):
        assert torch.equal(torch.randperm(n, device="tpu").cpu().sort().values, torch.arange(n))
    orders = torch.stack([torch.randperm(3, device="tpu").cpu() for _ in range(60)])
    assert len(orders.unique(dim=0)) == 6


def test_multinomial_without_replacement():
    table = torch.tensor([[0.0, 1, 2, 0, 4], [1, 1, 0, 1, 1]])
    picks = table.tpu().repeat(50, 1).multinomial(3).cpu()
    assert (picks.sort(-1).values.diff(dim=-1) > 0).all()  # no pick twice
    assert set(picks[::2].flatten().tolist()) == {1, 2, 4} and 2 not in picks[1::2]


def test_ranges():
    x = torch.cat([torch.rand(50_000, device="tpu").cpu() for _ in range(4)])
    assert 0 <= x.min() < 1e-3 and 1 - 1e-3 < x.max() < 1
    for dtype in (BF16, F16):  # dense near zero, and one is never reached
        x = torch.rand(100_000, device="tpu", dtype=dtype).cpu()
        assert x.max() < 1 and 0 < x[x > 0].min() < 1e-4
    assert 4 < max(torch.randn(50_000, device="tpu").abs().max().item() for _ in range(4)) < 7
    assert torch.empty(50_000, device="tpu").exponential_().min().item() > 0
    share = torch._sample_dirichlet(torch.full((5000, 2), 0.01, device="tpu"))
    assert share.min().item() > 0 and share.max().item() < 1 and share.isfinite().all()


NAN, INF = math.nan, math.inf
LONG = {"dtype": I64}


def one(device, *shape, **options):
    return torch.ones(*(shape or (3,)), device=device, **options)


# What the CPU refuses.
REFUSED = {
    "uniform_ order": lambda d: one(d).uniform_(2, 1),
    "uniform_ nan": lambda d: one(d).uniform_(NAN, 1),
    "uniform_ inf": lambda d: one(d).uniform_(0, INF),
    "uniform_ wide": lambda d: one(d).uniform_(-3e38, 3e38),
    "uniform_ float16": lambda d: one(d, dtype=F16).uniform_(0, 1e6),
    "uniform_ int64": lambda d: one(d, **LONG).uniform_(),
    "rand int64": lambda d: torch.rand(3, device=d, **LONG),
    "rand bool": lambda d: torch.rand(3, device=d, dtype=BOOL),
    "rand out": lambda d: torch.rand(3, out=one(d, **LONG)),
    "rand size": lambda d: torch.rand(-1, device=d),
    "rand_like int64": lambda d: torch.rand_like(one(d, **LONG)),
    "randn int64": lambda d: torch.randn(3, device=d, **LONG),
    "normal_ deviation": lambda d: one(d).normal_(0, -1),
    "normal_ nan": lambda d: one(d).normal_(0, NAN),
    "normal_ int64": lambda d: one(d, **LONG).normal_(),
    "normal deviation": lambda d: torch.normal(one(d), -1.0),
    "normal deviations": lambda d: torch.normal(0.0, -one(d)),
    "normal both": lambda d: torch.normal(one(d), -one(d)),
    "normal nan": lambda d: torch.normal(one(d), one(d) * NAN),
    "normal shapes": lambda d: torch.normal(one(d), one(d, 4)),
    "normal complex": lambda d: torch.normal(0.0, one(d, dtype=C64)),
    "normal int64": lambda d: torch.normal(one(d, **LONG), 1.0),
    "exponential_ 0": lambda d: one(d).exponential_(0),
    "exponential_ nan": lambda d: one(d).exponential_(NAN),
    "exponential_ int64": lambda d: one(d, **LONG).exponential_(),
    "cauchy_ 0": lambda d: one(d).cauchy_(0, 0),
    "cauchy_ int64": lambda d: one(d, **LONG).cauchy_(),
    "log_normal_ 0": lambda d: one(d).log_normal_(0, 0),
    "log_normal_ int64": lambda d: one(d, **LONG).log_normal_(),
    "geometric_ 0": lambda d: one(d).geometric_(0),
    "geometric_ 1": lambda d: one(d).geometric_(1),
    "geometric_ nan": lambda d: one(d).geometric_(NAN),
    "geometric_ bool": lambda d: one(d, dtype=BOOL).geometric_(0.5),
    "bernoulli_ 2": lambda d: one(d).bernoulli_(2),
    "bernoulli_ nan": lambda d: one(d).bernoulli_(NAN),
    "bernoulli_ complex": lambda d: one(d, dtype=C64).bernoulli_(0.5),
    "bernoulli_ chances": lambda d: one(d).bernoulli_(one(d) * 2),
    "bernoulli_ int64 chances": lambda d: one(d).bernoulli_(one(d, **LONG)),
    "bernoulli_ shapes": lambda d: one(d).bernoulli_(one(d, 4)),
    "bernoulli_ wider": lambda d: one(d, 1).bernoulli_(one(d, 4)),
    "bernoulli p": lambda d: torch.bernoulli(one(d), 2.0),
    "bernoulli 2": lambda d: torch.bernoulli(one(d) * 2),
    "bernoulli -1": lambda d: torch.bernoulli(-one(d)),
    "bernoulli nan": lambda d: torch.bernoulli(one(d) * NAN),
    "bernoulli int64": lambda d: torch.bernoulli(one(d, **LONG)),
    "bernoulli bool": lambda d: torch.bernoulli(one(d, dtype=BOOL)),
    "bernoulli complex": lambda d: torch.bernoulli(one(d, dtype=C64)),
    "random_ order": lambda d: one(d).random_(3, 3),
    "random_ 0": lambda d: one(d).random_(0),
    "random_ uint8 from": lambda d: one(d, dtype=U8).random_(-1, 3),
    "random_ uint8 to": lambda d: one(d, dtype=U8).random_(0, 300),
    "random_ bool": lambda d: one(d, dtype=BOOL).random_(0, 3),
    "random_ float16": lambda d: one(d, dtype=F16).random_(0, 70000),
    "random_ complex": lambda d: one(d, dtype=C64).random_(),
    "random_ complex range": lambda d: one(d, dtype=C64).random_(0, 3),
    "random_ int32 bits": lambda d: one(d, dtype=torch.int32).random_(-(2**63), None),
    "random_ float16 bits": lambda d: one(d, dtype=F16).random_(-(2**63), None),
    "randint order": lambda d: torch.randint(5, 5, (3,), device=d),
    "randint uint8": lambda d: torch.randint(0, 300, (3,), device=d, dtype=U8),
    "randint bool": lambda d: torch.randint(0, 3, (3,), device=d, dtype=BOOL),
    "randint complex": lambda d: torch.randint(0, 3, (3,), device=d, dtype=C64),
    "randint float": lambda d: torch.randint(0.5, (3,), device=d),
    "randint_like order": lambda d: torch.randint_like(one(d), 5, 3),
    "randperm -1": lambda d: torch.randperm(-1, device=d),
    "randperm uint8": lambda d: torch.randperm(300, device=d, dtype=U8),
    "randperm float16": lambda d: torch.randperm(3000, device=d, dtype=F16),
    "randperm bool": lambda d: torch.randperm(2, device=d, dtype=BOOL),
    "randperm complex": lambda d: torch.randperm(2, device=d, dtype=C64),
    "poisson -1": lambda d: torch.poisson(-one(d)),
    "poisson nan": lambda d: torch.poisson(one(d) * NAN),
    "poisson int64": lambda d: torch.poisson(one(d, **LONG)),
    "binomial int64": lambda d: torch.binomial(one(d, **LONG), one(d)),
    "binomial dtypes": lambda d: torch.binomial(one(d), one(d, dtype=F64)),
    "binomial shapes": lambda d: torch.binomial(one(d), one(d, 4)),
    "gamma int64": lambda d: torch._standard_gamma(one(d, **LONG)),
    "multinomial 0": lambda d: one(d).multinomial(0),
    "multinomial 4": lambda d: one(d).multinomial(4),
    "multinomial of 2^24 + 1": lambda d: one(d, 1).expand((1 << 24) + 1).multinomial(1),
    "multinomial of none": lambda d: one(d, 2, 0).multinomial(1),
    "multinomial int64": lambda d: one(d, **LONG).multinomial(1),
    "multinomial 0-dim": lambda d: torch.ones((), device=d).multinomial(1),
    "multinomial 3-dim": lambda d: one(d, 2, 2, 2).multinomial(1),
    "multinomial -1": lambda d: (-one(d)).multinomial(1),
    "multinomial nan": lambda d: (one(d) * NAN).multinomial(1),
    "multinomial inf": lambda d: (one(d) * INF).multinomial(2, True),
    "multinomial zeros": lambda d: (one(d) * 0).multinomial(2, True),
    "multinomial out": lambda d: torch.multinomial(one(d), 2, out=one(d)),
    "dropout 1.5": lambda d: torch.dropout(one(d), 1.5, True),
    "dropout -1": lambda d: torch.dropout(one(d), -1.0, False),
    "dropout nan": lambda d: torch.dropout(one(d), NAN, True),
    "native_dropout 1.5": lambda d: torch.native_dropout(one(d), 1.5, True),
    "alpha_dropout 2": lambda d: torch.alpha_dropout(one(d), 2.0, True),
    "feature_dropout 1-dim": lambda d: torch.feature_dropout(one(d), 0.5, True),
    "rrelu int64": lambda d: F.rrelu(one(d, **LONG), 0.1, 0.2, True),
    "rrelu order": lambda d: F.rrelu(-one(d), 0.5, 0.2, True),
    "rrelu inf": lambda d: F.rrelu(-one(d), 0, INF, True),
    "rrelu noise": lambda d: torch._C._nn.rrelu_with_noise(-one(d), one(d, 4), 0.1, 0.2, True),
    "expanded": lambda d: one(d, 1).expand(3).uniform_(),
    "leaf": lambda d: one(d, requires_grad=True).uniform_(),
    "seed float": lambda d: torch.Generator(d).manual_seed(1.5),
    "seed large": lambda d: torch.Generator(d).manual_seed(2**64),
    "seed small": lambda d: torch.Generator(d).manual_seed(-(2**63) - 1),
    "state short": lambda d: torch.Generator(d).set_state(torch.zeros(3, dtype=U8)),
    "state float": lambda d: torch.Generator(d).set_state(torch.zeros(16)),
    "state none": lambda d: torch.Generator(d).set_state(None),
}


def refusal(call, device):
    try:
        result = call(device)
        for tensor in result if isinstance(result, tuple) else [result]:
            tensor.cpu()
    except Exception as error:  # noqa: BLE001
        return type(error)
    return None


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    expected = refusal(REFUSED[name], "cpu")
    if expected is None:
        pytest.fail("the CPU accepts this")
    assert refusal(REFUSED[name], "tpu") is expected

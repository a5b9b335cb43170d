"""Gradients: numerically right, equal to the CPU's, and with hooks, checkpoints, autocast and torch.compile."""
import copy

import pytest
import torch
import torch.nn.functional as F
from models import ConvNet, Mlp, Training, gpt
from torch import nn
from torch.autograd import gradcheck, gradgradcheck
from torch.utils.checkpoint import checkpoint


def matrix(rows=3, columns=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, columns, dtype=torch.float64, generator=generator).tpu().requires_grad_()


CHECKED = {
    "pointwise": lambda x: (x * x.exp() / (1 + x.abs())).tanh(),
    "softmax": lambda x: F.log_softmax(x, 1) * x.softmax(0),
    "gelu": lambda x: F.gelu(x) + F.silu(x),
    "layer_norm": lambda x: F.layer_norm(x, (4,), x[0], x[1]),
    "matmul": lambda x: x @ x.t() @ x,
    "reductions": lambda x: x.sum(0) * x.mean() + x.var(0) + x.amax(0) + x.prod(0) + x.norm(),
    "views": lambda x: x.t()[1:].unfold(1, 2, 1).diagonal() * x.view(2, 6)[0, ::3],
    "indexing": lambda x: x[torch.tensor([0, 2, 0], device="tpu")].index_add(0, torch.tensor([1], device="tpu"), x[:1]),
    "in place": lambda x: (x * 1).mul_(2).add_(x).sigmoid_(),
    "sorting": lambda x: x.sort(1).values * x.cumsum(1) + x.topk(2, 1).values.sum(),
    "attention": lambda x: F.scaled_dot_product_attention(*(x.view(1, 1, 3, 4) * n for n in (1, 2, 3))),
    "solve": lambda x: torch.linalg.solve(x[:, :3] + 4 * torch.eye(3, dtype=x.dtype, device="tpu"), x),
    "cholesky": lambda x: torch.linalg.cholesky(x @ x.t() + torch.eye(3, dtype=x.dtype, device="tpu")),
    "convolution": lambda x: F.conv2d(x.view(1, 1, 3, 4), x.view(3, 1, 2, 2), padding=1),
    "pooling": lambda x: F.max_pool2d(x.view(1, 1, 3, 4), 2, 1) + F.avg_pool2d(x.view(1, 1, 3, 4), 2, 1),
    "embedding": lambda x: F.embedding(torch.tensor([2, 0, 2], device="tpu"), x),
    "loss": lambda x: F.cross_entropy(x, torch.tensor([0, 3, 1], device="tpu")) + F.mse_loss(x, x.sin()),
    "complex": lambda x: torch.view_as_complex(x.view(3, 2, 2)).mul(1 + 2j).abs(),
    "fft": lambda x: torch.fft.rfft(x).abs(),
    "interpolate": lambda x: F.interpolate(x.view(1, 1, 3, 4), scale_factor=2, mode="bilinear"),
}


@pytest.mark.parametrize("name", CHECKED)
def test_gradcheck(name):
    assert gradcheck(CHECKED[name], (matrix(),), fast_mode=True, nondet_tol=1e-10)


@pytest.mark.parametrize("name", ["pointwise", "softmax", "matmul", "layer_norm", "convolution"])
def test_double_backward(name):
    assert gradgradcheck(CHECKED[name], (matrix(),), fast_mode=True, nondet_tol=1e-10)


def test_gradient_penalty():
    results = []
    for device in ("cpu", "tpu"):
        torch.manual_seed(0)
        model, x = Mlp().to(device), torch.randn(5, 8).to(device).requires_grad_()
        gradient, = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        ((gradient.norm(dim=1) - 1) ** 2).mean().backward()
        results.append([p.grad.cpu() for p in model.parameters() if p.grad is not None])
    torch.testing.assert_close(results[1], results[0])


@pytest.mark.parametrize("kind", ["mlp", "convnet", "gpt"])
def test_gradients_equal_the_cpu(kind):
    torch.testing.assert_close(Training(kind, "tpu").gradients(), Training(kind, "cpu").gradients(),
                               rtol=1e-4, atol=1e-5)


def test_hooks_and_accumulation():
    seen = []
    layer = nn.Linear(3, 2).to("tpu")
    layer.weight.register_hook(lambda g: seen.append("tensor") or g * 2)
    layer.weight.register_post_accumulate_grad_hook(lambda p: seen.append("accumulated"))
    layer.register_full_backward_hook(lambda *_: seen.append("module"))
    x = torch.ones(4, 3, device="tpu", requires_grad=True)
    layer(x).sum().backward()
    assert seen == ["module", "tensor", "accumulated"] or sorted(seen) == ["accumulated", "module", "tensor"]
    assert layer.weight.grad.tolist() == [[8] * 3] * 2
    gradient = layer.weight.grad
    layer(x).sum().backward()
    assert layer.weight.grad is gradient and gradient.tolist() == [[16] * 3] * 2
    layer.zero_grad(set_to_none=False)
    assert layer.weight.grad is gradient and gradient.abs().sum().item() == 0


def test_saved_tensors_are_guarded():
    x = torch.ones(3, device="tpu", requires_grad=True)
    y = x.exp()
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    with pytest.raises(RuntimeError, match="leaf"):
        x.add_(1)
    with torch.no_grad():
        x.add_(1)
    assert x.tolist() == [2, 2, 2] and x.requires_grad
    with torch.inference_mode():
        assert (x * 2).tolist() == [4, 4, 4]


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint(reentrant):
    x = torch.randn(4, 8).tpu().requires_grad_()
    model = Mlp().to("tpu")
    model(x).sum().backward()
    expected = [x.grad.clone(), *(p.grad.clone() for p in model.parameters())]
    model.zero_grad()
    x.grad = None
    checkpoint(model, x, use_reentrant=reentrant).sum().backward()
    torch.testing.assert_close([x.grad, *(p.grad for p in model.parameters())], expected)


class Scale(torch.autograd.Function):
    """A user's function."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx, gradient):
        assert ctx.saved_tensors[0].is_tpu
        return gradient * ctx.factor, None


def test_user_functions_and_functional_transforms():
    x = torch.arange(3.0, device="tpu", requires_grad=True)
    Scale.apply(x, 3).sum().backward()
    assert x.grad.tolist() == [3, 3, 3]
    square = lambda t: (t * t).sum()  # noqa: E731
    assert torch.func.grad(square)(x.detach()).tolist() == [0, 2, 4]
    assert torch.func.vmap(lambda t: t * 2)(x.detach()).tolist() == [0, 2, 4]
    assert torch.func.hessian(square)(x.detach()).tolist() == [[2, 0, 0], [0, 2, 0], [0, 0, 2]]
    value, tangent = torch.func.jvp(square, (x.detach(),), (torch.ones(3, device="tpu"),))
    assert (value.item(), tangent.item()) == (5, 6)


def test_autocast():
    model, x = Mlp().to("tpu"), torch.randn(4, 8).tpu()
    for context in (torch.autocast("tpu"), torch.amp.autocast("tpu", dtype=torch.bfloat16), torch.tpu.amp.autocast()):
        with context:
            y = model(x)
            assert torch.is_autocast_enabled("tpu") and y.dtype == torch.bfloat16
            assert (x @ x.t()).dtype == torch.bfloat16 and x.exp().dtype == torch.float32
            assert F.softmax(y, -1).dtype == torch.float32 and y.sum().dtype == torch.float32
            assert F.mse_loss(y, y.float()).dtype == torch.float32
            with torch.autocast("tpu", enabled=False):
                assert (x @ x.t()).dtype == torch.float32
    assert not torch.is_autocast_enabled("tpu")
    F.cross_entropy(y.float(), torch.zeros(4, dtype=torch.long, device="tpu")).backward()
    assert model[0].weight.grad.dtype == torch.float32
    torch.testing.assert_close(y.float(), model(x), rtol=0.05, atol=0.05)
    with torch.autocast("tpu", dtype=torch.float16):
        assert model(x).dtype == torch.float16


def test_grad_scaler():
    torch.manual_seed(0)
    model = Mlp().to("tpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("tpu", init_scale=4.0, growth_interval=2)
    x, before = torch.randn(4, 8).tpu(), model[0].weight.detach().clone()
    for _ in range(2):
        optimizer.zero_grad()
        scaler.scale(model(x).square().mean()).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    assert scaler.get_scale() == 8 and not torch.equal(model[0].weight, before)
    before = model[0].weight.detach().clone()
    optimizer.zero_grad()
    scaler.scale(model(x).sum() * float("inf")).backward()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 4 and torch.equal(model[0].weight, before)  # the step was skipped
    other = torch.tpu.amp.GradScaler()
    other.load_state_dict(scaler.state_dict())
    assert other.get_scale() == 4


def test_compile_trains_like_eager():
    torch.manual_seed(0)
    eager = Mlp().to("tpu")
    model = copy.deepcopy(eager)
    compiled = torch.compile(model, backend="tpu", fullgraph=True)
    x, y = torch.randn(4, 8).tpu(), torch.tensor([0, 1, 2, 3]).tpu()
    for _ in range(2):
        for run, parameters in ((eager, eager), (compiled, model)):
            optimizer = torch.optim.SGD(parameters.parameters(), lr=0.1)
            optimizer.zero_grad()
            F.cross_entropy(run(x), y).backward()
            optimizer.step()
    torch.testing.assert_close(list(model.parameters()), list(eager.parameters()))


def test_compile_forms():
    """Mutation, random numbers, batch norm buffers, attention, and shapes that change."""
    @torch.compile(backend="tpu", fullgraph=True)
    def function(x, out):
        out.add_(x.sin())
        return x.relu() * 2, torch.rand_like(x)

    x, out = torch.tensor([-1.0, 1.0], device="tpu"), torch.zeros(2, device="tpu")
    doubled, noise = function(x, out)
    assert doubled.tolist() == [0, 2] and 0 <= noise.min().item() < 1
    torch.testing.assert_close(out, x.sin())
    model = ConvNet().to("tpu")
    torch.compile(model, backend="tpu")(torch.randn(2, 1, 8, 8).tpu()).sum().backward()
    assert model.features[1].num_batches_tracked.item() == 1
    network = gpt().to("tpu").eval()
    step = torch.compile(network, backend="tpu", dynamic=True)
    for length in (4, 6, 8):
        ids = torch.arange(length, device="tpu")[None]
        torch.testing.assert_close(step(ids), network(ids))


def test_plain_compile():
    x = torch.ones(3, device="tpu")
    assert torch.compile(lambda t: t * 2 + 1)(x).tolist() == [3, 3, 3]

"""torch.autocast("tpu"): the lists of torch.cuda, the way dtypes go through a training step, and GradScaler."""
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing._internal.autocast_test_lists import AutocastCPUTestLists, AutocastTestLists
from torch.utils.checkpoint import checkpoint

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
LOW = pytest.mark.parametrize("low", [BF16, F16])
# Of the CPU's lists: what CUDA's autocast leaves alone, so that the arguments decide.
ONLY_ON_CPU = {"_addmm_activation", "_native_multi_head_attention", "avg_pool3d", "reflection_pad1d"}


def cast(value, dtype, only=None):
    """`value` with its floating-point tensors (or those of dtype `only`) in `dtype`."""
    if isinstance(value, torch.Tensor):
        return value.to(dtype) if value.is_floating_point() and only in (None, value.dtype) else value
    return type(value)(cast(v, dtype, only) for v in value) if isinstance(value, (tuple, list)) else value


def calls(kind, name, arguments, keywords):
    """The ways to call an operator of a list: as a function and as a method, each a function of the arguments."""
    module = {"nn": torch._C._nn, "linalg": torch._C._linalg}.get(kind.split("_")[0], torch)
    if not kind.startswith("methods") and hasattr(module, name):
        yield lambda args: getattr(module, name)(*args, **keywords)
    if isinstance(arguments[0], torch.Tensor) and hasattr(torch.Tensor, name):
        yield lambda args: getattr(args[0], name)(*args[1:], **keywords)


def entries(lists):
    """(list, operator, arguments, keywords, dtype of the result or None) of AutocastTestLists."""
    for kind, operators in vars(lists).items():
        for name, arguments, *rest in operators:
            if isinstance(arguments, str):  # einsum
                arguments, rest = (arguments, torch.ones(2, 3, 4, 5), torch.ones(2, 6, 4, 5)), []
            keywords = next((r for r in rest if isinstance(r, dict)), {})
            yield kind, name, arguments, keywords, next((r for r in rest if isinstance(r, torch.dtype)), None)


def results_of(call, arguments):
    results = call(arguments)
    return [r for r in (results if isinstance(results, (tuple, list)) else [results]) if isinstance(r, torch.Tensor)]


def judge(entry, low, wrong, pairs):
    """Runs one entry; adds to `wrong` what has another dtype than expected, to `pairs` results and what they equal."""
    kind, name, arguments, keywords, expected = entry
    arguments = cast(cast(arguments, low, only=F16), low, only=BF16)
    arguments = torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t.to("tpu"), arguments)
    lower = kind.endswith(("fp16", "_16"))
    expected = expected or (low if lower else F32)
    for call in calls(kind, name, arguments, keywords):
        with torch.autocast("tpu", dtype=low):
            results = results_of(call, arguments)
        wrong.extend((kind, name, r.dtype) for r in results if r.dtype != expected)
        pairs.extend(zip(results, results_of(call, cast(arguments, low if lower else F32))))


def test_registrations_are_those_of_cuda():
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    names = [n for n in torch._C._dispatch_get_all_op_names() if n.startswith("aten::")]
    cuda, tpu = ({n for n in names if has(n, key)} for key in ("AutocastCUDA", "AutocastPrivateUse1"))
    assert cuda - tpu == {"aten::cudnn_convolution", "aten::cudnn_convolution_transpose"} and tpu < cuda
    assert len(tpu) > 100


@LOW
def test_lists(low):
    """CUDA's lists: dtypes, and the values of the same calls on arguments that were cast by hand."""
    wrong, pairs = [], []
    for entry in entries(AutocastTestLists("cpu")):
        if entry[0] != "banned" and not entry[1].startswith("cudnn_"):
            judge(entry, low, wrong, pairs)
    assert not wrong and len(pairs) > 150
    if low == BF16:  # casts are the same for both, and compiling both takes twice as long
        assert torch.stack([torch.equal(a.isnan(), b.isnan()) & (a.nan_to_num() == b.nan_to_num()).all()
                            for a, b in pairs]).all()


@LOW
def test_lists_of_the_cpu(low):
    wrong, count = [], 0
    for kind, name, arguments, keywords, expected in entries(AutocastCPUTestLists("cpu")):
        if name == "binary_cross_entropy":
            continue
        if name in ONLY_ON_CPU:
            expected = F32 if arguments[0].dtype == F32 else low
        judge((kind, name, arguments, keywords, expected), low, wrong, [])
        count += 1
    assert not wrong and count > 50


@LOW
def test_refused(low):
    x = torch.rand(3, device="tpu")
    with torch.autocast("tpu", dtype=low):
        for loss in (F.binary_cross_entropy, nn.BCELoss()):
            with pytest.raises(RuntimeError, match="unsafe to autocast"):
                loss(x, x)
        with torch.autocast("tpu", enabled=False):
            assert F.binary_cross_entropy(x, x).dtype == F32


def test_default_and_supported_dtypes():
    x = torch.ones(2, 2, device="tpu")
    assert torch.get_autocast_dtype("tpu") == BF16 and torch.tpu.get_amp_supported_dtype()[:2] == [BF16, F16]
    with torch.autocast("tpu"):
        assert (x @ x).dtype == BF16 and torch.get_autocast_dtype("tpu") == BF16
        with torch.autocast("tpu", dtype=F16):
            assert (x @ x).dtype == F16
            with torch.autocast("tpu", enabled=False):
                assert (x @ x).dtype == F32 and not torch.is_autocast_enabled("tpu")
            assert (x @ x).dtype == F16
        assert (x @ x).dtype == BF16
    assert (x @ x).dtype == F32
    with pytest.warns(UserWarning, match="not supported"), torch.autocast("tpu", dtype=F32):
        assert (x @ x).dtype == F32


def test_what_is_left_alone():
    """float64, integers, other devices and results that are written to."""
    x = torch.ones(2, 2, device="tpu")
    with torch.autocast("tpu"):
        assert (x.double() @ x.double()).dtype == torch.float64 and x.double().exp().dtype == torch.float64
        assert (x.long() + x.long()).dtype == torch.int64 and x.long().sum().dtype == torch.int64
        assert (x.cpu() @ x.cpu()).dtype == F32
        assert torch.mm(x, x, out=torch.empty(2, 2, device="tpu")).dtype == F32
        assert x.clone().addmm_(x, x).dtype == F32
        assert torch.sum(x.bfloat16(), dtype=torch.float64).dtype == torch.float64
        assert x.bfloat16().softmax(0, dtype=F16).dtype == F16
    with torch.autocast("cpu"):
        assert (x @ x).dtype == F32


def test_weights_are_cast_once():
    layer, x = nn.Linear(4, 4, device="tpu"), torch.ones(2, 4, device="tpu")
    with torch.autocast("tpu"):
        first = torch.mm(x, layer.weight).grad_fn.next_functions[1][0]
        assert torch.mm(x, layer.weight).grad_fn.next_functions[1][0] is first
    with torch.autocast("tpu"):
        assert torch.mm(x, layer.weight).grad_fn.next_functions[1][0] is not first
    with torch.autocast("tpu", cache_enabled=False):
        first = torch.mm(x, layer.weight).grad_fn.next_functions[1][0]
        assert torch.mm(x, layer.weight).grad_fn.next_functions[1][0] is not first


class Product(torch.autograd.Function):
    """A user's function with a forward in float32 and a backward in the autocast state of the forward."""

    @staticmethod
    @torch.amp.custom_fwd(device_type="tpu", cast_inputs=torch.float32)
    def forward(ctx, a, b):
        assert a.dtype == b.dtype == F32 and not torch.is_autocast_enabled("tpu")
        ctx.save_for_backward(a, b)
        return a @ b

    @staticmethod
    @torch.amp.custom_bwd(device_type="tpu")
    def backward(ctx, gradient):
        a, b = ctx.saved_tensors
        assert not torch.is_autocast_enabled("tpu")
        return gradient @ b.t(), a.t() @ gradient


def test_user_functions():
    a = torch.ones(2, 2, device="tpu", dtype=BF16, requires_grad=True)
    with torch.autocast("tpu"):
        y = Product.apply(a, a)
        assert y.dtype == F32
    y.sum().backward()
    assert a.grad.dtype == BF16 and a.grad.tolist() == [[4, 4], [4, 4]]


@LOW
def test_training_step(low):
    """Activations are low, parameters and their gradients float32; checkpoints and graphs see the same state."""
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU(), nn.Dropout(0.5), nn.Linear(8, 3)).to("tpu")
    x, labels = torch.randn(4, 8, device="tpu"), torch.tensor([0, 1, 2, 0], device="tpu")
    gradients = []
    for run in (layers, lambda t: checkpoint(layers, t, use_reentrant=False),
                lambda t: checkpoint(layers, t, use_reentrant=True), torch.compile(layers, backend="tpu")):
        torch.manual_seed(1)
        layers.zero_grad()
        with torch.autocast("tpu", dtype=low):
            y = run(x.clone().requires_grad_())
            loss = F.cross_entropy(y, labels)
        assert y.dtype == low and loss.dtype == F32
        loss.backward()
        gradients.append([p.grad for p in layers.parameters()])
        assert all(g.dtype == F32 for g in gradients[-1])
    for others in gradients[1:]:
        torch.testing.assert_close(others, gradients[0], rtol=2e-2, atol=1e-3)


def train(device, steps, optimizer_type, **options):
    """Trains with a GradScaler; steps: the factor of each loss. Returns weights and scales after each step."""
    weight = nn.Parameter(torch.linspace(-1, 1, 6, device=device).reshape(2, 3))
    optimizer = optimizer_type([weight], lr=0.1)
    scaler = torch.amp.GradScaler(device, init_scale=8.0, growth_interval=2, **options)
    history = []
    for factor in steps:
        optimizer.zero_grad()
        scaler.scale(((weight * factor) ** 2).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        history.append((weight.detach().cpu().clone(), scaler.get_scale()))
    return history


@pytest.mark.parametrize("optimizer_type", [torch.optim.SGD, torch.optim.Adam])
def test_scaler_equals_the_cpu(optimizer_type):
    """Growth after two good steps, halving and no step at inf and nan."""
    steps = [1.0, 0.5, 1.0, float("inf"), 1.0, float("nan"), 1.0, 1.0]
    ours, theirs = (train(device, steps, optimizer_type) for device in ("tpu", "cpu"))
    assert [scale for _, scale in ours] == [scale for _, scale in theirs] == [8, 16, 16, 8, 8, 4, 4, 8]
    for before, after in ((2, 3), (4, 5)):
        assert torch.equal(ours[before][0], ours[after][0])  # skipped
    torch.testing.assert_close([w for w, _ in ours], [w for w, _ in theirs])


def test_scaler_unscales():
    weight = nn.Parameter(torch.ones(3, device="tpu"))
    others = nn.Parameter(torch.ones(2, device="tpu", dtype=BF16))
    optimizer = torch.optim.SGD([weight, others], lr=1.0)
    scaler = torch.amp.GradScaler("tpu", init_scale=1024.0)
    loss = weight.sum() * 3 + others.float().sum()
    scaled, listed = scaler.scale(loss), scaler.scale([loss, (loss,)])
    assert scaled.item() == loss.item() * 1024 and listed[1][0].item() == scaled.item()
    scaled.backward()
    assert weight.grad.tolist() == [3072.0] * 3
    scaler.unscale_(optimizer)
    assert weight.grad.tolist() == [3.0] * 3 and others.grad.tolist() == [1.0] * 2
    assert nn.utils.clip_grad_norm_([weight], 1.0).item() == pytest.approx(27**0.5)
    with pytest.raises(RuntimeError, match="already been called"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    with pytest.raises(RuntimeError, match="already been called"):
        scaler.step(optimizer)
    scaler.update(64.0)
    assert scaler.get_scale() == 64 and weight.tolist() == pytest.approx([1 - 3**-0.5] * 3)


def test_scaler_refuses():
    scaler = torch.amp.GradScaler("tpu")
    with pytest.raises(AssertionError):
        scaler.update()
    weight = nn.Parameter(torch.ones(3, device="tpu", dtype=F16))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler.scale(weight.sum()).backward()
    with pytest.raises(ValueError, match="FP16"):
        scaler.unscale_(optimizer)
    disabled = torch.amp.GradScaler("tpu", enabled=False)
    assert disabled.scale(weight) is weight and disabled.get_scale() == 1.0 and disabled.state_dict() == {}


def test_scaler_keeps_optimizers_apart():
    """An inf in the gradients of one optimizer skips that one's step only."""
    first, second = (nn.Parameter(torch.ones(2, device="tpu")) for _ in range(2))
    optimizers = [torch.optim.SGD([p], lr=0.5) for p in (first, second)]
    scaler = torch.amp.GradScaler("tpu", init_scale=4.0)
    scaler.scale(first.sum() * float("inf") + second.sum()).backward()
    for optimizer in optimizers:
        scaler.step(optimizer)
    scaler.update()
    assert first.tolist() == [1, 1] and second.tolist() == [0.5, 0.5] and scaler.get_scale() == 2


def test_scaler_state():
    scaler = torch.amp.GradScaler("tpu", init_scale=4.0, growth_factor=3.0, backoff_factor=0.25, growth_interval=7)
    scaler.scale(torch.ones(1, device="tpu"))
    other = torch.amp.GradScaler("tpu")
    other.load_state_dict(scaler.state_dict())
    assert other.state_dict() == scaler.state_dict() and other.get_scale() == 4
    assert other.get_backoff_factor() == 0.25 and other.get_growth_interval() == 7


def test_float16_training_with_a_scaler():
    """Gradients that vanish in float16 arrive when the loss is scaled, and not otherwise."""
    torch.manual_seed(0)
    found = {}
    for scale in (1.0, 2.0**16):
        layer = nn.Linear(4, 4, bias=False, device="tpu")
        scaler = torch.amp.GradScaler("tpu", init_scale=scale)
        with torch.autocast("tpu", dtype=F16):
            loss = layer(torch.ones(2, 4, device="tpu")).float().mul(1e-9).sum()
        scaler.scale(loss).backward()
        scaler.unscale_(torch.optim.SGD(layer.parameters(), lr=1.0))
        found[scale] = layer.weight.grad.abs().max().item()
    assert found[1.0] == 0 and found[2.0**16] == pytest.approx(2e-9, rel=0.02)

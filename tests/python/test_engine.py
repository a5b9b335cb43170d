"""What the engine promises in exact counts (compiles, programs, live buffers), and errors at the call causing them."""
import gc
import re
import resource
import threading

import pytest
import torch
from models import Training
from torch import nn

KINDS = ["mlp", "convnet", "gpt"]


def compiles():
    return torch.tpu.counters()["compiles"]


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def live_buffers():
    gc.collect()
    torch.tpu.synchronize()
    return torch.tpu.memory_stats()["live_buffers"]


SCALARS = {
    "add": lambda x, n: x + n,
    "add alpha": lambda x, n: torch.add(x, x, alpha=n),
    "mul_": lambda x, n: x.clone().mul_(n),
    "div": lambda x, n: x / n,
    "rsub": lambda x, n: n - x,
    "fill_": lambda x, n: torch.empty_like(x).fill_(n),
    "full": lambda x, n: torch.full((3,), n, device="tpu"),
    "clamp": lambda x, n: x.clamp(-n, n),
    "addcmul": lambda x, n: torch.addcmul(x, x, x, value=n),
    "lerp": lambda x, n: x.lerp(x + 1, n),
    "masked_fill": lambda x, n: x.masked_fill(x > 0, n),
    "where": lambda x, n: torch.where(x > 0, x, n),
    "compare": lambda x, n: x > n,
    "leaky_relu": lambda x, n: nn.functional.leaky_relu(x, n),
    "dropout": lambda x, n: nn.functional.dropout(x, n / 10),
    "uniform_": lambda x, n: torch.empty_like(x).uniform_(-n, n),
    "addmm": lambda x, n: torch.addmm(x, x.view(3, 1), x.view(1, 3), alpha=n, beta=n)[0],
    "seed": lambda x, n: (torch.manual_seed(int(1000 * n)), torch.rand(3, device="tpu"))[1],
}


@pytest.mark.parametrize("name", SCALARS)
def test_scalars_that_change_compile_nothing(name):
    x = torch.tensor([-1.5, 0.5, 2.5], device="tpu")
    numbers = [0.3, 0.7, 1.9, 3.1]
    torch.tpu.synchronize()  # what others left pending
    SCALARS[name](x, 0.6).cpu()
    before = compiles()
    results = [SCALARS[name](x, n).cpu() for n in numbers]
    assert compiles() == before
    assert len({tuple(r.tolist()) for r in results}) > 1 or name == "compare"


INTEGERS = {
    "add": lambda x, k: x + k,
    "clamp_": lambda x, k: x.clone().clamp_(-k, k),
    "full": lambda x, k: torch.full((3,), k, device=x.device),
    "uniform_": lambda x, k: x.float().uniform_(-k, k + 1),
    "normal_": lambda x, k: x.float().normal_(k, k + 1),
    "random_": lambda x, k: x.clone().random_(-k, k + 1),
    "random_ floats": lambda x, k: x.float().random_(k, 2 * k + 1),
    "random_ below": lambda x, k: x.clone().random_(k + 1),
    "randint": lambda x, k: torch.randint(k, 2 * k + 1, (5,), device=x.device),
    "shift": lambda x, k: x << (k % 20),
    "remainder": lambda x, k: x % (k + 1),
    "scatter": lambda x, k: x.scatter(0, x[:3], k),
    "index_fill": lambda x, k: x.index_fill(0, x[:3], k),
    "linspace": lambda x, k: torch.linspace(0, k, 5, device=x.device),
    "quantile": lambda x, k: x.float().quantile(k / 60),
    "histc": lambda x, k: x.float().histc(5, 0, k + 10),
    "element": lambda x, k: x[k],
    "row": lambda x, k: x.view(50, 2)[k],
    "indexed": lambda x, k: x[torch.tensor([k], device=x.device)],
    "row of a program": lambda x, k: x.view(50, 2)[k] + 1,
    "column of a program": lambda x, k: x.view(2, 50)[:, k] + 1,
    "steps of a row": lambda x, k: x.view(2, 10, 5).clone()[:, k % 10, ::2] + k // 10,
    "batch of a data set": lambda x, k: x[k:k + 10] + 1,
    "row written": lambda x, k: x.clone().view(50, 2)[k].fill_(7)._base,
    "column written": lambda x, k: x.clone().view(2, 50)[:, k].copy_(x[k:k + 2])._base,
    "steps of a row written": lambda x, k: x.view(2, 10, 5).clone()[:, k % 10, ::2].add_(k // 10)._base,
    "triangle": lambda x, k: x.view(10, 10).tril(k % 19 - 9),
}


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_that_change_compile_nothing(name):
    x = torch.tensor(range(100), device="tpu")
    INTEGERS[name](x, 7).cpu()
    before = compiles()
    results = [INTEGERS[name](x, k).cpu() for k in range(50)]
    assert compiles() == before and len({str(result.tolist()) for result in results}) > 10
    if "random" not in name and not name.endswith(("_", "randint")):
        assert all(torch.equal(INTEGERS[name](x.cpu(), k), result) for k, result in enumerate(results))


@pytest.mark.parametrize("optimizer, options", [
    (torch.optim.SGD, {"momentum": 0.9, "weight_decay": 0.1}), (torch.optim.AdamW, {}),
    (torch.optim.AdamW, {"fused": True}), (torch.optim.Adam, {"foreach": False}), (torch.optim.RMSprop, {}),
], ids=["sgd", "adamw", "fused adamw", "adam", "rmsprop"])
def test_learning_rates_compile_nothing(optimizer, options):
    run, reference = (Training("mlp", device, optimizer, **options) for device in ("tpu", "cpu"))
    counts = []
    for step in range(6):
        for training in (run, reference):
            training.optimizer.param_groups[0]["lr"] = 1e-3 * (step + 1)
        difference = abs(run.step().item() - reference.step().item())
        assert difference < 1e-5
        counts.append(compiles())
    assert counts[2:] == [counts[2]] * 4


@pytest.mark.parametrize("kind", KINDS)
def test_steady_training(kind, mode):
    """Nothing is compiled from the third step on, buffers stay as many, and the loss is the CPU's."""
    run = Training(kind, "tpu")
    losses, counts, buffers = [], [], []
    for _ in range(6):
        losses.append(run.step().item())
        counts.append(compiles())
        buffers.append(torch.tpu.memory_stats()["live_buffers"])
    assert counts[2:] == [counts[2]] * 4, counts
    assert buffers[2:] == [buffers[2]] * 4, buffers
    reference = Training(kind, "cpu")
    torch.testing.assert_close(losses, [reference.step().item() for _ in range(6)], rtol=2e-4, atol=2e-4)


def test_steady_programs_touch_no_new_pages():
    """Their results and scratch memory come from pages that the process keeps."""
    x = torch.ones(16 << 20, device="tpu")

    def faults():
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        y = x * 2
        y[0].item()
        del y
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    counts = [faults() for _ in range(16)]
    assert sum(count < 100 for count in counts) > 8, counts  # 64 MiB are 16,384 pages
    resident = resident_bytes()
    del x
    torch.tpu.empty_cache()
    assert resident_bytes() <= resident


@pytest.mark.parametrize("mode_name, steps", [("fused", 200), ("strict", 25)])
def test_long_training(mode_name, steps):
    torch.tpu.set_mode(mode_name)
    run = Training("mlp", "tpu")
    for _ in range(20):
        run.step().item()
    buffers, resident, before = live_buffers(), resident_bytes(), compiles()
    for _ in range(steps):
        run.step().item()
    assert compiles() == before and live_buffers() == buffers
    assert resident_bytes() - resident < 16 << 20


def test_training_without_host_reads():
    """The cut rule settles on one program by itself."""
    run = Training("mlp", "tpu")
    for _ in range(60):
        loss = run.step()
    before, resident = torch.tpu.counters(), resident_bytes()
    for _ in range(140):
        loss = run.step()
    after = torch.tpu.counters()
    assert after["compiles"] == before["compiles"] and after["host_reads"] == before["host_reads"]
    assert after["programs_run"] - before["programs_run"] >= 10
    assert resident_bytes() - resident < 16 << 20 and 0 < loss.item() < 3


def test_one_program_per_step_with_a_read():
    run = Training("mlp", "tpu")
    for _ in range(3):
        run.step().item()
    before = torch.tpu.counters()
    run.step().item()
    after = torch.tpu.counters()
    assert after["programs_run"] - before["programs_run"] == 1 and after["host_reads"] - before["host_reads"] == 1
    assert after["fallbacks"] == 0


# Each raises on every device.
ERRORS = [
    lambda x: x @ x.new_ones(5, 5),
    lambda x: x + x.new_ones(7),
    lambda x: x.view(5),
    lambda x: torch.cat([x, x.new_ones(1, 2, 3)]),
    lambda x: x.sum(5),
    lambda x: x[9],
    lambda x: x.transpose(0, 4),
    lambda x: x.int().div_(2.5),
    lambda x: torch.add(x, 1, out=x.int()),
    lambda x: x.bool() - x.bool(),
    lambda x: torch.linalg.inv(x),
    lambda x: nn.functional.conv2d(x, x),
    lambda x: x.gather(0, x),
    lambda x: nn.functional.linear(x, x.new_ones(4, 9)),
    lambda x: nn.functional.cross_entropy(x, x.new_zeros(5, dtype=torch.long)),
    lambda x: torch.add(x, "text"),
    lambda x: x.item(),
    lambda x: torch.arange(3, 0, 1, device=x.device),
    lambda x: x.expand(3, 3),
    lambda x: x.long().softmax(0).backward(),
    lambda x: x.index_select(0, x),
    lambda x: torch.stack([x, x[0]]),
    lambda x: x.view(torch.float64),
    lambda x: x.clone().resize_(-1),
    lambda x: torch.empty(-1, device=x.device),
    lambda x: nn.functional.max_pool2d(x[None], 9),
    lambda x: x.new_tensor([1, 2], dtype=torch.int32).bitwise_and(x[0, :2]),
]


def raised_by(use, device):
    with pytest.raises(Exception) as caught:  # noqa: PT011  the type is what is compared
        use(torch.ones(2, 3, device=device))
    return caught.value


@pytest.mark.parametrize("index", range(len(ERRORS)))
def test_errors_at_the_call(index):
    """The same type of exception as on the CPU, at the call, and the device works afterwards."""
    error = raised_by(ERRORS[index], "tpu")
    assert type(error) is type(raised_by(ERRORS[index], "cpu")), repr(error)
    assert "INTERNAL ASSERT" not in str(error)
    assert (torch.ones(2, device="tpu") + 1).tolist() == [2, 2]


def test_out_of_memory(mode):
    x = torch.ones(2, device="tpu")
    huge = 2**38  # a terabyte of floats
    for use in (lambda: torch.empty(huge, device="tpu"), lambda: torch.ones(2, huge // 2, device="tpu"),
                lambda: x[0].expand(huge) * 2, lambda: x[:1].expand(huge).contiguous(),
                lambda: x.new_zeros(huge // 2, dtype=torch.float64)):
        with pytest.raises(torch.OutOfMemoryError, match="tpu:0"):
            use()
        assert (x * 3).tolist() == [3, 3]


def test_memory_limit(forked):
    """Buffers count against the limit, and give their room back."""
    forked("""
        x = torch.ones(4 << 20, device="tpu")
        x.sum().item()
        try:
            [torch.ones(4 << 20, device="tpu").add_(i).sum().item() for i in range(2)]
            kept = [(x + i, (x + i).sum().item())[0] for i in range(8)]
            print(sum(k[0].item() for k in kept))
        except torch.OutOfMemoryError as error:
            assert "out of memory" in str(error), error
            print("out of memory")
        kept = None
        assert (x[:2] + 1).tolist() == [2, 2] and torch.ones(1 << 20, device="tpu").sum().item() == 1 << 20
    """, {"TORCH_TPU_MEMORY_LIMIT_BYTES": str(100 << 20)}).check().endswith("out of memory")


def test_memory_falls_after_del():
    torch.tpu.synchronize()
    before = torch.tpu.memory_allocated()
    x = torch.ones(1 << 20, device="tpu")
    y = x * 2
    assert y.sum().item() == 2 << 20 and torch.tpu.memory_allocated() - before >= 8 << 20
    torch.tpu.reset_peak_memory_stats()
    del x
    assert 4 << 20 <= torch.tpu.memory_allocated() - before < 8 << 20
    del y
    assert torch.tpu.memory_allocated() - before < 1 << 20
    assert torch.tpu.max_memory_allocated() - before >= 8 << 20
    stats = torch.tpu.memory_stats()
    assert stats["allocated_bytes.all.peak"] >= stats["allocated_bytes.all.current"]


def test_reference_cycles_do_not_hold_buffers():
    before = live_buffers()
    for _ in range(3):
        x = torch.ones(10, device="tpu", requires_grad=True)
        y = (x * 2).sum()
        y.backward()
        del x, y
    assert live_buffers() <= before + 1


def test_debug_folder(forked, tmp_path):
    """Every program is written there, with the Python line of each op."""
    forked("""
        x = torch.ones(3, device="tpu")
        y = torch.nn.functional.gelu(x * 2)
        y.sum().item()
    """, {"TORCH_TPU_DEBUG": str(tmp_path)}).check()
    texts = [path.read_text() for path in tmp_path.iterdir()]
    assert texts and any("stablehlo." in text for text in texts)
    text = "\n".join(texts)
    assert "<test>:2" in text.replace(" ", "") or "<test>:3" in text, text[:2000]


def test_threads():
    """Several threads record and read at once; each gets its own values."""
    problems = []
    shared = torch.arange(16.0, device="tpu")

    def work(number):
        try:
            for step in range(15):
                x = torch.full((16,), float(number), device="tpu")
                y = (x * step + shared).relu().view(4, 4)
                y[1].add_(number)
                expected = (torch.full((16,), float(number)) * step + torch.arange(16.0)).view(4, 4)
                expected[1] += number
                assert torch.equal(y.cpu(), expected)
        except BaseException as error:  # noqa: BLE001  pytest sees only the main thread
            problems.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not problems and not any(thread.is_alive() for thread in threads)


def test_modes():
    with pytest.raises(ValueError, match="fused"):
        torch.tpu.set_mode("quick")
    x = torch.ones(3, device="tpu")
    x.cpu()
    for name, programs in [("fused", 0), ("strict", 3), ("blocking", 3)]:
        torch.tpu.set_mode(name)
        assert torch.tpu.mode() == name
        before = torch.tpu.counters()["programs_run"]
        y = x.add(1).mul(2).sub(3)
        assert torch.tpu.counters()["programs_run"] - before == programs
        assert y.tolist() == [1, 1, 1]


def test_donated_memory_goes_to_what_updates_it(forked, tmp_path):
    """In a program of several tensors of one type, each result takes the place of the tensor that it is an update of:
    any other pair makes XLA copy both."""
    forked("""
        first, second, rows = torch.ones(8, 8, device="tpu"), torch.ones(8, 8, device="tpu"), torch.ones(2, 8, device="tpu")
        places = torch.tensor([1, 3], device="tpu")
        torch.tpu.synchronize()
        before = torch.tpu.counters()["donated_buffers"]
        total = second.sum()
        first.add_(total).mul_(2)
        product = second @ second
        second.index_copy_(0, places, rows)
        torch.tpu.synchronize()
        assert torch.tpu.counters()["donated_buffers"] - before == 2
    """, {"TORCH_TPU_DEBUG": str(tmp_path)}).check()
    programs = [file.read_text() for file in tmp_path.glob("*.mlir")]
    [signature] = [line for text in programs for line in text.splitlines() if "aliasing_output" in line]
    arguments, results = signature.split(") -> (")
    pairs = re.findall(r"(%arg\d+): tensor<8x8xf32> {tf.aliasing_output = (\d+) : i32}", arguments)
    assert pairs == [("%arg0", "3"), ("%arg1", "1")]  # second, first; total, first, product, second
    assert results.count("8x8xf32") == 3

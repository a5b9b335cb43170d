"""The device as torch sees it: names of torch.tpu, devices and their indices, streams, forks, torch.accelerator."""
import pytest
import torch
from processes import run_python

NAMES = """
    is_available is_initialized init device_count current_device set_device device device_of synchronize manual_seed
    manual_seed_all seed seed_all initial_seed get_rng_state get_rng_state_all set_rng_state set_rng_state_all
    default_generators get_amp_supported_dtype _is_in_bad_fork get_device_interface memory_allocated
    max_memory_allocated memory_reserved max_memory_reserved memory_stats memory_summary reset_peak_memory_stats
    reset_max_memory_allocated mem_get_info empty_cache get_device_name get_device_properties get_device_capability
    is_bf16_supported Stream Event stream set_stream current_stream default_stream amp memory random
    OutOfMemoryError counters mode set_mode
""".split()


def test_names():
    missing = [name for name in NAMES if not hasattr(torch.tpu, name)]
    assert not missing
    assert torch.backends.tpu.is_built() and torch.backends.tpu.is_available()


def test_package():
    import torch_tpu
    from torch_tpu import _loader, api

    assert torch_tpu.__version__
    assert _loader.load() and _loader.error() is None
    assert api.tpu_device() == torch.device("tpu", 0)
    with pytest.raises(AttributeError):
        _ = torch.tpu.no_such_name


@pytest.mark.parametrize("device", ["tpu", "tpu:0", torch.device("tpu"), torch.device("tpu", 0), 0])
def test_ways_to_name_the_device(device):
    x = torch.ones(2, device=device)
    assert x.device == torch.device("tpu", 0) and x.is_tpu and x.get_device() == 0
    assert torch.zeros(2).to(device).device == x.device
    assert torch.nn.Linear(2, 2).to(device).weight.device == x.device
    assert torch.tensor([1, 2], device=device).tolist() == [1, 2]


def test_methods():
    x = torch.arange(3)
    assert x.tpu().is_tpu and not x.is_tpu and x.tpu(0).tolist() == [0, 1, 2]
    assert torch.nn.Linear(2, 2).tpu().weight.is_tpu
    assert x.tpu().cpu().device.type == "cpu"
    assert x.untyped_storage().tpu().device.type == "tpu"
    assert x.tpu().type() == "torch.tpu.LongTensor"
    assert "device='tpu:0'" in repr(x.tpu())


@pytest.mark.parametrize("use", [
    lambda: torch.ones(1, device="tpu:7"),
    lambda: torch.ones(1).to("tpu:7"),
    lambda: torch.ones(1, device="tpu").to("tpu:7"),
    lambda: torch.tpu.set_device(7),
    lambda: torch.tpu.device(7).__enter__(),
    lambda: torch.tpu.synchronize(7),
    lambda: torch.tpu.get_device_name(7),
    lambda: torch.tpu.get_device_properties("tpu:7"),
])
def test_absent_devices(use):
    with pytest.raises(RuntimeError, match="tpu:7"):
        use()
    assert torch.tpu.current_device() == 0


def test_wrong_kind_of_device():
    with pytest.raises(ValueError, match="tpu device"):
        torch.tpu.set_device("cpu")
    with pytest.raises(RuntimeError, match="same device"):
        _ = torch.ones(2, device="tpu") + torch.ones(2)
    assert (torch.ones(2, device="tpu") + torch.tensor(1)).tolist() == [2, 2]  # a number may come from the CPU


def test_contexts():
    with torch.tpu.device(0), torch.tpu.device("tpu:0"), torch.tpu.device(None), torch.tpu.device(-1):
        assert torch.tpu.current_device() == 0
    with torch.tpu.device_of(torch.ones(1)), torch.tpu.device_of(torch.ones(1, device="tpu")):
        assert torch.tpu.current_device() == 0
    with torch.device("tpu"):
        assert torch.ones(2).is_tpu and torch.nn.Linear(1, 1).weight.is_tpu
    assert not torch.ones(2).is_tpu


def test_properties():
    assert torch.tpu.get_device_name() == torch.tpu.get_device_name(0) == torch.tpu.get_device_properties().name
    properties = torch.tpu.get_device_properties("tpu:0")
    free, total = torch.tpu.mem_get_info()
    assert properties.total_memory == total >= free > 0 and properties.major == 0
    assert torch.tpu.get_device_capability() == (0, 0)
    assert torch.bfloat16 in torch.tpu.get_amp_supported_dtype() and torch.tpu.is_bf16_supported()
    assert isinstance(torch.tpu.memory_summary(), str)


def test_streams_and_events():
    stream = torch.tpu.Stream()
    with torch.tpu.stream(stream):
        assert torch.tpu.current_stream() == stream
        x = torch.ones(64, 64, device="tpu") * 2
    default = torch.tpu.current_stream()
    assert default == torch.tpu.default_stream() and default != stream
    default.wait_stream(stream)
    x.record_stream(default)
    with torch.tpu.stream(None):
        assert torch.tpu.current_stream() == default
    torch.tpu.set_stream(stream)
    assert torch.tpu.current_stream() == stream
    torch.tpu.set_stream(default)
    stream.synchronize()
    assert stream.query() and x.sum().item() == 64 * 64 * 2


def test_event_times():
    start, end = torch.tpu.Event(enable_timing=True), torch.tpu.Event(enable_timing=True)
    start.record()
    x = torch.ones(128, 128, device="tpu") @ torch.ones(128, 128, device="tpu")
    end.record()
    end.synchronize()
    torch.tpu.current_stream().wait_event(end)
    assert start.query() and start.elapsed_time(end) > 0 and x[0, 0].item() == 128


def test_accelerator():
    accelerator = torch.accelerator
    assert accelerator.is_available() and accelerator.current_accelerator() == torch.device("tpu")
    assert accelerator.device_count() == torch.tpu.device_count() == 1
    assert accelerator.current_device_index() == 0
    accelerator.set_device_index(0)
    with accelerator.device_index(0):
        accelerator.synchronize()
    assert accelerator.current_stream() == torch.tpu.current_stream()
    x = torch.ones(1000, device="tpu")
    accelerator.synchronize()
    assert accelerator.memory_allocated() >= 4000 and accelerator.max_memory_allocated() >= 4000
    assert accelerator.memory_reserved() >= 4000 and x.is_tpu
    assert accelerator.memory_stats()["allocated_bytes.all.current"] >= 4000
    accelerator.reset_peak_memory_stats()
    accelerator.empty_cache()
    free, total = accelerator.get_memory_info()
    assert 0 < free < total


def test_pinned_memory():
    x = torch.arange(100.0).pin_memory()
    assert x.is_pinned() and not torch.ones(1).is_pinned()
    assert x.to("tpu", non_blocking=True).sum().item() == 4950
    assert torch.ones(3, pin_memory=True).is_pinned()


def test_data_loader_workers_beside_a_used_device(forked):
    assert forked("""
        data = torch.utils.data.TensorDataset(torch.arange(40.0).view(20, 2), torch.arange(20))
        total = torch.zeros((), device="tpu")
        loader = torch.utils.data.DataLoader(data, batch_size=4, num_workers=2, pin_memory=True)
        for _ in range(2):
            for x, y in loader:
                assert x.is_pinned()
                total += x.to("tpu", non_blocking=True).sum() + y.tpu().sum()
        print(total.item())
    """).check() == str(2 * (780.0 + 190))


def test_fork_before_use(forked):
    assert forked("""
        import os
        assert torch.tpu.is_available() and torch.tpu.device_count() == 1 and not torch.tpu.is_initialized()
        torch.manual_seed(1)
        if os.fork() == 0:
            assert not torch.tpu._is_in_bad_fork()
            os._exit(int(torch.full((2,), 21, device="tpu").sum().item()))
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 42
        print(torch.ones(1, device="tpu").item())
    """).check() == "1.0"


def test_fork_after_use(forked):
    out = forked("""
        import os, sys
        x = torch.ones(2, device="tpu") + 1
        pending = x * 2
        x.cpu()
        if os.fork() == 0:
            assert torch.tpu._is_in_bad_fork()
            for use in (lambda: torch.ones(1, device="tpu"), lambda: x.cpu(), lambda: pending.tolist(), lambda: x + 1,
                        lambda: torch.tpu.synchronize(), lambda: torch.ones(1).to("tpu")):
                try:
                    use()
                    print("no exception")
                except RuntimeError as error:
                    print("spawn" in str(error))
            print(torch.ones(2).sum().item())
            sys.stdout.flush()
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
        print(pending.tolist())
    """).check()
    assert out.split("\n") == ["True"] * 6 + ["2.0", "[4.0, 4.0]"]


def test_two_devices(forked):
    forked("""
        assert torch.tpu.device_count() == 2
        x = torch.arange(4.0, device="tpu:0")
        y = x.view(2, 2).t().to("tpu:1")
        assert str(y.device) == "tpu:1" and y.tolist() == [[0, 2], [1, 3]]
        y.add_(1)
        x[:2].copy_(y[0])
        assert x.tolist() == [1, 3, 2, 3]
        for use in (lambda: x[:2] + y, lambda: torch.mm(x.view(2, 2), y)):
            try:
                use()
                raise SystemExit("mixed devices were accepted")
            except RuntimeError as error:
                assert "tpu:0" in str(error) and "tpu:1" in str(error), error
        with torch.tpu.device(1):
            assert torch.ones(1, device="tpu").device.index == 1 and torch.tpu.current_device() == 1
            with torch.tpu.device_of(x):
                assert torch.tpu.current_device() == 0
        torch.tpu.set_device("tpu:1")
        assert torch.zeros(1, device="tpu").device.index == 1 and torch.zeros(2).tpu().device.index == 1
        assert torch.accelerator.current_device_index() == 1
        layer = torch.nn.Linear(2, 2).to("tpu:0")
        weight = layer.weight
        layer.to("tpu:1")
        assert layer.weight is weight and weight.device.index == 1
        layer(y).sum().backward()
        assert weight.grad.device.index == 1
        torch.manual_seed(3)
        assert torch.equal(torch.rand(4, device="tpu:0").cpu(), torch.rand(4, device="tpu:1").cpu())
        state = torch.tpu.get_rng_state_all()
        assert len(state) == 2 and len(torch.tpu.default_generators) == 2
        assert torch.tpu.current_stream(0).device_index == 0 and torch.tpu.current_stream(1).device_index == 1
        assert torch.tpu.memory_allocated(0) > 0 and torch.tpu.memory_allocated("tpu:1") > 0
        torch.tpu.synchronize(0)
    """, {"TORCH_TPU_CPU_DEVICES": "2"}).check()


def test_import_prints_nothing():
    result = run_python("""
        import torch
        x = torch.nn.Linear(4, 4, device="tpu")(torch.ones(2, 4, device="tpu")).relu().sum()
        x.backward()
        assert x.item() >= 0
    """)
    assert (result.code, result.out, result.err) == (0, "", "")


def test_import_torch_tpu_first():
    result = run_python("import torch_tpu, torch; assert torch.ones(1, device='tpu').item() == 1")
    assert (result.code, result.out, result.err) == (0, "", "")


def test_without_autoload():
    result = run_python("""
        import torch
        try:
            torch.ones(1, device="tpu")
        except RuntimeError as error:
            assert "tpu" in str(error)
        import torch_tpu
        print(torch.ones(1, device="tpu").item(), torch.tpu.is_available())
    """, {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"})
    assert (result.code, result.out, result.err) == (0, "1.0 True\n", "")

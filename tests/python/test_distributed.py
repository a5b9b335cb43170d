"""torch.distributed on device "tpu": the ways to start it, every collective between two processes, and DDP."""
import pytest
from process_groups import FORMS, processes  # noqa: F401  a fixture

HOST_TENSORS = [form for form in FORMS if form != "tpu_dist"]  # the forms that also take CPU tensors

# Every way to start --------------------------------------------------------------------------------------------------

BASICS = """
    t = torch.full((2,), rank + 1., device=D)
    dist.all_reduce(t)
    assert t.tolist() == [sum(range(1, ws + 1))] * 2
    dist.barrier()
    objects = [None] * ws
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": r} for r in range(ws)]
    for group in (dist.new_group(), dist.new_group([0])):
        if dist.get_rank(group) >= 0:
            t = torch.ones(1, device=D)
            dist.all_reduce(t, group=group)
            assert t.item() == dist.get_world_size(group)
    for arguments in ({}, {"device_ids": [0]}, {"device_ids": [torch.device("tpu:0")], "output_device": 0}):
        model = DDP(torch.nn.Linear(3, 2).to(D), **arguments)
        model(torch.ones(4, 3, device=D)).sum().backward()
        assert model.module.bias.grad.tolist() == [4., 4.]
"""


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("count", [1, 2])
def test_start(processes, form, count):
    processes(BASICS, count=count, form=form)


@pytest.mark.parametrize("form", HOST_TENSORS)
def test_cpu_tensors(processes, form):
    processes("""
        t = torch.full((2,), rank + 1.)
        dist.all_reduce(t)
        assert t.tolist() == [3., 3.] and t.device.type == "cpu"
        t = tpu(rank + 1.)
        dist.all_reduce(t)
        assert t.item() == 3
    """, form=form)


def test_start_from_the_environment(processes):
    processes("""
        dist.barrier()
        dist.destroy_process_group()
        os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
        dist.init_process_group()
        assert dist.get_backend_config() == "tpu:tpu"
        assert dist.get_default_backend_for_device("tpu") == "tpu"
        t = torch.ones(1, device=D)
        dist.all_reduce(t)
        assert t.item() == 1
    """, count=1)


def test_other_backends_are_untouched(processes):
    processes("""
        dist.barrier()
        dist.destroy_process_group()
        dist.init_process_group("gloo", init_method=where["init_method"] + "_gloo", rank=rank, world_size=ws)
        t = torch.full((2,), rank + 1.)
        dist.all_reduce(t)
        assert t.tolist() == [3., 3.]
        assert dist.get_backend_config() == "cpu:gloo,cuda:gloo", dist.get_backend_config()
    """)


# Collectives ---------------------------------------------------------------------------------------------------------

def test_all_reduce(processes):
    processes("""
        O = dist.ReduceOp
        cases = [(O.SUM, 7), (O.AVG, 3.5), (O.MAX, 5), (O.MIN, 2), (O.PRODUCT, 10),
                 (dist._make_nccl_premul_sum(3.), 21)]
        for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int16,
                      torch.int32, torch.int64, torch.float8_e5m2):
            for op, expected in cases:
                t = torch.tensor([[2, 5][rank]] * 3, device=D).to(dtype)
                dist.all_reduce(t, op=op)
                integral = not dtype.is_floating_point
                value = torch.tensor(int(expected) if integral else expected).to(dtype).item()
                assert t.dtype == dtype and t.tolist() == [value] * 3, (dtype, op, t)
        for op, expected in [(O.BAND, 0), (O.BOR, 7), (O.BXOR, 7)]:
            t = tpu([2, 5][rank], dtype=torch.int32)
            dist.all_reduce(t, op=op)
            assert t.item() == expected, op
        bits = [[False, True, True, False], [False, True, False, True]][rank]
        for op, expected in [(O.SUM, [0, 1, 1, 1]), (O.MAX, [0, 1, 1, 1]), (O.MIN, [0, 1, 0, 0]),
                             (O.PRODUCT, [0, 1, 0, 0]), (O.BAND, [0, 1, 0, 0]), (O.BOR, [0, 1, 1, 1]),
                             (O.BXOR, [0, 0, 1, 1])]:
            t = torch.tensor(bits, device=D)
            dist.all_reduce(t, op=op)
            assert t.dtype == torch.bool and t.tolist() == list(map(bool, expected)), op
        assert "average" in raises(lambda: dist.all_reduce(torch.tensor(bits, device=D), op=O.AVG))
        for op, expected in [(O.SUM, 3 + 2j), (O.AVG, 1.5 + 1j)]:
            t = tpu(rank + 1 + 1j, dtype=torch.complex64)
            dist.all_reduce(t, op=op)
            assert t.item() == expected, op
        large = tpu(60000., dtype=torch.float16)       # the sum is no float16
        dist.all_reduce(large, op=O.AVG)
        assert large.item() == 60000
        scalar, empty = torch.tensor(1., device=D), torch.ones(0, 3, device=D)
        dist.all_reduce(scalar), dist.all_reduce(empty)
        assert scalar.item() == 2 and empty.shape == (0, 3)
    """)


def test_reduce_and_broadcast(processes):
    processes("""
        t = tpu(rank + 1., 2.)
        dist.reduce(t, 1, op=dist.ReduceOp.AVG)
        assert t.tolist() == ([1., 2.], [1.5, 2.])[rank]
        for dtype in (torch.float32, torch.bool, torch.int16, torch.bfloat16, torch.complex64, torch.float8_e4m3fn,
                      torch.uint8):
            t = torch.full((2, 3), rank, device=D).to(dtype)
            dist.broadcast(t, 1)
            assert t.dtype == dtype and t.cpu().to(torch.complex64).real.tolist() == [[1] * 3] * 2, dtype
        parameter = torch.nn.Parameter(tpu(float(rank)))
        dist.broadcast(parameter, 1)
        assert parameter.item() == 1 and parameter.grad_fn is None
    """)


def test_gathers(processes):
    processes("""
        outputs = [torch.zeros(2, device=D) for _ in range(ws)]
        first = outputs[0]
        dist.all_gather(outputs, tpu(rank, rank + 10.))
        assert first is outputs[0] and [o.tolist() for o in outputs] == [[0, 10], [1, 11]]
        for shape in ((4,), (2, 2)):
            whole = torch.zeros(shape, device=D)
            dist.all_gather_into_tensor(whole, torch.full((2,), rank + 1., device=D))
            assert whole.flatten().tolist() == [1, 1, 2, 2]
        parts = [torch.zeros(2, device=D) for _ in range(ws)] if rank == 1 else None
        dist.gather(tpu(rank, 5.), parts, dst=1)
        assert rank == 0 or [p.tolist() for p in parts] == [[0, 5], [1, 5]]
        part = torch.zeros(2, device=D)
        dist.scatter(part, [tpu(1., 2.), tpu(3., 4.)] if rank == 1 else None, src=1)
        assert part.tolist() == [[1, 2], [3, 4]][rank]
        message = raises(lambda: dist.all_gather_into_tensor(torch.zeros(3, device=D), torch.zeros(2, device=D)))
        assert "2 times" in message, message
    """)


def test_reduce_scatter(processes):
    processes("""
        for op, scale in ((dist.ReduceOp.SUM, 1), (dist.ReduceOp.AVG, 2)):
            out = torch.zeros(2, device=D)
            dist.reduce_scatter_tensor(out, torch.arange(4., device=D) + rank, op=op)
            assert out.tolist() == [[x / scale for x in row] for row in ([1, 3], [5, 7])][rank]
            out = torch.zeros(2, device=D)
            dist.reduce_scatter(out, [tpu(0., 1.) + rank, tpu(2., 3.) + rank], op=op)
            assert out.tolist() == [[x / scale for x in row] for row in ([1, 3], [5, 7])][rank]
        out = torch.zeros(1, dtype=torch.bfloat16, device=D)
        dist.reduce_scatter_tensor(out, tpu(1, 2, dtype=torch.bfloat16))
        assert out.tolist() == [[2], [4]][rank]
    """)


def test_all_to_all(processes):
    processes("""
        out = torch.zeros(2, 2, device=D)
        dist.all_to_all_single(out, torch.arange(4., device=D).view(2, 2) + 10 * rank)
        assert out.tolist() == [[[0, 1], [10, 11]], [[2, 3], [12, 13]]][rank]
        # rank 0 keeps one row and sends two; rank 1 sends three and keeps none
        sizes = [[1, 2], [3, 0]][rank]
        out = torch.zeros(4 if rank == 0 else 2, 1, dtype=torch.int64, device=D)
        rows = torch.arange(3, device=D).view(3, 1) + 10 * rank
        dist.all_to_all_single(out, rows, [[1, 3], [2, 0]][rank], sizes)
        assert out.flatten().tolist() == [[0, 10, 11, 12], [1, 2]][rank]
        outs = [torch.zeros(1 + rank, device=D), torch.zeros(2 + rank, device=D)]
        ins = [torch.full((1 + rank,), rank + 1., device=D), torch.full((2 + rank,), rank + 5., device=D)]
        dist.all_to_all(outs, ins)
        assert [o.tolist() for o in outs] == [[[1], [2, 2]], [[5, 5], [6, 6, 6]]][rank]
    """)


def test_send_and_receive(processes):
    processes("""
        t = torch.full((3,), float(rank), device=D)
        if rank == 0:
            dist.send(t + 7, 1)
            dist.recv(t, 1, tag=5)
            assert t.tolist() == [8.] * 3
        else:
            assert dist.recv(t) == 0 and t.tolist() == [7.] * 3
            dist.send(t + 1, 0, tag=5)
        # A ring in one buffer: nobody may wait for the peer before both have started.
        buffer = torch.full((2, 100_000), float(rank), device=D)
        works = [dist.irecv(buffer[1], 1 - rank), dist.isend(buffer[0], 1 - rank)]
        for work in works:
            work.wait()
        assert [(row.min().item(), row.max().item()) for row in buffer] == [(rank, rank), (1 - rank, 1 - rank)]
        incoming = torch.zeros(2, device=D)
        ops = [dist.P2POp(dist.isend, tpu(rank, 3.), 1 - rank), dist.P2POp(dist.irecv, incoming, 1 - rank)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        assert incoming.tolist() == [1. - rank, 3.]
    """)


@pytest.mark.parametrize("form", FORMS)
def test_objects(processes, form):
    processes("""
        objects = [{"a": 1}, "text"] if rank == 0 else [None, None]
        dist.broadcast_object_list(objects, 0)
        assert objects == [{"a": 1}, "text"]
        gathered = [None] * ws if rank == 0 else None
        dist.gather_object(("r", rank), gathered, 0)
        assert rank == 1 or gathered == [("r", 0), ("r", 1)]
        scattered = [None]
        dist.scatter_object_list(scattered, ["x", "y"] if rank == 0 else None, 0)
        assert scattered == ["xy"[rank]]
        if rank == 0:
            dist.send_object_list(["sent"], 1)
        else:
            received = [None]
            dist.recv_object_list(received, 0)
            assert received == ["sent"]
    """, form=form)


def test_views_and_layouts(processes):
    processes("""
        base = torch.zeros(4, 4, device=D)
        column = base[:, 1]
        column.fill_(rank + 1)
        dist.all_reduce(column)
        assert base.tolist() == [[0, 3, 0, 0]] * 4
        t = (torch.arange(4., device=D).view(2, 2).t() + 10 * rank)      # not contiguous
        dist.broadcast(t, 1)
        assert t.tolist() == [[10, 12], [11, 13]]
        flat = torch.zeros(4, device=D)
        dist.all_gather(list(flat.chunk(2)), tpu(rank, 9.))
        assert flat.tolist() == [0, 9, 1, 9]
        shared = torch.zeros(4, device=D)                               # the input is a part of the output
        shared[2 * rank:2 * rank + 2] = rank + 1
        dist.all_gather_into_tensor(shared, shared[2 * rank:2 * rank + 2])
        assert shared.tolist() == [1, 1, 2, 2]
        t, other = torch.ones(3, device=D), torch.ones(3, device=D)
        alias = t.view(3)
        t.add_(other)                                                   # recorded, not run yet
        dist.all_reduce(t)
        assert (alias + other).tolist() == [5] * 3
        with torch.inference_mode():
            t = torch.ones(2, dtype=torch.int16, device=D)
            work = dist.all_reduce(t, op=dist.ReduceOp.AVG, async_op=True)
        work.wait()
        assert t.tolist() == [1, 1]
    """)


def test_handles(processes):
    processes("""
        t = tpu(rank + 1.)
        work = dist.all_reduce(t, async_op=True)
        assert work.wait() and work.is_completed() and work.is_success() and t.item() == 3
        assert work.result()[0].item() == 3
        # Waiting for the last one is enough, and a collective reads what earlier ones write.
        a, b, gathered = tpu(1.), tpu(2.), torch.zeros(2, device=D)
        dist.all_reduce(a, async_op=True)
        dist.all_reduce(b, async_op=True)
        dist.all_gather_into_tensor(gathered, a, async_op=True)
        dist.all_reduce(a, async_op=True).wait()
        assert (a.item(), b.item(), gathered.tolist()) == (4, 4, [2, 2])
        dist.all_reduce(a, async_op=True)
        dist.barrier()
        assert a.item() == 8
        work = dist.all_reduce(a, async_op=True)
        while not work.is_completed():
            pass
        assert a.item() == 16
        work = dist.all_reduce(a, async_op=True)
        future = work.get_future()
        assert future.then(lambda f: f.value()[0] * 2).wait().item() == 64 and future.wait()[0] is not None
        assert a.item() == 32 and work.wait()
        assert dist.barrier(async_op=True).wait()
    """)


def test_coalesced_and_functional(processes):
    processes("""
        import torch.distributed._functional_collectives as funcol
        group = dist.group.WORLD
        for device in (None, torch.device("tpu:0")):
            ts = [tpu(rank + 1.), tpu(rank + 1, dtype=torch.int32), torch.ones(2, dtype=torch.bfloat16, device=D)]
            with dist._coalescing_manager(group, device=device, async_ops=True) as manager:
                for t in ts:
                    dist.all_reduce(t)
            manager.wait()
            assert [t.tolist() for t in ts] == [[3], [3], [2, 2]]
            wholes = [torch.zeros(2, device=D), torch.zeros(4, device=D)]
            with dist._coalescing_manager(group, device=device):
                for whole in wholes:
                    dist.all_gather_into_tensor(whole, torch.full((len(whole) // 2,), float(rank), device=D))
            assert [w.tolist() for w in wholes] == [[0, 1], [0, 0, 1, 1]]
            parts = [torch.zeros(1, device=D), torch.zeros(2, device=D)]
            with dist._coalescing_manager(group, device=device):
                for part in parts:
                    dist.reduce_scatter_tensor(part, torch.arange(2. * len(part), device=D))
            assert [p.tolist() for p in parts] == [[[0], [0, 2]], [[2], [4, 6]]][rank]
        t = tpu(rank + 1.)
        assert funcol.all_reduce(t, "avg", group).item() == 1.5 and t.item() == rank + 1
        assert funcol.all_gather_tensor(t, 0, group).tolist() == [1, 2]
        assert funcol.reduce_scatter_tensor(tpu(1., 2.), "sum", 0, group).tolist() == [[2], [4]][rank]
        assert [x.item() for x in funcol.all_reduce_coalesced([t, t], "sum", group)] == [3, 3]
        assert funcol.all_to_all_single(tpu(1., 2.) + rank, None, None, group).tolist() == [[1, 2], [2, 3]][rank]
        assert funcol.broadcast(t, 1, group).item() == 2
    """)


def test_group_properties(processes):
    processes("""
        backend = dist.group.WORLD._get_backend(torch.device(D))
        assert backend.name() == "tpu" and (backend.rank(), backend.size()) == (rank, ws)
        dist.group.WORLD.set_timeout(timedelta(seconds=40))
        for _ in range(3):
            dist.all_reduce(torch.ones(1, device=D))
        sequence = [None] * ws
        dist.all_gather_object(sequence, backend._get_sequence_number_for_group())
        assert sequence[0] == sequence[1]
    """)


# Failures ------------------------------------------------------------------------------------------------------------

def test_missing_peer(processes):
    """A peer that does not take part, for whatever reason, is an exception within the timeout."""
    processes("""
        import time
        group = dist.new_group(timeout=timedelta(seconds=2))
        if rank == 0:
            start = time.monotonic()
            raises(lambda: dist.all_reduce(torch.ones(2, device=D), group=group))
            assert time.monotonic() - start < 20
        assert (torch.ones(2, device=D) + 1).tolist() == [2, 2]
    """)


def test_dead_peer(processes):
    processes("""
        t = torch.ones(2, device=D)
        dist.all_reduce(t)
        if rank == 1:
            sys.stderr.flush()
            os._exit(0)
        raises(lambda: dist.all_reduce(t))
        work = None
        try:
            work = dist.all_reduce(t, async_op=True)
        except RuntimeError:
            pass
        if work is not None:
            raises(work.wait)
            raises(work.get_future().wait)
            assert not work.is_success()
        assert t.tolist() == [2, 2]
        os._exit(0)
    """, timeout=10)


# Training ------------------------------------------------------------------------------------------------------------

MODEL = """
        def make():
            torch.manual_seed(1)
            return torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))

        def train(model, inputs, targets):
            optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
            for x, y in zip(inputs, targets):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()

        generator = torch.Generator().manual_seed(3)
        inputs = torch.randn(5, 8, 6, generator=generator)
        targets = torch.randint(0, 3, (5, 8), generator=generator)
        mine = slice(4 * rank, 4 * rank + 4)
        alone = make()
        train(alone, inputs, targets)
"""


@pytest.mark.parametrize("form", ["tpu", "both devices", "nothing"])
def test_ddp_is_training_alone(processes, form):
    processes(MODEL + """
        for arguments in ({}, {"device_ids": [0], "gradient_as_bucket_view": True, "bucket_cap_mb": 1e-4}):
            model = make().to(D)
            if rank == 1:
                with torch.no_grad():                # DDP sends rank 0's parameters
                    model[0].weight.zero_()
            model = DDP(model, **arguments)
            train(model, inputs[:, mine].to(D), targets[:, mine].to(D))
            for ours, theirs in zip(model.module.parameters(), alone.parameters()):
                torch.testing.assert_close(ours.detach().cpu(), theirs.detach(), rtol=1e-4, atol=1e-5)
    """, form=form)


def test_ddp_options(processes):
    """Unused parameters, no_sync, buffers and a compression hook."""
    processes("""
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.used, self.unused = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
                self.norm = torch.nn.BatchNorm1d(2)

            def forward(self, x):
                return self.norm(self.used(x))

        model = DDP(Net().to(D), find_unused_parameters=True)
        x = torch.arange(8., device=D).view(4, 2) * (rank + 1)
        with model.no_sync():
            model(x).square().sum().backward()
        model(x).square().sum().backward()
        grads = [None] * ws
        dist.all_gather_object(grads, model.module.used.weight.grad.tolist())
        assert grads[0] == grads[1]
        model = DDP(torch.nn.Linear(2, 1).to(D))
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
        model(torch.full((1, 2), rank + 1., device=D)).sum().backward()
        assert model.module.weight.grad.tolist() == [[1.5, 1.5]]
    """)


def test_sharding(processes):
    """DTensor, tensor parallelism and FSDP2 over a mesh."""
    processes(MODEL + """
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        from torch.distributed.tensor import Replicate, Shard, distribute_tensor
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        mesh = init_device_mesh(D, (2,))
        x = torch.arange(8., device=D).view(4, 2)
        sharded = distribute_tensor(x, mesh, [Shard(0)])
        product = sharded @ sharded.redistribute(mesh, [Replicate()]).t()
        assert product.full_tensor().tolist() == (x @ x.t()).tolist()

        model = parallelize_module(make().to(D), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
        torch.testing.assert_close(model(inputs[0].to(D)).cpu(), make()(inputs[0]), rtol=1e-4, atol=1e-5)

        model = make().to(D)
        for layer in (model[0], model[2], model):
            fully_shard(layer, mesh=mesh)
        train(model, inputs[:, mine].to(D), targets[:, mine].to(D))
        for ours, theirs in zip(model.parameters(), alone.parameters()):
            torch.testing.assert_close(ours.full_tensor().detach().cpu(), theirs.detach(), rtol=1e-4, atol=1e-5)
    """, form="nothing")

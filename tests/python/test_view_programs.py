"""Random programs of views and in-place writes, compared with the CPU."""
import random

import pytest
import torch


def random_view(rng, t):
    """One step: the name of a view operation and its arguments, valid for a tensor of this shape and these strides."""
    choices = []
    if t.dim() > 0:
        dim = rng.randrange(t.dim())
        size = t.size(dim)
        if size > 1:
            start = rng.randrange(size - 1)
            end = rng.randint(start + 1, size)
            step = rng.randint(1, 3)
            choices += [("slice", dim, start, end, step), ("select", dim, rng.randrange(size)),
                        ("narrow", dim, start, end - start), ("chunk", dim, rng.randint(1, 3))]
            choices.append(("unfold", dim, rng.randint(1, size), rng.randint(1, 2)))
        choices.append(("movedim", dim, rng.randrange(t.dim())))
    if t.dim() >= 2:
        first, second = rng.sample(range(t.dim()), 2)
        choices += [("transpose", first, second), ("diagonal", rng.choice([-1, 0, 1]), first, second)]
    if t.dim() <= 4:
        choices.append(("unsqueeze", rng.randint(0, t.dim())))
    if t.is_contiguous() and t.numel() % 2 == 0 and t.numel() > 0:
        choices += [("view", 2, -1), ("flatten",)]
    choices += [("expand",), ("squeeze",), ("alias",)]
    return rng.choice(choices)


def apply_view(t, step):
    name, *args = step
    if name == "slice":
        dim, start, end, stride = args
        return t[(slice(None),) * dim + (slice(start, end, stride),)]
    if name == "chunk":
        return t.chunk(args[1], args[0])[-1]
    if name == "view":
        return t.view(*args)
    if name == "expand":
        return t.unsqueeze(0).expand(2, *t.shape)
    if name == "alias":
        return torch.ops.aten.alias(t)
    return getattr(t, name)(*args)


def is_writable(t):
    """No two elements share memory."""
    places = torch.zeros(t.shape, dtype=torch.long)
    for dim in range(t.dim()):
        index = torch.arange(t.size(dim)) * t.stride(dim)
        places = places + index.view([-1] + [1] * (t.dim() - dim - 1))
    return places.unique().numel() == t.numel()


# Each writes to `t`; `other` has the same shape, `number` changes from write to write.
WRITES = {
    "fill_": lambda t, other, number: t.fill_(number),
    "add_": lambda t, other, number: t.add_(number),
    "mul_": lambda t, other, number: t.mul_(other),
    "copy_": lambda t, other, number: t.copy_(other),
    "zero_": lambda t, other, number: t.zero_(),
    "sub_ itself": lambda t, other, number: t.sub_(t, alpha=0.5),
    "masked_fill_": lambda t, other, number: t.masked_fill_(other > 0, number),
    "clamp_": lambda t, other, number: t.clamp_(-2, 2),
    "out": lambda t, other, number: torch.add(other, number, out=t),
}


class Program:
    """Live tensors over a few storages, on both devices, and the steps that made them."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.steps = []
        shape = self.rng.choice([(24,), (4, 6), (2, 3, 4), (2, 2, 3, 2)])
        base = torch.arange(24.0).sub(12).view(shape)
        self.pairs = [(base, base.tpu())]

    def step(self):
        host, device = self.rng.choice(self.pairs[-4:])
        if self.rng.random() < 0.6 or not is_writable(host):
            view = random_view(self.rng, host)
            self.steps.append(view)
            new = apply_view(host, view), apply_view(device, view)
            assert (new[0].shape, new[0].stride(), new[0].storage_offset()) == \
                   (new[1].shape, new[1].stride(), new[1].storage_offset()), self.steps
            if new[0].numel() <= 200:
                self.pairs.append(new)
            return
        name = self.rng.choice(list(WRITES))
        number = self.rng.randint(-3, 3)
        self.steps.append((name, tuple(host.shape), host.stride()))
        other = (torch.arange(float(host.numel())) % 5 - 2).view(host.shape)
        for t in (host, device):
            WRITES[name](t, other.to(t.device), number)

    def check(self):
        for index, (host, device) in enumerate(self.pairs):
            if index % 3 == 0 or index == len(self.pairs) - 1:  # each of them costs a read
                assert torch.equal(device.cpu(), host), (index, self.steps)


def run(seeds, length=10):
    for seed in seeds:
        program = Program(seed)
        for _ in range(length):
            program.step()
        program.check()


@pytest.mark.parametrize("block", range(8))
def test_random_programs(block):
    run(range(block * 25, block * 25 + 25))


@pytest.mark.parametrize("block", range(1))
def test_random_programs_strict(block):
    torch.tpu.set_mode("strict")
    run(range(1000, 1010))


@pytest.mark.slow
def test_many_random_programs():
    run(range(2000, 4000), length=16)

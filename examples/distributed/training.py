"""What the examples of this folder share: flags, the process group, the data, the loop, and training alone."""

import argparse
import contextlib
import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F

from examples.decoder.model import Config, Decoder
from examples.text import read_text, windows

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
TOLERANCES = {"fp32": 1e-3, "bf16": 1e-2}  # of losses against training alone, relative


def flags(description: str, **defaults) -> argparse.ArgumentParser:
    """A parser with the flags of every example; `defaults` replaces some of their values."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="tpu", help="tpu or cpu")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=8, help="of all processes together")
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--kv-heads", type=int, default=2)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", type=int, default=5, help="print the loss every N steps")
    parser.add_argument("--compare", action="store_true", help="check the losses against one process that trains alone")
    parser.set_defaults(dtype="fp32", **defaults)
    return parser


@contextlib.contextmanager
def process_group(args):
    """Joins the group that torchrun describes, and leaves it. Yields the device of this process."""
    if args.device == "cpu":
        dist.init_process_group("gloo")
        device = torch.device("cpu")
    else:
        device = torch.device(args.device, int(os.environ["LOCAL_RANK"]))
        torch.tpu.set_device(device)
        dist.init_process_group("tpu")
    try:
        yield device
    finally:
        dist.destroy_process_group()


def say(*text) -> None:
    """Prints in the first process."""
    if dist.get_rank() == 0:
        print(*text, flush=True)


def decoder(args) -> Decoder:
    """A decoder of ASCII characters on the CPU, with the same parameters in every process."""
    torch.manual_seed(args.seed)
    features = -(-8 * args.width // 96) * 32  # 8/3 of the width, as in Llama
    return Decoder(Config(128, args.width, features, args.layers, args.heads, args.kv_heads, args.width // args.heads))


def adam(model, args) -> torch.optim.Optimizer:
    """The optimizer of all examples."""
    return torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)


def read_data() -> torch.Tensor:
    """Characters of the standard library's sources, as ids."""
    return torch.tensor(list(read_text(limit=1_000_000).encode()))


def batch(data: torch.Tensor, args, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and the ids that follow them, [batch, context] on the CPU: the same for a step in every process."""
    return windows(data, args.batch, args.context, torch.Generator().manual_seed((args.seed << 32) + step))


def cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean in nats per token, in float32."""
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def train_step(model, optimizer, ids, targets) -> torch.Tensor:
    """One step with gradients clipped to norm 1; returns its loss."""
    optimizer.zero_grad(set_to_none=True)
    loss = cross_entropy(model(ids), targets)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.detach()


def train(args, device, step, parts: int, part: int, first: int = 0) -> list[float]:
    """Calls step(ids, targets) -> loss for the steps after `first`, with one of `parts` equal parts of each batch.

    Returns the losses, averaged over the processes."""
    if args.batch % parts:
        raise SystemExit(f"--batch {args.batch} is no multiple of {parts}")
    data, losses, started = read_data(), [], 0.0
    for number in range(first, args.steps):
        ids, targets = (tensor.chunk(parts)[part].to(device) for tensor in batch(data, args, number))
        loss = step(ids, targets)
        dist.all_reduce(loss)
        losses.append(loss.item() / dist.get_world_size())
        if number == first:
            started = time.perf_counter()  # the first step compiles
        if (number + 1) % args.log == 0 or number in (first, args.steps - 1):
            say(f"step {number + 1:4d}  loss {losses[-1]:.4f}")
    if len(losses) > 1:
        tokens = (len(losses) - 1) * args.batch * args.context
        say(f"{tokens / (time.perf_counter() - started):,.0f} tokens/s after the first step")
    return losses


def finish(args, device, losses: list[float]) -> None:
    """With --compare, checks the losses against those of the first process training alone; reports the device's work.

    Raises SystemExit in every process where they differ."""
    difference = [0.0]
    if args.compare and dist.get_rank() == 0:
        expected = alone(args, device)[-len(losses):]
        difference[0] = max(abs(a - b) / abs(b) for a, b in zip(losses, expected, strict=True))
        print(f"largest relative difference to one process alone over {len(losses)} steps: {difference[0]:.1e}")
    dist.broadcast_object_list(difference)
    if device.type == "tpu":
        counters = torch.tpu.counters()
        say(f"{counters['compiles'] + counters['disk_hits']} programs, {counters['programs_run']} runs, "
            f"{counters['fallbacks']} operators on the CPU")
    if not difference[0] <= TOLERANCES[args.dtype]:
        raise SystemExit(f"the losses differ by more than {TOLERANCES[args.dtype]}")


class Cast(torch.nn.Module):
    """Computes a module with its parameters converted to `dtype`, and differentiates to the originals."""

    def __init__(self, module, dtype):
        super().__init__()
        self.module, self.dtype = module, dtype

    def forward(self, ids):
        converted = {name: parameter.to(self.dtype) for name, parameter in self.module.named_parameters()}
        return torch.func.functional_call(self.module, converted, ids)


def alone(args, device) -> list[float]:
    """The losses of the same training in this process alone, on whole batches."""
    model = decoder(args).to(device)
    if args.dtype != "fp32":
        model = Cast(model, DTYPES[args.dtype])
    optimizer, data = adam(model, args), read_data()
    batches = (batch(data, args, step) for step in range(args.steps))
    return [train_step(model, optimizer, ids.to(device), targets.to(device)).item() for ids, targets in batches]


def check_equal(tensors, group=None) -> None:
    """Raises SystemExit in every process of the group unless all of them hold the same bits."""
    mine = torch.cat([tensor.detach().flatten() for tensor in tensors])
    gathered = [torch.empty_like(mine) for _ in range(dist.get_world_size(group))]
    dist.all_gather(gathered, mine, group=group)
    if not all(torch.equal(gathered[0], other) for other in gathered):
        raise SystemExit("the parameters differ between processes")

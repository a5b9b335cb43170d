"""Trains a decoder with DistributedDataParallel: every process has all parameters and a part of the batch.

  torchrun --nproc-per-node 2 examples/distributed/ddp.py --compare
  torchrun --nproc-per-node 2 examples/distributed/ddp.py --accumulate 2      # two backward passes per step
"""

import sys
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from examples.distributed.training import adam, check_equal, cross_entropy, decoder, finish, flags, process_group
from examples.distributed.training import say, train


def parse(argv=None):
    parser = flags(__doc__)
    parser.add_argument("--accumulate", type=int, default=1, help="backward passes per step; the last one communicates")
    return parser.parse_args(argv)


def accumulated_step(model, optimizer, ids, targets, passes: int) -> torch.Tensor:
    """One step whose gradients are the mean over `passes` equal parts of this process's batch; returns the loss."""
    optimizer.zero_grad(set_to_none=True)
    total = torch.zeros((), device=ids.device)
    for index, (part, expected) in enumerate(zip(ids.chunk(passes), targets.chunk(passes), strict=True)):
        with nullcontext() if index == passes - 1 else model.no_sync():
            loss = cross_entropy(model(part), expected) / passes
            loss.backward()
        total += loss.detach()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return total


def main(argv=None):
    args = parse(argv)
    with process_group(args) as device:
        rank, count = dist.get_rank(), dist.get_world_size()
        if args.batch % (count * args.accumulate):
            raise SystemExit(f"--batch {args.batch} is no multiple of {count} processes x {args.accumulate} passes")
        model = DistributedDataParallel(decoder(args).to(device))
        optimizer = adam(model, args)
        parameters = sum(parameter.numel() for parameter in model.parameters())
        say(f"{parameters:,} parameters in each of {count} processes on {device.type}")

        def step(ids, targets):
            return accumulated_step(model, optimizer, ids, targets, args.accumulate)

        losses = train(args, device, step, parts=count, part=rank)
        check_equal(model.parameters())
        say(f"parameters are equal in all {count} processes")
        finish(args, device, losses)


if __name__ == "__main__":
    main()

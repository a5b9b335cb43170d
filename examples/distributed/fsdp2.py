"""Trains a decoder with FSDP2: every process has a part of each parameter, its gradient and the optimizer's state.

  torchrun --nproc-per-node 2 examples/distributed/fsdp2.py --compare
  torchrun --nproc-per-node 2 examples/distributed/fsdp2.py --dtype bf16 --offload
  torchrun --nproc-per-node 2 examples/distributed/fsdp2.py --checkpoint FOLDER
  torchrun --nproc-per-node 4 examples/distributed/fsdp2.py --resume FOLDER --steps 40    # any number of processes
"""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from examples.distributed.training import DTYPES, adam, decoder, finish, flags, process_group, say, train, train_step


def parse(argv=None):
    parser = flags(__doc__)
    parser.add_argument("--dtype", choices=sorted(DTYPES), help="in which the model computes; parameters stay float32")
    parser.add_argument("--offload", action="store_true", help="parameters, gradients and optimizer in host memory")
    parser.add_argument("--checkpoint", metavar="FOLDER", help="write the run here at the end")
    parser.add_argument("--resume", metavar="FOLDER", help="continue the run saved here")
    return parser.parse_args(argv)


def shard(model, mesh, args):
    """Shards each layer, and the root with what is left."""
    policy = MixedPrecisionPolicy()
    if args.dtype != "fp32":
        policy = MixedPrecisionPolicy(DTYPES[args.dtype], torch.float32, cast_forward_inputs=False)  # angles stay wide
    options = {"mesh": mesh, "mp_policy": policy, "offload_policy": CPUOffloadPolicy(False) if args.offload else
               OffloadPolicy()}
    for layer in model.model.layers:
        fully_shard(layer, **options)
    return fully_shard(model, **options)


def save(folder, model, optimizer, step: int) -> None:
    """Every process writes its part."""
    model_state, optimizer_state = get_state_dict(model, optimizer)
    dcp.save({"model": model_state, "optimizer": optimizer_state, "step": step}, checkpoint_id=folder)


def load(folder, model, optimizer) -> int:
    """Every process reads its part, however many wrote; returns the step."""
    model_state, optimizer_state = get_state_dict(model, optimizer)
    state = {"model": model_state, "optimizer": optimizer_state, "step": 0}
    dcp.load(state, checkpoint_id=folder)
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    return state["step"]


def main(argv=None):
    args = parse(argv)
    with process_group(args) as device:
        count = dist.get_world_size()
        model = shard(decoder(args).to(device), init_device_mesh(device.type, (count,)), args)
        optimizer = adam(model, args)
        parameters = sum(parameter.numel() for parameter in model.parameters())
        mine = sum(parameter.to_local().numel() for parameter in model.parameters())
        say(f"{parameters:,} parameters, {mine:,} in the first of {count} processes on {device.type}")
        first = load(args.resume, model, optimizer) if args.resume else 0

        def step(ids, targets):
            return train_step(model, optimizer, ids, targets)

        losses = train(args, device, step, parts=count, part=dist.get_rank(), first=first)
        if args.checkpoint:
            save(args.checkpoint, model, optimizer, args.steps)
            say("checkpoint written")
        finish(args, device, losses)


if __name__ == "__main__":
    main()

"""Trains a decoder with hybrid sharding: parameters are divided within a row of a mesh, and rows hold the same.

  torchrun --nproc-per-node 4 examples/distributed/hsdp.py --compare                  # 2 rows of 2 processes
  torchrun --nproc-per-node 2 examples/distributed/hsdp.py --replicate 2 --compare    # 2 rows of 1 process
"""

import sys
from pathlib import Path

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from examples.distributed.training import adam, check_equal, decoder, finish, flags, process_group, say, train
from examples.distributed.training import train_step


def parse(argv=None):
    parser = flags(__doc__)
    parser.add_argument("--replicate", type=int, default=2, help="rows of the mesh")
    return parser.parse_args(argv)


def main(argv=None):
    args = parse(argv)
    with process_group(args) as device:
        count = dist.get_world_size()
        if count % args.replicate:
            raise SystemExit(f"{count} processes do not divide into {args.replicate} rows")
        shape = (args.replicate, count // args.replicate)
        mesh = init_device_mesh(device.type, shape, mesh_dim_names=("replicate", "shard"))
        model = decoder(args).to(device)
        for layer in model.model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        optimizer = adam(model, args)
        parameters = sum(parameter.numel() for parameter in model.parameters())
        mine = sum(parameter.to_local().numel() for parameter in model.parameters())
        say(f"{parameters:,} parameters, {mine:,} in the first of {shape[0]} x {shape[1]} processes on {device.type}")

        def step(ids, targets):
            return train_step(model, optimizer, ids, targets)

        losses = train(args, device, step, parts=count, part=dist.get_rank())
        check_equal((parameter.to_local() for parameter in model.parameters()), mesh.get_group("replicate"))
        say(f"parameters are equal in all {shape[0]} rows")
        finish(args, device, losses)


if __name__ == "__main__":
    main()

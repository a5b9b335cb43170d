"""Trains a decoder with tensor parallelism: every process has a part of each matrix and sees the whole batch.

Attention is divided by heads, the feed-forward layer by hidden features; between them, in the norms and the
residuals, the activations are divided along the sequence.

  torchrun --nproc-per-node 2 examples/distributed/tensor_parallel.py --compare
  torchrun --nproc-per-node 4 examples/distributed/tensor_parallel.py --loss-parallel     # logits stay divided
"""

import sys
from contextlib import nullcontext
from pathlib import Path

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel
from torch.distributed.tensor.parallel import loss_parallel, parallelize_module

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from examples.distributed.training import adam, decoder, finish, flags, process_group, say, train, train_step

SEQUENCE = Shard(1)  # of [batch, time, width]


def parse(argv=None):
    parser = flags(__doc__, heads=8, kv_heads=4)
    parser.add_argument("--loss-parallel", action="store_true", help="the loss takes logits divided by vocabulary")
    return parser.parse_args(argv)


def parallelize(model, mesh, args):
    """Divides the parameters; what enters and leaves the model are plain tensors, or DTensor logits."""
    def whole(others=0):
        """Joins the sequence of a module's first input; the others stay as they are."""
        return PrepareModuleInput(input_layouts=(SEQUENCE, *[None] * others),
                                  desired_input_layouts=(Replicate(), *[None] * others))

    layer_plan = {
        "input_layernorm": SequenceParallel(),
        "self_attn": whole(others=4),
        "self_attn.q_proj": ColwiseParallel(),
        "self_attn.k_proj": ColwiseParallel(),
        "self_attn.v_proj": ColwiseParallel(),
        "self_attn.o_proj": RowwiseParallel(output_layouts=SEQUENCE),
        "post_attention_layernorm": SequenceParallel(),
        "mlp": whole(),
        "mlp.gate_proj": ColwiseParallel(),
        "mlp.up_proj": ColwiseParallel(),
        "mlp.down_proj": RowwiseParallel(output_layouts=SEQUENCE),
    }
    for layer in model.model.layers:
        parallelize_module(layer, mesh, layer_plan)
    logits = Shard(-1) if args.loss_parallel else Replicate()
    return parallelize_module(model, mesh, {
        "model.embed_tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=SEQUENCE),
        "model.norm": SequenceParallel(),
        "lm_head": ColwiseParallel(input_layouts=SEQUENCE, output_layouts=logits,
                                   use_local_output=not args.loss_parallel),
    })


def main(argv=None):
    args = parse(argv)
    with process_group(args) as device:
        count = dist.get_world_size()
        if args.kv_heads % count or args.context % count:
            raise SystemExit(f"--kv-heads {args.kv_heads} and --context {args.context}: no multiples of {count}")
        model = parallelize(decoder(args).to(device), init_device_mesh(device.type, (count,)), args)
        optimizer = adam(model, args)
        parameters = sum(parameter.numel() for parameter in model.parameters())
        mine = sum(parameter.to_local().numel() for parameter in model.parameters())
        say(f"{parameters:,} parameters, {mine:,} in each of {count} processes on {device.type}")

        def step(ids, targets):
            with loss_parallel() if args.loss_parallel else nullcontext():
                loss = train_step(model, optimizer, ids, targets)
            return loss.full_tensor() if isinstance(loss, DTensor) else loss

        losses = train(args, device, step, parts=1, part=0)
        finish(args, device, losses)


if __name__ == "__main__":
    main()

"""Trains DLRM to predict clicks from a file in Criteo's format.

  python examples/dlrm/train.py                                 # a generated file, on "tpu"
  python examples/dlrm/train.py --data train.txt --rows 1000000 --buckets 100000 --sparse
  torchrun --nproc-per-node 2 examples/dlrm/train.py            # the tables divided among processes
"""

import os
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from sklearn.metrics import roc_auc_score
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from examples.dlrm.criteo import CATEGORIES, INTEGERS, Rows, read
from examples.dlrm.generate import generate
from examples.dlrm.model import DLRM, Dense, Tables
from examples.training import Training, flags, train


class Optimizers:
    """Several optimizers as one: Adam for dense gradients, SparseAdam for those of the tables."""

    def __init__(self, *optimizers: torch.optim.Optimizer):
        self.optimizers = optimizers
        self.param_groups = [group for optimizer in optimizers for group in optimizer.param_groups]

    def zero_grad(self, set_to_none: bool = True) -> None:
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none)

    def step(self) -> None:
        for optimizer in self.optimizers:
            optimizer.step()

    def state_dict(self) -> list[dict]:
        return [optimizer.state_dict() for optimizer in self.optimizers]

    def load_state_dict(self, states: list[dict]) -> None:
        for optimizer, state in zip(self.optimizers, states):
            optimizer.load_state_dict(state)


class Clicks(Training):
    """DLRM on random rows of the file; every eighth row is held out. Each of several processes has a part."""

    unit = "rows"

    def __init__(self, args, device: str):
        super().__init__(args, device)
        self.rank, self.world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        if args.batch % self.world:
            raise SystemExit(f"--batch {args.batch} cannot be divided among {self.world} processes")
        rows = load(args)
        held_out = torch.arange(len(rows)) % 8 == 0
        self.rows, self.test = rows[~held_out], rows[held_out]
        tables = Tables(CATEGORIES, args.buckets, args.width, args.sparse, args.seed, self.rank, self.world).to(device)
        dense = Dense(INTEGERS, CATEGORIES, args.width).to(device)
        self.model = DLRM(tables, DistributedDataParallel(dense) if self.world > 1 else dense)
        kind = torch.optim.SparseAdam if args.sparse else torch.optim.Adam
        self.optimizer = Optimizers(kind(list(tables.parameters()), args.lr),
                                    torch.optim.Adam(dense.parameters(), args.lr))

    def part(self, rows: Rows) -> tuple[torch.Tensor, ...]:
        """Numbers and labels of this process' part of a batch, and the categories of all of it."""
        size = len(rows) // self.world
        mine = slice(self.rank * size, (self.rank + 1) * size)
        return rows.numbers[mine], rows.categories, rows.labels[mine]

    def batch(self):
        return self.part(self.rows[torch.randint(len(self.rows), (self.args.batch,), generator=self.generator)])

    def units(self, numbers, categories, labels):
        return len(labels)

    def loss(self, numbers, categories, labels):
        """Mean cross entropy in nats."""
        return torch.nn.functional.binary_cross_entropy_with_logits(self.model(numbers, categories), labels)

    def train_step(self, *batch):
        """The loss is the mean over all processes."""
        loss = super().train_step(*batch)
        if self.world > 1:
            dist.all_reduce(loss)
        return loss / self.world

    @torch.no_grad()
    def area_under_curve(self) -> float:
        """Of the ROC on the held-out rows: how often a click scores higher than another row."""
        scores, labels, size = [], [], self.args.batch
        for start in range(0, len(self.test) // size * size, size):
            *inputs, clicked = (t.to(self.device) for t in self.part(self.test[start : start + size]))
            with self.autocast():
                scores.append(self.gather(self.model(*inputs).float()))
            labels.append(self.gather(clicked))
        return float(roc_auc_score(torch.cat(labels).numpy(), torch.cat(scores).numpy()))

    def gather(self, part: torch.Tensor) -> torch.Tensor:
        """The parts of all processes, on the CPU."""
        if self.world == 1:
            return part.cpu()
        whole = part.new_empty(self.world * len(part))
        dist.all_gather_into_tensor(whole, part)
        return whole.cpu()

    def save(self, path) -> None:
        """Each process writes its own tables: a file for each rank."""
        super().save(self.own(path))

    def load(self, path) -> None:
        super().load(self.own(path))

    def own(self, path) -> str:
        return f"{path}.{self.rank}" if self.world > 1 else path


def load(args) -> Rows:
    """The rows of args.data, or of a file that is generated."""
    if args.data:
        return read(args.data, args.buckets, args.rows)
    with tempfile.NamedTemporaryFile("w", suffix=".tsv", encoding="ascii") as file:
        file.writelines(line + "\n" for line in generate(args.rows, args.seed))
        file.flush()
        return read(file.name, args.buckets)


def parse(argv=None):
    parser = flags(__doc__, steps=300, batch=256, lr=3e-3)
    parser.add_argument("--data", metavar="FILE", help="tab-separated, as the Criteo challenge has it")
    parser.add_argument("--rows", type=int, default=30_000, help="how many to read or to generate")
    parser.add_argument("--buckets", type=int, default=1000, help="of the hash of each category: rows of a table")
    parser.add_argument("--width", type=int, default=16, help="of an embedding")
    parser.add_argument("--sparse", action="store_true", help="sparse gradients of the tables, SparseAdam")
    return parser.parse_args(argv)


def main(argv=None) -> tuple[list[float], float]:
    """The losses of the steps, and the area under the ROC curve on the held-out rows."""
    args = parse(argv)
    if "WORLD_SIZE" in os.environ:
        dist.init_process_group(None if args.device.startswith("tpu") else "gloo")
        if dist.get_rank():
            sys.stdout = open(os.devnull, "w", encoding="utf-8")
    run, losses = train(Clicks, args)
    area = run.area_under_curve()
    print(f"area under the ROC curve {area:.4f} on held-out rows")
    if dist.is_initialized():
        dist.destroy_process_group()
    return losses, area


if __name__ == "__main__":
    main()

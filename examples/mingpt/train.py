"""Trains a character model on the Python standard library's own sources.

  python examples/mingpt/train.py                         # on "tpu"
  python examples/mingpt/train.py --device cpu --text FILE --steps 500
  python examples/mingpt/train.py --resume run.pt         # continue a run saved by --checkpoint run.pt
"""

import functools
import math
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from examples.mingpt.model import GPT, Config
from examples.text import read_text, windows
from examples.training import Training, flags, train

BUDGETS = {"demo": dict(steps=1200, compare=50), "test": dict(steps=60, compare=20)}


class CharacterModel(Training):
    """A GPT that predicts the next character of random windows of the text."""

    unit = "characters"

    def __init__(self, text: str, args, device: str):
        super().__init__(args, device)
        self.characters = sorted(set(text))
        self.index = {character: index for index, character in enumerate(self.characters)}
        self.data = torch.tensor([self.index[character] for character in text])
        config = Config(vocabulary=len(self.characters), context=args.context, layers=args.layers, heads=args.heads,
                        width=args.width, dropout=args.dropout)
        self.model = GPT(config).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=args.lr, weight_decay=0.01)

    def batch(self):
        """Ids [batch, context] and the ids that follow them."""
        return windows(self.data, self.args.batch, self.args.context, self.generator)

    def units(self, ids, _):
        return ids.numel()

    def loss(self, ids, targets):
        """In nats per character."""
        return self.model.loss(ids, targets)

    def learning_rate(self):
        """Linear warm-up, then cosine decay to a tenth."""
        warmup, total = 50, max(self.args.steps, 1)
        if self.step < warmup:
            return self.args.lr * (self.step + 1) / warmup
        progress = min(1.0, (self.step - warmup) / max(1, total - warmup))
        return self.args.lr * (0.1 + 0.45 * (1 + math.cos(math.pi * progress)))

    def clip(self):
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)

    def sample(self, count: int) -> str:
        """A line break and `count` characters that follow it."""
        self.model.eval()
        start = torch.tensor([[self.index["\n"]]], device=self.device)
        tokens = self.model.generate(start, count, torch.Generator().manual_seed(self.args.seed))
        return "".join(self.characters[token] for token in tokens)


def parse(argv=None):
    parser = flags(__doc__, steps=1000, batch=16, lr=3e-3)
    parser.add_argument("--text", help="a text file instead of the standard library's sources")
    parser.add_argument("--budget", choices=sorted(BUDGETS), help="a prepared number of steps, compared with the CPU")
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--sample", type=int, default=200, help="characters to generate at the end")
    args = parser.parse_args(argv)
    if args.budget:
        vars(args).update(BUDGETS[args.budget])
    return args


def main(argv=None) -> list[float]:
    """The losses of the steps."""
    args = parse(argv)
    text = read_text(args.text)
    print(f"{len(text):,} characters, {len(set(text))} different")
    run, losses = train(functools.partial(CharacterModel, text), args)
    if args.sample:
        print("-" * 40 + run.sample(args.sample) + "\n" + "-" * 40)
    return losses


if __name__ == "__main__":
    main()

"""Trains a character model on the Python standard library's own sources.

  python examples/mingpt/train.py                         # on "tpu"
  python examples/mingpt/train.py --device cpu --text FILE --steps 500
  python examples/mingpt/train.py --resume run.pt         # continue a run saved by --checkpoint run.pt
"""

import argparse
import glob
import os
import sysconfig
import time

import torch
from model import GPT, Config

BUDGETS = {"demo": dict(steps=1200, compare=50), "test": dict(steps=60, compare=20)}


def read_text(path: str | None, limit: int = 2_000_000) -> str:
    """The file, or the standard library's top-level modules in sorted order; ASCII only."""
    files = [path] if path else sorted(glob.glob(os.path.join(sysconfig.get_path("stdlib"), "*.py")))
    parts, size = [], 0
    for name in files:
        with open(name, encoding="utf-8", errors="ignore") as file:
            part = "".join(c for c in file.read() if c == "\n" or " " <= c <= "~")
        parts.append(part)
        size += len(part)
        if size > limit:
            break
    return "".join(parts)[:limit]


class Batches:
    """Random windows of the text, drawn on the CPU so that every device sees the same ones."""

    def __init__(self, data, batch, context, seed):
        self.data, self.batch, self.context = data, batch, context
        self.generator = torch.Generator().manual_seed(seed)

    def next(self, device):
        starts = torch.randint(len(self.data) - self.context - 1, (self.batch,), generator=self.generator)
        windows = torch.stack([self.data[s : s + self.context + 1] for s in starts])
        return windows[:, :-1].to(device), windows[:, 1:].to(device)


class Run:
    """A model, its optimizer and its data; everything that a checkpoint holds."""

    def __init__(self, args, vocabulary, data, device):
        torch.manual_seed(args.seed)
        config = Config(vocabulary=vocabulary, context=args.context, layers=args.layers, heads=args.heads,
                        width=args.width, dropout=args.dropout)
        self.device = device
        self.model = GPT(config).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=args.lr, weight_decay=0.01)
        self.batches = Batches(data, args.batch, args.context, args.seed)
        self.args = args
        self.step = 0

    def learning_rate(self):
        """Linear warm-up, then cosine decay to a tenth."""
        warmup, total = 50, max(self.args.steps, 1)
        if self.step < warmup:
            return self.args.lr * (self.step + 1) / warmup
        progress = min(1.0, (self.step - warmup) / max(1, total - warmup))
        return self.args.lr * (0.1 + 0.45 * (1 + torch.cos(torch.tensor(progress * 3.141592653589793)).item()))

    def train_step(self):
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate()
        loss = self.model.loss(*self.batches.next(self.device))
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.step += 1
        return loss.detach()

    def random_state(self):
        """States of the generators that dropout draws from."""
        state = {"cpu": torch.get_rng_state()}
        if self.device.startswith("tpu"):
            state["tpu"] = torch.tpu.get_rng_state()
        return state

    def save(self, path):
        torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "step": self.step,
                    "batches": self.batches.generator.get_state(), "random": self.random_state()}, path)

    def load(self, path):
        state = torch.load(path, map_location=self.device)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step = state["step"]
        self.batches.generator.set_state(state["batches"].cpu())
        torch.set_rng_state(state["random"]["cpu"].cpu())
        if self.device.startswith("tpu") and "tpu" in state["random"]:
            torch.tpu.set_rng_state(state["random"]["tpu"])


def largest_difference(losses, reference):
    """The largest relative difference between two loss curves."""
    return max(abs(a - b) / abs(b) for a, b in zip(losses, reference))


def parse(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="tpu")
    parser.add_argument("--text", help="a text file instead of the standard library's sources")
    parser.add_argument("--budget", choices=sorted(BUDGETS), help="a prepared number of steps, compared with CPU")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--compare", type=int, default=0, help="check the first N losses against the CPU")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", type=int, default=50, help="print the loss every N steps")
    parser.add_argument("--checkpoint", help="write the run here at the end")
    parser.add_argument("--resume", help="continue the run saved here")
    parser.add_argument("--sample", type=int, default=200, help="characters to generate at the end")
    args = parser.parse_args(argv)
    if args.budget:
        vars(args).update(BUDGETS[args.budget])
    return args


def main(argv=None):
    args = parse(argv)
    text = read_text(args.text)
    characters = sorted(set(text))
    index = {c: i for i, c in enumerate(characters)}
    data = torch.tensor([index[c] for c in text])
    run = Run(args, len(characters), data, args.device)
    if args.resume:
        run.load(args.resume)
    count = sum(p.numel() for p in run.model.parameters())
    print(f"{len(text):,} characters, {len(characters)} different; {count:,} parameters on {args.device}", flush=True)

    losses, started = [], time.perf_counter()
    first = run.step
    while run.step < args.steps:
        losses.append(run.train_step())
        if run.step % args.log == 0 or run.step == args.steps or run.step == first + 1:
            seconds = time.perf_counter() - started
            print(f"step {run.step:5d}  loss {losses[-1].item():.4f}  {seconds:6.1f} s", flush=True)
    losses = [loss.item() for loss in losses]
    seconds = time.perf_counter() - started
    tokens = (run.step - first) * args.batch * args.context
    if losses:
        tail = losses[-20:]
        print(f"loss {sum(tail) / len(tail):.4f} nats/char over the last {len(tail)} steps; {tokens / seconds:,.0f} characters/s")
    if args.device.startswith("tpu"):
        counters = torch.tpu.counters()
        print(f"{counters['compiles']} programs compiled, {counters['programs_run']} run; "
              f"peak {torch.tpu.max_memory_allocated() / 2**20:.0f} MiB on the device")

    if args.compare and args.device != "cpu" and not args.resume:
        reference = Run(args, len(characters), data, "cpu")
        expected = [reference.train_step().item() for _ in range(min(args.compare, len(losses)))]
        difference = largest_difference(losses, expected)
        print(f"largest relative difference to the CPU over the first {len(expected)} steps: {difference:.1e}")
        if difference > 1e-3:
            raise SystemExit("the loss curve differs from the CPU's by more than 1e-3")
    if args.checkpoint:
        run.save(args.checkpoint)
    if args.sample:
        run.model.eval()
        start = torch.tensor([[index["\n"]]], device=args.device)
        tokens = run.model.generate(start, args.sample, torch.Generator().manual_seed(args.seed))
        print("-" * 40 + "".join(characters[t] for t in tokens) + "\n" + "-" * 40)
    return losses


if __name__ == "__main__":
    main()

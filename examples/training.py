"""What the examples share: flags, the training loop with its report, checkpoints that continue bit for bit."""

import argparse
import contextlib
import sys
import time

import torch
from tqdm import tqdm

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
TOLERANCES = {"fp32": 1e-3, "bf16": 5e-2}  # of losses against the CPU's, relative


def flags(description: str, **defaults) -> argparse.ArgumentParser:
    """A parser with the flags of every example; `defaults` replaces some of their values."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="tpu")
    parser.add_argument("--compile", action="store_true", help="run the step through torch.compile")
    parser.add_argument("--dtype", choices=sorted(DTYPES), default="fp32", help="bf16: autocast")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--stop", type=int, metavar="STEP", help="end here, while schedules count on to --steps")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", type=int, default=50, help="print the loss every N steps")
    parser.add_argument("--compare", type=int, default=0, help="check the first N losses against the CPU's")
    parser.add_argument("--checkpoint", help="write the run here at the end")
    parser.add_argument("--resume", help="continue the run saved here")
    parser.add_argument("--plot", metavar="FILE.png", help="draw the losses")
    parser.set_defaults(**defaults)
    return parser


class Training:
    """A model, its optimizer and its data on one device: all that a checkpoint holds.

    An example derives from it, says what a batch is and what its loss, and sets `model` and `optimizer`.
    """

    unit = "samples"  # what `units` counts

    def __init__(self, args, device: str):
        torch.manual_seed(args.seed)
        self.args, self.device, self.step = args, device, 0
        self.generator = torch.Generator().manual_seed(args.seed)  # of the data: every device sees the same
        self.model: torch.nn.Module
        self.optimizer: torch.optim.Optimizer

    def batch(self) -> tuple[torch.Tensor, ...]:
        """The next batch, on the CPU, drawn with `generator`."""
        raise NotImplementedError

    def loss(self, *batch: torch.Tensor) -> torch.Tensor:
        """The mean loss of a batch on the device."""
        raise NotImplementedError

    def units(self, *batch: torch.Tensor) -> int:
        """How many samples (or tokens, or pixels) the batch has."""
        return len(batch[0])

    def learning_rate(self) -> float:
        """Of the step that comes next."""
        return self.args.lr

    def autocast(self):
        """The context in which the model computes, as --dtype says."""
        if self.args.dtype == "fp32":
            return contextlib.nullcontext()
        return torch.autocast(torch.device(self.device).type, DTYPES[self.args.dtype])

    def train_step(self, *batch: torch.Tensor) -> torch.Tensor:
        """One step; returns its loss, which nobody has waited for."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate()
        self.optimizer.zero_grad(set_to_none=True)
        with self.autocast():
            loss = self._loss(*batch)
        loss.backward()
        self.clip()
        self.optimizer.step()
        self.step += 1
        return loss.detach()

    def clip(self) -> None:
        """Where an example limits its gradients."""

    def advance(self) -> tuple[torch.Tensor, int]:
        """Draws a batch and trains on it: the loss, and the units seen."""
        batch = self.batch()
        return self.train_step(*(part.to(self.device) for part in batch)), self.units(*batch)

    @property
    def _loss(self):
        if not self.args.compile:
            return self.loss
        if "_compiled" not in self.__dict__:
            self._compiled = torch.compile(self.loss)
        return self._compiled

    def save(self, path) -> None:
        """Writes the run; `load` continues it with the same bits."""
        random = {"cpu": torch.get_rng_state()}
        if self.device.startswith("tpu"):
            random["tpu"] = torch.tpu.get_rng_state()
        torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "step": self.step,
                    "data": self.generator.get_state(), "random": random}, path)

    def load(self, path) -> None:
        """Continues what `save` wrote, on this device or another."""
        state = torch.load(path, map_location="cpu")  # the optimizer counts its steps on the host
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step = state["step"]
        self.generator.set_state(state["data"])
        torch.set_rng_state(state["random"]["cpu"])
        if self.device.startswith("tpu") and "tpu" in state["random"]:
            torch.tpu.set_rng_state(state["random"]["tpu"])
        if self.device.startswith("tpu"):
            torch.tpu.synchronize()  # steps are rounded as their programs are cut: they start with nothing recorded


def train(make, args) -> tuple[Training, list[float]]:
    """Trains make(args, device) up to args.steps, reports, and checks against the CPU when args.compare asks.

    Returns the run and the losses of its steps. Raises SystemExit where the losses differ from the CPU's.
    """
    run = make(args, args.device)
    if args.resume:
        run.load(args.resume)
    count = sum(parameter.numel() for parameter in run.model.parameters())
    print(f"{count:,} parameters on {args.device}", flush=True)
    losses, units, programs, started = [], 0, [compiles(args.device)], time.perf_counter()
    first, last = run.step, min(args.steps, args.stop or args.steps)
    progress = tqdm(range(first, last), disable=None, unit="step")
    for _ in progress:
        loss, seen = run.advance()
        losses.append(loss.item())  # reading it ends the program: each step runs the same one
        units += seen
        progress.set_postfix(loss=f"{losses[-1]:.4f}", refresh=False)
        programs.append(compiles(args.device))
        if run.step % args.log == 0 or run.step in (first + 1, last):
            tqdm.write(f"step {run.step:5d}  loss {losses[-1]:.4f}  {time.perf_counter() - started:6.1f} s")
            sys.stdout.flush()
    report(run, losses, units, time.perf_counter() - started, programs)
    if args.compare and not args.resume:
        compare(make, args, losses)
    if args.checkpoint:
        run.save(args.checkpoint)
    if args.plot:
        plot(losses, first, args.plot)
    return run, losses


def compiles(device: str) -> int:
    """Programs compiled or taken from the disk since the process started."""
    if not device.startswith("tpu"):
        return 0
    counters = torch.tpu.counters()
    return counters["compiles"] + counters["disk_hits"]


def report(run: Training, losses: list[float], units: int, seconds: float, programs: list[int]) -> None:
    """Prints the final loss, the throughput, and on tpu the programs and the memory.

    programs: what `compiles` was before the first step and after each.
    """
    if losses:
        tail = losses[-20:]
        print(f"loss {sum(tail) / len(tail):.4f} over the last {len(tail)} steps; {units / seconds:,.0f} {run.unit}/s")
    if run.device.startswith("tpu"):
        counters = torch.tpu.counters()
        last = max((step for step in range(1, len(programs)) if programs[step] > programs[step - 1]), default=0)
        print(f"{programs[-1] - programs[0]} programs compiled, the last of them in step {last}; "
              f"{counters['programs_run']} runs, {counters['fallbacks']} operators on the CPU; "
              f"peak {torch.tpu.max_memory_allocated() / 2**20:.0f} MiB on the device")


def compare(make, args, losses: list[float]) -> None:
    """Trains on the CPU, eagerly, and checks the first args.compare losses."""
    reference = make(argparse.Namespace(**{**vars(args), "compile": False}), "cpu")
    expected = [reference.advance()[0].item() for _ in range(min(args.compare, len(losses)))]
    difference = max(abs(a - b) / abs(b) for a, b in zip(losses, expected))
    print(f"largest relative difference to the CPU over the first {len(expected)} steps: {difference:.1e}")
    if not difference <= TOLERANCES[args.dtype]:
        raise SystemExit(f"the losses differ from the CPU's by more than {TOLERANCES[args.dtype]}")


def plot(losses: list[float], first: int, path) -> None:
    """Draws the losses of the steps first + 1, first + 2, … and writes the picture."""
    from matplotlib.figure import Figure

    axes = (figure := Figure(figsize=(8, 5))).subplots()
    axes.plot(range(first + 1, first + 1 + len(losses)), losses, linewidth=1)
    axes.set(xlabel="step", ylabel="loss")
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=100, bbox_inches="tight")

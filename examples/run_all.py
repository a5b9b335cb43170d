"""Runs the examples for a short while each, and checks what they reach.

  python examples/run_all.py                      # all of them, on "tpu"
  python examples/run_all.py resnet qwen --brief  # a few steps of some
"""

import argparse
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent


@dataclass
class Bound:
    """A number that the output must hold: the group of `pattern`, within [least, most]."""

    pattern: str
    least: float = float("-inf")
    most: float = float("inf")

    def check(self, output: str) -> str | None:
        """What is wrong with the output."""
        found = re.search(self.pattern, output)
        if found is None:
            return f"the output has no {self.pattern!r}"
        value = float(found[1])
        return None if self.least <= value <= self.most else f"{found[0]!r} is not in [{self.least}, {self.most}]"


@dataclass
class Example:
    """A script with its arguments, in which {out} is a folder for all examples, and what its output must hold.

    brief: arguments for a form of a few steps, for which `bounds` do not hold. steady: the last step that may compile.
    processes: under torchrun.
    """

    script: str
    arguments: str
    bounds: tuple[Bound, ...] = ()
    files: tuple[str, ...] = ()
    brief: str = ""
    steady: int = 2
    processes: int = 0

    @property
    def name(self) -> str:
        """The folder's, the script's, and what tells two of the same script apart."""
        flags = re.findall(r"--(?:family|sparse|lora|depth)\S*(?: [^-]\S*)?", self.arguments)
        return " ".join([self.script.removesuffix(".py"), *flags])

    def command(self, out, brief: bool = False, extra: list[str] = ()) -> list[str]:
        arguments = f"{self.arguments} {self.brief if brief else ''}".format(out=out).split()
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={self.processes}", "--"]
        return [sys.executable, *(launcher if self.processes else []), str(FOLDER / self.script), *arguments, *extra]

    def wrong(self, output: str, out, brief: bool = False) -> list[str]:
        """What is not as it should be."""
        bounds = () if brief else self.bounds
        if "programs compiled" in output:
            bounds = (*bounds, Bound(r"the last of them in step (\d+)", most=self.steady),
                      Bound(r"(\d+) operators on the CPU", most=0))
        found = [bound.check(output) for bound in bounds]
        found += [None if (Path(out) / file).exists() else f"{file} is missing" for file in self.files]
        losses = re.findall(r"step +\d+ +loss (\S+)", output)
        if losses and not brief and not float(losses[-1]) < float(losses[0]):
            found.append(f"the loss went from {losses[0]} to {losses[-1]}")
        return [problem for problem in found if problem]


LOSS, CHECKED = r"loss (\S+) over the last", "--compare 20"
ACCURACY, AREA = r"accuracy (\S+)%", r"area under the ROC curve (\S+)"
LANGUAGE = f"--steps 200 --log 50 {CHECKED} --sample 0"
BRIEF = "--steps 20 --log 10 --compare 5"
CONTINUE = "--prompt def --prompt import --tokens 24 --compare"

EXAMPLES = [
    Example("mingpt/train.py", f"--steps 400 --log 100 {CHECKED} --checkpoint {{out}}/gpt.pt --plot {{out}}/loss.png",
            (Bound(LOSS, most=2.2),), ("gpt.pt", "loss.png"), f"{BRIEF} --width 32 --heads 2 --layers 1 --sample 20"),
    Example("llama/train.py", f"{LANGUAGE} --save {{out}}/llama", (Bound(LOSS, most=4.6),),
            ("llama/model.safetensors", "llama/tokenizer.json"), f"{BRIEF} --context 32"),
    Example("llama/generate.py", f"{{out}}/llama {CONTINUE}"),
    Example("llama/train.py", f"--model {{out}}/llama --lora 8 --steps 40 --log 20 {CHECKED} --sample 0 "
            "--save-adapters {out}/adapters", (), ("adapters/adapter_model.safetensors",), f"{BRIEF} --context 32"),
    Example("qwen/train.py", f"{LANGUAGE} --family qwen2 --save {{out}}/qwen2", (Bound(LOSS, most=4.6),), (),
            f"{BRIEF} --context 32"),
    Example("qwen/train.py", f"{LANGUAGE} --family qwen3 --save {{out}}/qwen3", (Bound(LOSS, most=4.6),), (),
            f"{BRIEF} --context 32"),
    Example("qwen/generate.py", f"{{out}}/qwen3 {CONTINUE}"),
    Example("resnet/train.py", f"--steps 500 {CHECKED}", (Bound(ACCURACY, least=97),), (),
            f"{BRIEF} --width 4 --batch 16"),
    Example("dlrm/train.py", f"--steps 300 {CHECKED}", (Bound(AREA, least=0.75),), (), f"{BRIEF} --rows 3000"),
    Example("dlrm/train.py", f"--sparse --steps 100 {CHECKED}", (Bound(AREA, least=0.7),), (), f"{BRIEF} --rows 3000",
            steady=8),  # how many rows a gradient has differs
    Example("unet/segment.py", f"--steps 80 {CHECKED} --picture {{out}}/masks.png",
            (Bound(r"intersection over union (\S+)", least=0.8),), ("masks.png",), BRIEF),
    Example("unet/diffuse.py", f"--steps 800 {CHECKED} --picture {{out}}/digits.png",
            (Bound(r"samples, (\S+) from the nearest", most=0.4),), ("digits.png",),
            f"{BRIEF} --times 5 --samples 4 --batch 16"),
    *(Example(f"distributed/{script}.py", "--compare", processes=2, brief="--steps 6")
      for script in ("ddp", "fsdp2", "hsdp", "tensor_parallel")),
    Example("dlrm/train.py", "--steps 40 --log 20", processes=2, brief=f"{BRIEF} --rows 3000", steady=3),  # DDP's buckets
]


def main(argv=None) -> int:
    """Prints the output of each example; the exit status is 1 where one fails or reaches too little."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="folders, or parts of scripts' names: only these")
    parser.add_argument("--brief", action="store_true", help="a few steps each: that they run, not what they reach")
    args = parser.parse_args(argv)
    chosen = [each for each in EXAMPLES if not args.names or any(name in each.name for name in args.names)]
    failed, started = [], time.perf_counter()
    with tempfile.TemporaryDirectory() as out:
        for example in chosen:
            print(f"\n== {example.name}", flush=True)
            begun = time.perf_counter()
            done = subprocess.run(example.command(out, args.brief), stdout=subprocess.PIPE, text=True, check=False)
            problems = example.wrong(done.stdout, out, args.brief)
            if done.returncode:
                problems.append(f"exit status {done.returncode}")
            print(done.stdout + "".join(f"WRONG: {problem}\n" for problem in problems), end="")
            print(f"-- {time.perf_counter() - begun:.0f} s", flush=True)
            failed += [example.name] * bool(problems)
    print(f"\n{len(chosen) - len(failed)} of {len(chosen)} examples reach what they should; "
          f"{time.perf_counter() - started:.0f} s" + "".join(f"\nfailed: {name}" for name in failed))
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())

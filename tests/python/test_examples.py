"""examples/mingpt: it learns, equals the CPU, and continues a checkpoint bit for bit."""
import re
import subprocess
import sys
from pathlib import Path

import torch

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "mingpt"
SMALL = ["--layers", "1", "--width", "32", "--heads", "2", "--context", "16", "--batch", "4"]


def losses(text):
    """{step: loss} of the printed lines."""
    return {int(step): float(loss) for step, loss in re.findall(r"step +(\d+) +loss ([\d.]+)", text)}


def test_training():
    """The script itself fails where the first 20 losses differ from the CPU's by more than 1e-3."""
    command = [sys.executable, str(EXAMPLE / "train.py"), "--budget", "test", *SMALL, "--sample", "20", "--log", "20"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0 and done.stderr == "", done.stdout + done.stderr
    last = float(re.search(r"loss ([\d.]+) nats/char over the last 20 steps", done.stdout)[1])
    assert losses(done.stdout)[1] > 4 and last < 3.5
    difference = re.search(r"largest relative difference to the CPU over the first 20 steps: (\S+)", done.stdout)[1]
    assert float(difference) < 1e-3
    assert int(re.search(r"(\d+) programs compiled", done.stdout)[1]) < 20
    assert done.stdout.count("-" * 40) == 2


def test_checkpoints(forked, tmp_path):
    """Steps 1-14 in one run, and in two with a file between them, end in the same bits.

    In strict mode: which ops fused mode joins into one program decides how their last bits are rounded.
    """
    runs = [["--steps", "14", "--checkpoint", "whole.pt"], ["--steps", "7", "--checkpoint", "first.pt"],
            ["--steps", "14", "--resume", "first.pt", "--checkpoint", "second.pt"]]
    out = forked(f"""
        import os, sys
        os.chdir({str(tmp_path)!r})
        sys.path.insert(0, {str(EXAMPLE)!r})
        import train
        curves = [train.main({SMALL!r} + ["--sample", "0", "--log", "7"] + options) for options in {runs!r}]
        print(curves[0][7:] == curves[2], curves[0][:7] == curves[1])
    """, {"TORCH_TPU_MODE": "strict"}, timeout=500).check()
    assert out.endswith("True True")
    whole, second = (torch.load(tmp_path / name, map_location="cpu") for name in ("whole.pt", "second.pt"))
    assert whole["step"] == second["step"] == 14
    assert not [name for name in whole["model"] if not torch.equal(whole["model"][name], second["model"][name])]
    first, other = (state["optimizer"]["state"] for state in (whole, second))
    assert not [key for key in first if not torch.equal(first[key]["exp_avg_sq"], other[key]["exp_avg_sq"])]

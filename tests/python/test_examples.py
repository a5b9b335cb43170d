"""The examples, briefly: they run, keep to the CPU's losses and tokens, and continue a checkpoint bit for bit."""
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from examples.run_all import EXAMPLES

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """The folder of all examples: some read what others write."""
    return tmp_path_factory.mktemp("examples")


def run(example, out, extra=(), **environment):
    """What the example prints. It fails by itself where its losses or tokens are not the CPU's."""
    done = subprocess.run(example.command(out, True, list(extra)), capture_output=True, text=True, check=False,
                          env={**os.environ, **environment}, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (problems := example.wrong(done.stdout, out, True)), f"{problems}\n{done.stdout}"
    return done


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_brief(example, out):
    done = run(example, out)
    assert example.processes or done.stderr == ""
    assert "programs" in done.stdout or "tokens are the same" in done.stdout


SCRIPTS = {example.script: example for example in reversed(EXAMPLES) if "/generate" not in example.script}


@pytest.mark.slow
@pytest.mark.parametrize("script", [script for script in SCRIPTS if not SCRIPTS[script].processes])
@pytest.mark.parametrize("options", [["strict"], ["fused", "--compile"], ["fused", "--dtype", "bf16"]], ids=" ".join)
def test_modes(script, options, tmp_path):
    run(SCRIPTS[script], tmp_path, ["--steps", "20", "--compare", "20", *options[1:]], TORCH_TPU_MODE=options[0])


RESUMED = """
import importlib, os, sys
sys.path.insert(0, {root!r})
main = importlib.import_module({module!r}).main
curves = []
for options in (["--checkpoint", "whole.pt"], ["--stop", "7", "--checkpoint", "first.pt"],
                ["--resume", "first.pt", "--checkpoint", "second.pt"]):
    result = main({arguments!r} + ["--steps", "14"] + options)
    curves.append(result[0] if isinstance(result, tuple) else result)
print(curves[0][:7] == curves[1], curves[0][7:] == curves[2])
"""
SMALL = {
    "mingpt.train": "--layers 1 --width 32 --heads 2 --context 16 --batch 4 --dropout 0.1 --sample 0",
    "llama.train": "--context 16 --batch 2 --sample 0",
    "qwen.train": "--context 16 --batch 2 --sample 0",
    "resnet.train": "--width 4 --batch 16",
    "dlrm.train": "--rows 2000 --batch 64",
    "unet.segment": "--batch 2",
    "unet.diffuse": "--times 2 --samples 2 --batch 4",
}


@pytest.mark.parametrize("mode", ["strict", "fused"])
@pytest.mark.parametrize("module", [pytest.param(module, marks=() if module == "mingpt.train" else pytest.mark.slow)
                                    for module in SMALL])
def test_checkpoints(module, mode, tmp_path):
    """Steps 1-14 in one run, and in two with a file between them, end in the same bits."""
    code = RESUMED.format(root=str(ROOT), module=f"examples.{module}", arguments=SMALL[module].split())
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path,
                          env={**os.environ, "TORCH_TPU_MODE": mode}, timeout=500)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith("True True"), done.stdout
    whole, second = (torch.load(tmp_path / name, map_location="cpu") for name in ("whole.pt", "second.pt"))
    assert whole["step"] == second["step"] == 14
    torch.testing.assert_close(whole["model"], second["model"], rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(tensors(whole["optimizer"]), tensors(second["optimizer"]), rtol=0, atol=0)


def tensors(state):
    """All tensors of nested containers."""
    return [leaf for leaf in torch.utils._pytree.tree_leaves(state) if isinstance(leaf, torch.Tensor)]

"""Training steps with a host read of the loss each."""

import pathlib
import sys

import torch
from torch import nn

from bench.timing import best_of, compare

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "examples" / "mingpt"))


def _step(model, loss_of, device):
    model = model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def run():
        loss = loss_of(model)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    for _ in range(3):
        run()
    return run


def _mlp(device):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    x, y = torch.randn(64, 512).to(device), torch.randint(10, (64,)).to(device)
    return _step(model, lambda m: nn.functional.cross_entropy(m(x), y), device)


def _gpt(device):
    from model import GPT, Config

    torch.manual_seed(0)
    model = GPT(Config(vocabulary=96))
    ids = torch.randint(96, (16, 65))
    x, y = ids[:, :-1].to(device), ids[:, 1:].to(device)
    return _step(model, lambda m: m.loss(x, y), device)


def _row(make):
    return compare(*best_of(make("tpu"), make("cpu")), unit=1e-3, name="ms")


ROWS = {"MLP step": lambda: _row(_mlp), "minGPT step": lambda: _row(_gpt)}

"""The cost of small operations."""

import torch

from bench.timing import best_of, compare

COUNT = 1000


def _chain(device):
    x = torch.ones(8, 8, device=device)

    def run():
        y = x
        for _ in range(COUNT):
            y = y + x
        return y[0, 0].item()

    return run


def _record(device):
    x = torch.ones(8, 8, device=device)

    def run():
        for _ in range(COUNT):
            x + x

    return run


def _item(device):
    x = torch.ones(1, device=device)
    return lambda: x.item()


def _row(make, repeats=1, count=COUNT):
    ours, theirs = best_of(make("tpu"), make("cpu"), repeats=repeats)
    return compare(ours / count, theirs / count)


ROWS = {
    "add, recorded": lambda: _row(_record),
    "add, chain then read": lambda: _row(_chain),
    "item of a ready value": lambda: _row(_item, repeats=COUNT, count=1),
}

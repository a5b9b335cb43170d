"""DLRM (Naumov et al., 2019): embedded categories and a network over numbers, joined by their dot products.

Among several processes the tables are divided: each process looks up its own tables for the whole batch, and one
exchange brings each process the rows of its own part of the batch.
"""

import torch
import torch.distributed as dist
from torch import nn


def network(*widths: int) -> nn.Sequential:
    """Linear layers of these widths with ReLUs between them."""
    layers = []
    for inputs, outputs in zip(widths, widths[1:]):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Exchange(torch.autograd.Function):
    """[world * count, width] -> the same shape: the rows for rank r go to r, those from rank r come r-th.

    Losses are means over each process' part of the batch, so gradients are divided by the number of processes.
    """

    @staticmethod
    def forward(ctx, rows):
        received = torch.empty_like(rows)
        dist.all_to_all_single(received, rows.contiguous())
        return received

    @staticmethod
    def backward(ctx, gradient):
        returned = torch.empty_like(gradient)
        dist.all_to_all_single(returned, gradient.contiguous())
        return returned / dist.get_world_size()


class Tables(nn.Module):
    """The embeddings of all categories for this process' part of the batch.

    count: tables in all; rank r of `world` has the tables r * count / world … of them. Their first values depend on
    `seed` and their number only, not on how they are divided.
    """

    def __init__(self, count: int, buckets: int, width: int, sparse: bool, seed: int, rank: int = 0, world: int = 1):
        super().__init__()
        if count % world:
            raise ValueError(f"{count} tables cannot be divided among {world} processes")
        self.rank, self.world, self.width = rank, world, width
        self.mine = range(rank * count // world, (rank + 1) * count // world)
        self.bags = nn.ModuleList()
        for table in self.mine:
            generator = torch.Generator().manual_seed(seed * count + table)
            values = torch.rand(buckets, width, generator=generator) * 2 - 1
            self.bags.append(nn.EmbeddingBag(buckets, width, mode="sum", sparse=sparse, _weight=values * buckets**-0.5))

    def forward(self, categories: torch.Tensor) -> torch.Tensor:
        """int64 [batch, count], of the whole batch -> [batch / world, count, width], of this process' part."""
        looked_up = torch.stack([bag(categories[:, table, None]) for table, bag in zip(self.mine, self.bags)], 1)
        if self.world == 1:
            return looked_up
        rows = Exchange.apply(looked_up.flatten(1))
        by_rank = rows.view(self.world, -1, len(self.mine), self.width)
        return by_rank.transpose(0, 1).flatten(1, 2)


class Dense(nn.Module):
    """The parts that every process has: scores [batch] of numbers [batch, numbers] and embeddings."""

    def __init__(self, numbers: int, count: int, width: int, hidden: int = 64):
        super().__init__()
        self.bottom = network(numbers, hidden, width)
        row, column = torch.triu_indices(count + 1, count + 1, offset=1)
        self.top = network(width + len(row), hidden, hidden, 1)
        self.register_buffer("pairs", row * (count + 1) + column, persistent=False)

    def forward(self, numbers: torch.Tensor, embedded: torch.Tensor) -> torch.Tensor:
        """numbers: [batch, numbers]; embedded: [batch, count, width]."""
        bottom = self.bottom(numbers)
        vectors = torch.cat([bottom[:, None], embedded], 1)
        products = (vectors @ vectors.transpose(1, 2)).flatten(1).index_select(1, self.pairs)
        return self.top(torch.cat([bottom, products], 1)).squeeze(1)


class DLRM(nn.Module):
    """Scores (logits of a click) of numbers and hashed categories."""

    def __init__(self, tables: Tables, dense: nn.Module):
        super().__init__()
        self.tables, self.dense = tables, dense

    def forward(self, numbers: torch.Tensor, categories: torch.Tensor) -> torch.Tensor:
        """float32 [batch / world, 13] and int64 [batch, 26] -> [batch / world]."""
        return self.dense(numbers, self.tables(categories))

"""Files in the format of the Criteo display advertising challenge.

A line has 40 fields between tabs: the label (0 or 1), 13 integers and 26 categories of eight hexadecimal digits. Any
integer or category may be missing, which an empty field says.
"""

import itertools
from dataclasses import dataclass

import torch

INTEGERS, CATEGORIES = 13, 26


@dataclass
class Rows:
    """labels: float32 [rows]; numbers: float32 [rows, 13]; categories: int64 [rows, 26], below the hash size."""

    labels: torch.Tensor
    numbers: torch.Tensor
    categories: torch.Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows) -> "Rows":
        return Rows(self.labels[rows], self.numbers[rows], self.categories[rows])


def read(path, buckets: int, limit: int | None = None) -> Rows:
    """The first `limit` lines. Numbers are log(1 + n), 0 where n is negative or missing; categories are hashed."""
    labels, numbers, categories = [], [], []
    with open(path, encoding="ascii") as file:
        for line in itertools.islice(file, limit):
            fields = line.rstrip("\n").split("\t")
            if len(fields) != 1 + INTEGERS + CATEGORIES:
                raise ValueError(f"{path}, line {len(labels) + 1}: {len(fields)} fields, not 40")
            labels.append(int(fields[0]))
            numbers.append([int(field or 0) for field in fields[1 : 1 + INTEGERS]])
            categories.append([int(field, 16) + 1 if field else 0 for field in fields[1 + INTEGERS :]])
    values = torch.tensor(numbers, dtype=torch.float32).reshape(-1, INTEGERS).clamp(min=0).log1p()
    return Rows(torch.tensor(labels, dtype=torch.float32), values,
                hashed(torch.tensor(categories, dtype=torch.int64).reshape(-1, CATEGORIES), buckets))


def hashed(values: torch.Tensor, buckets: int) -> torch.Tensor:
    """int64 values of up to 33 bits to buckets 1 … buckets - 1; 0, a missing value, keeps bucket 0."""
    mixed = (values ^ (values >> 15)) * 0x2C1B3C6D & 0x7FFFFFFF
    mixed = (mixed ^ (mixed >> 12)) * 0x297A2D39 & 0x7FFFFFFF
    return torch.where(values == 0, 0, 1 + (mixed ^ (mixed >> 15)) % (buckets - 1))

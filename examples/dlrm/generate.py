"""Writes a file in Criteo's format whose labels can be learnt.

  python examples/dlrm/generate.py clicks.tsv --rows 30000

Frequent categories occur more often than rare ones (as 1 / rank); each has a weight, some pairs of columns have weights
for each pair of values, and the integers count as their logarithms. A label is drawn with the logistic function of
the sum.
"""

import argparse

import torch

INTEGERS, CATEGORIES = 13, 26
PAIRS = ((0, 1), (2, 3), (4, 5))  # of columns with few values, which act together


def generate(rows: int, seed: int) -> list[str]:
    """The lines of a file."""
    generator = torch.Generator().manual_seed(seed)
    sizes = [8 if column < 6 else 10 + 12 * column for column in range(CATEGORIES)]
    numbers = (torch.randn(rows, INTEGERS, generator=generator) * 1.5 + 1).exp().long() - 1
    score = ((numbers.clamp(min=0) + 1.0).log() - 1) @ torch.randn(INTEGERS, generator=generator) * 0.35
    columns, names = [], []
    for size in sizes:
        weights = 1 / torch.arange(1, size + 1)
        values = torch.multinomial(weights, rows, replacement=True, generator=generator)
        score += torch.randn(size, generator=generator)[values] * 0.45
        columns.append(values)
        names.append([f"{name:08x}" for name in torch.randint(2**32, (size,), generator=generator).tolist()])
    for first, second in PAIRS:
        table = torch.randn(sizes[first], sizes[second], generator=generator)
        score += table[columns[first], columns[second]]
    labels = (torch.rand(rows, generator=generator) < torch.sigmoid(score - score.mean() - 1.5)).long().tolist()
    missing = (torch.rand(rows, INTEGERS + CATEGORIES, generator=generator) < 0.05).tolist()
    integers, categories = numbers.tolist(), torch.stack(columns, 1).tolist()
    lines = []
    for row, label in enumerate(labels):
        fields = [str(n) for n in integers[row]] + [names[column][v] for column, v in enumerate(categories[row])]
        lines.append("\t".join([str(label)] + ["" if gone else f for f, gone in zip(fields, missing[row])]))
    return lines


def main(argv=None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path")
    parser.add_argument("--rows", type=int, default=30_000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    with open(args.path, "w", encoding="ascii") as file:
        file.writelines(line + "\n" for line in generate(args.rows, args.seed))


if __name__ == "__main__":
    main()

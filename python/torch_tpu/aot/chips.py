"""What the makers say of their chips, for rooflines."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Chip:
    """Of one device of the topology, which on tpu7x is half a chip: operations a second in bfloat16, bytes a second
    of its memory, and cycles a second. The clocks are derived from the peaks and the sizes of the matrix units."""

    flops_per_second: float
    bytes_per_second: float
    cycles_per_second: float


# Sources: Google Cloud's pages on each TPU version.
CHIPS = {
    "v4": Chip(275e12, 1228e9, 1.05e9),
    "v5e": Chip(197e12, 819e9, 1.5e9),
    "v5p": Chip(459e12, 2765e9, 1.75e9),
    "v6e": Chip(918e12, 1640e9, 1.75e9),
    "tpu7x": Chip(2307e12 / 2, 7380e9 / 2, 2.2e9),
}


def chip_of(topology: str) -> Chip:
    """The chip of a topology such as "v5e:2x2"; KeyError for one that is not listed."""
    return CHIPS[topology.partition(":")[0]]

"""Text that lies on every machine, and random windows of it."""

import sysconfig
from pathlib import Path

import torch


def read_text(path: str | None = None, limit: int = 2_000_000) -> str:
    """The file, or the Python standard library's top-level modules in sorted order; ASCII only, at most `limit`."""
    files = [Path(path)] if path else sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    parts, size = [], 0
    for file in files:
        text = file.read_text(encoding="utf-8", errors="ignore")
        parts.append("".join(c for c in text if c == "\n" or " " <= c <= "~"))
        size += len(parts[-1])
        if size > limit:
            break
    return "".join(parts)[:limit]


def windows(tokens: torch.Tensor, batch: int, length: int, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Ids [batch, length] from random places of tokens [count], and the ids that follow each of them."""
    starts = torch.randint(len(tokens) - length, (batch,), generator=generator)
    parts = torch.stack([tokens[start : start + length + 1] for start in starts])
    return parts[:, :-1], parts[:, 1:]

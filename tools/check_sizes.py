#!/usr/bin/env python3
"""Checks the length of source files: a warning above 500 lines, a failure above 1,000."""
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("src", "python", "tests", "tools", "bench", "examples", "build_backend")
SUFFIXES = {".cc", ".h", ".py", ".sh"}
SOFT, HARD = 500, 1000


def lengths():
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in SUFFIXES:
                yield path.relative_to(ROOT), len(path.read_text().splitlines())


if __name__ == "__main__":
    failed = False
    for path, lines in lengths():
        if lines > SOFT:
            print(f"{path}: {lines} lines, {'the limit is' if lines > HARD else 'better under'} {HARD if lines > HARD else SOFT}")
        failed |= lines > HARD
    sys.exit(failed)

"""python -m bench [row ...]: prints one line per row."""

import sys

from bench import autoload, dispatch, training

ROWS = {**autoload.ROWS, **dispatch.ROWS, **training.ROWS}


def main():
    names = sys.argv[1:] or list(ROWS)
    for name in names:
        if name not in ROWS:
            raise SystemExit(f"no row {name!r}; there are: {', '.join(ROWS)}")
        print(f"{name:24} {ROWS[name]()}", flush=True)


if __name__ == "__main__":
    main()

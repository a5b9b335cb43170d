"""python -m torch_tpu: the programs that are kept on disk, and steps compiled for TPUs that need not be there.

  python -m torch_tpu cache                                        what is there
  python -m torch_tpu cache clear                                  removes it
  python -m torch_tpu aot examples.mingpt.model --topology v5e:1x1 does a training step fit, and how long would it take
"""

import argparse
import importlib
import os
import sys
from pathlib import Path

import torch


def cache(arguments) -> None:
    """Prints what the disk cache holds, after clearing it where that was asked for."""
    if arguments.action == "clear":
        torch.tpu.cache.clear()
    information = torch.tpu.cache.info()
    if information is None:
        print("nothing is kept on disk")
    else:
        print(f"{information['folder']}: {information['programs']} programs, {information['bytes'] / 2**20:.1f} MiB of "
              f"at most {information['capacity_bytes'] / 2**20:.0f} MiB")


def aot(arguments) -> None:
    """Prints the report on a job: a function that returns the arguments of torch_tpu.aot.compile."""
    from torch_tpu.aot import CompileError, compile

    sys.path.insert(0, os.getcwd())
    module, _, function = arguments.job.partition(":")
    job = getattr(importlib.import_module(module), function or "job")()
    options = {name: getattr(arguments, name) for name in ("topology", "mode", "timeout")}
    try:
        report = compile(**{**job, **options})
    except (CompileError, ValueError) as error:
        sys.exit(str(error))
    print(report)
    if arguments.json:
        Path(arguments.json).write_text(report.to_json() + "\n")
    if arguments.html:
        Path(arguments.html).write_text(report.to_html())
    if not report.accepted:
        sys.exit(1)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m torch_tpu", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("cache")
    command.add_argument("action", nargs="?", choices=["info", "clear"], default="info")
    command.set_defaults(run=cache)
    command = commands.add_parser("aot")
    command.add_argument("job", metavar="MODULE[:FUNCTION]", help="a function that returns the arguments of "
                         "torch_tpu.aot.compile as a dictionary; its name is job where none is given")
    command.add_argument("--topology", default="v5e:1x1")
    command.add_argument("--mode", choices=["check", "estimate"], default="check")
    command.add_argument("--timeout", type=float, help="seconds for a program")
    command.add_argument("--json", metavar="FILE", help="write all figures there")
    command.add_argument("--html", metavar="FILE", help="write a page with a plot there")
    command.set_defaults(run=aot)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()

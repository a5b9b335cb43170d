"""python -m torch_tpu: looks after the programs that are kept on disk.

  python -m torch_tpu cache          what is there
  python -m torch_tpu cache clear    removes it
"""

import argparse

import torch


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m torch_tpu", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("cache").add_argument("action", nargs="?", choices=["info", "clear"], default="info")
    arguments = parser.parse_args()
    if arguments.action == "clear":
        torch.tpu.cache.clear()
    information = torch.tpu.cache.info()
    if information is None:
        print("nothing is kept on disk")
    else:
        print(f"{information['folder']}: {information['programs']} programs, {information['bytes'] / 2**20:.1f} MiB of "
              f"at most {information['capacity_bytes'] / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()

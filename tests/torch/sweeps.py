"""Runs sweeps of tools/ in a process of their own and reads their reports."""
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def executed(report):
    return sum(total["executed"] for kinds in report["totals"].values() for total in kinds.values())


def failing(report):
    """{"operator dtype kind": its first differences}"""
    return {f"{operator} {dtype} {kind}": result["problems"]
            for dtype, kinds in report["results"].items() for kind, operators in kinds.items()
            for operator, result in operators.items() if result["failing"]}


def run_sweeps(tool, runs, folder, timeout_seconds=1800):
    """The reports of some runs of tools/`tool`.py, a list of arguments each; one process runs them all, as importing
    torch's databases takes seconds."""
    files = [folder / f"{number}.json" for number in range(len(runs))]
    commands = [[*arguments, "--out", str(file)] for arguments, file in zip(runs, files)]
    code = f"import {tool}\nfor arguments in {commands!r}: {tool}.main(arguments)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT / "tools", capture_output=True, text=True,
                          timeout=timeout_seconds, check=False)
    print(done.stdout, done.stderr)  # pytest shows it on failure
    assert done.returncode in (0, 1), "the sweep ended early"
    return [json.loads(file.read_text()) for file in files]

#!/usr/bin/env python3
"""Compiles the operators of torch's database for a TPU, without one: libtpu says which lowerings a TPU would take.

  make op-coverage PLATFORM=tpu                             # installs libtpu, then runs this
  python tools/tpu_coverage.py --ops '^(div|linalg.*) ' --dtype int64

The first samples of each operator run on the device that there is; each program that runs is also written as a TPU would
get it (torch_tpu.aot.capture). Programs that differ are compiled at the lowest level. An operator is accepted when all
its programs are; otherwise it is refused, with the compiler's words, or too slow, or it did not run here.
"""
import argparse
import collections
import functools
import json
import os
import queue
import re
import sys
import threading
import time
from pathlib import Path

import torch  # before the operator database: it looks for the device when it is imported
from sweep.kinds import evaluate, has_gradient, samples_of
from sweep.operators import dtype_name, name_of, op_db, tasks_of
from sweep.transfer import DEVICE
from sweep.verdict import sentence
from sweep.workers import run_tasks
from torch_tpu import aot

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS_PER_PROCESS = 500  # libtpu keeps about 0.15 MB of each


def parse(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", default="float32,bfloat16,int32")
    parser.add_argument("--ops", default="", help="a regular expression, searched in \"name dtype\"")
    parser.add_argument("--every", type=int, default=1, help="every Nth operator of the database only")
    parser.add_argument("--samples", type=int, default=2, help="at most so many samples of each operator")
    parser.add_argument("--backward", action="store_true", help="also the gradients")
    parser.add_argument("--topology", default="v5e:1x1")
    parser.add_argument("--level", type=int, default=0, help="the compiler's level, 0 to 3")
    parser.add_argument("--limit", type=float, default=120, help="seconds for one program")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, default=ROOT / "build/tpu_coverage.json")
    parser.add_argument("--programs", type=Path, help="a folder for the programs that are not accepted")
    return parser.parse_args(argv)


# --- capture ------------------------------------------------------------------------------------------------------


def programs_of(op, sample, backward):
    """The programs of one sample, or None where the CPU refuses it."""
    try:
        evaluate(op, sample, "cpu", backward)
    except Exception:  # noqa: BLE001  the CPU's refusal is not our subject
        return None
    with aot.capture() as programs:
        evaluate(op, sample, DEVICE, backward)
    return [re.sub(r"^//.*\n", "", text, flags=re.MULTILINE) for text in programs]


def capture_operator(task, samples, backward):
    """{"programs": the operator's programs, "executed": how many samples ran, "problems": why others did not}"""
    index, dtype, _ = task
    op = op_db[index]
    backward = backward and has_gradient(op, dtype)
    result = {"programs": [], "executed": 0, "problems": []}
    torch.manual_seed(0)
    try:
        for sample in samples_of(op, dtype, samples, backward):
            programs = programs_of(op, sample, backward)
            if programs is not None:
                result["executed"] += 1
                result["programs"] += programs
    except Exception as error:  # noqa: BLE001  op_coverage.py reports what fails on this device
        result["problems"].append(sentence(error))
    return result


def capture_all(options):
    """{(name, dtype): what capture_operator() gave}"""
    tasks = tasks_of([getattr(torch, name) for name in options.dtype.split(",")], ["forward"], options.ops,
                     options.every)
    run = functools.partial(capture_operator, samples=options.samples, backward=options.backward)
    found = {}
    for (index, dtype, _), result in run_tasks(tasks, run, options.jobs, timeout_seconds=300):
        found[name_of(op_db[index]), dtype_name(dtype)] = {"programs": [], "executed": 0, **result}
    return found


# --- compile ------------------------------------------------------------------------------------------------------


def compile_one(compiler, text, options):
    """(outcome, seconds of processor time, message) of one program."""
    try:
        compiled = compiler.compile(text, level=options.level, timeout=options.limit)
    except aot.CompileTimeout:
        return "too slow", options.limit, f"more than {options.limit:.0f} s"
    except aot.CompileError as error:
        return "refused", 0.0, str(error).split("\n")[0]
    return "accepted", compiled.cpu_seconds, ""


def compile_all(texts, options):
    """{text: (outcome, seconds, message)}, by `jobs` processes of libtpu."""
    waiting = queue.SimpleQueue()
    for text in texts:
        waiting.put(text)
    results = {}

    def work():
        with aot.Compiler(options.topology) as compiler:
            for count in range(1, len(texts) + 1):
                try:
                    text = waiting.get_nowait()
                except queue.Empty:
                    return
                results[text] = compile_one(compiler, text, options)
                if count % PROGRAMS_PER_PROCESS == 0:
                    compiler.close()

    threads = [threading.Thread(target=work) for _ in range(options.jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


# --- report -------------------------------------------------------------------------------------------------------


def judge(captured, results):
    """The outcome of one operator: that of its worst program."""
    programs = list(dict.fromkeys(captured["programs"]))
    bad = [results[text] for text in programs if results[text][0] != "accepted"]
    outcome, message = ("not run", captured["problems"][0]) if captured["problems"] else ("accepted", "")
    if bad:
        outcome, _, message = bad[0]
    return {"outcome": outcome, "message": message, "programs": len(programs), "samples": captured["executed"],
            "seconds": round(sum(results[text][1] for text in programs), 2)}


def totals_of(operators):
    totals = {}
    for key, result in operators.items():
        counts = totals.setdefault(key.rsplit(" ", 1)[1], collections.Counter())
        counts.update(["operators", result["outcome"]])
    return {dtype: {name: counts[name] for name in ("operators", "accepted", "refused", "too slow", "not run")}
            for dtype, counts in totals.items()}


def write_programs(folder, texts, results):
    folder.mkdir(parents=True, exist_ok=True)
    for number, text in enumerate(texts):
        if results[text][0] != "accepted":
            (folder / f"{number}.mlir").write_text(f"// {results[text]}\n{text}")


def main(argv=None):
    options = parse(argv)
    if not aot.is_available():
        sys.exit("libtpu is not installed: pip install torch_tpu[tpu]")
    started = time.monotonic()
    captured = {key: result for key, result in capture_all(options).items()
                if result["executed"] or result["problems"]}
    texts = list(dict.fromkeys(text for result in captured.values() for text in result["programs"]))
    print(f"{len(texts)} programs of {len(captured)} operators, after {time.monotonic() - started:.0f} s", flush=True)
    results = compile_all(texts, options)
    operators = {f"{name} {dtype}": judge(result, results) for (name, dtype), result in captured.items()}
    for key, result in sorted(operators.items()):
        if result["outcome"] != "accepted":
            print(f"{key:50} {result['outcome']:8} {result['message']}")
    slowest = sorted(operators, key=lambda key: -operators[key]["seconds"])[:10]
    print("slowest:", ", ".join(f"{key} {operators[key]['seconds']:.0f} s" for key in slowest))
    totals = totals_of(operators)
    for dtype, total in totals.items():
        print(f"{dtype:10} " + ", ".join(f"{total[name]} {name}" for name in total)
              + f": {100 * total['accepted'] / max(1, total['operators'] - total['not run']):.1f} % of those that ran")
    print(f"{(time.monotonic() - started) / 60:.1f} minutes")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    report = {"topology": options.topology, "level": options.level, "totals": totals, "operators": operators}
    options.out.write_text(json.dumps(report, indent=1, sort_keys=True) + "\n")
    if options.programs:
        write_programs(options.programs, texts, results)
    return 1 if any(total["refused"] + total["too slow"] for total in totals.values()) else 0


if __name__ == "__main__":
    sys.exit(main())

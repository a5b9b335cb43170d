#!/usr/bin/env python3
"""Runs the samples of torch's operator database (OpInfo) on the CPU and on "tpu" and compares.

  python tools/op_coverage.py                                   # every operator, float32, forward and backward
  python tools/op_coverage.py --dtype float32,int64 --samples 4 --kinds plain,out
  python tools/op_coverage.py --ops '^(add|linalg.*) float32'   # searched in "name dtype"
  python tools/op_coverage.py --all                             # what `make op-coverage` runs

A sample that the CPU refuses is not executed. An executed sample is equal (values, shapes and dtypes), reasoned (it
differs, for a reason that tests/torch/deviations.py states or tools/sweep/verdict.py finds), or failing. Random
operators are compared in shape and dtype only. Kinds: plain (forward and backward), forward, noncontiguous, out, inplace, errors, gradcheck, compiled.
"""
import argparse
import functools
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("TORCH_TPU_CACHE", "off")  # of hundred thousand programs few are ever run again

import torch  # before the operator database: it looks for the device when it is imported
from sweep.kinds import KINDS
from sweep.operators import dtype_name, name_of, op_db, run_operator, tasks_of
from sweep.report import ROOT, Report
from sweep.workers import run_tasks

DTYPES = "float32,bfloat16,float16,float64,int64,int32,uint8,bool,complex64"
ALL_SAMPLES = 1 << 30
# Of the kinds beside plain the first samples: they differ from it in how arguments are passed, not in values.
WHOLE = [("plain", DTYPES, ALL_SAMPLES), ("noncontiguous", DTYPES, 6), ("out", DTYPES, 3), ("inplace", DTYPES, 6),
         ("errors", "float32", ALL_SAMPLES), ("gradcheck", "float64", 1)]


def parse(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="all dtypes, kinds and samples")
    parser.add_argument("--dtype", default="float32", help=DTYPES)
    parser.add_argument("--kinds", default="plain", help=",".join(KINDS))
    parser.add_argument("--ops", default="", help="a regular expression, searched in \"name dtype\"")
    parser.add_argument("--every", type=int, default=1, help="every Nth operator of the database only")
    parser.add_argument("--samples", type=int, default=4, help="at most so many samples of each operator")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--timeout", type=float, default=400, help="seconds for one operator, dtype and kind")
    parser.add_argument("--out", type=Path, default=ROOT / "build/op_coverage.json")
    parser.add_argument("--quiet", action="store_true", help="print the totals only")
    return parser.parse_args(argv)


def main(argv=None):
    options = parse(argv)
    if not (hasattr(torch, "tpu") and torch.tpu.is_available()):
        sys.exit('there is no device "tpu"')
    sweeps = WHOLE if options.all else [(options.kinds, options.dtype, options.samples)]
    report = Report(options.quiet)
    started = time.monotonic()
    for kinds, names, samples in sweeps:
        tasks = tasks_of([getattr(torch, name) for name in names.split(",")], kinds.split(","), options.ops,
                         options.every)
        run = functools.partial(run_operator, samples=samples)
        for (index, dtype, kind), result in run_tasks(tasks, run, options.jobs, options.timeout):
            report.add(name_of(op_db[index]), dtype_name(dtype), kind, result)
    report.print_totals()
    print(f"{(time.monotonic() - started) / 60:.1f} minutes")
    report.write(options.out)
    return 1 if report.failing() else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Runs the samples of torch's databases of modules and optimizers on the CPU and on "tpu" and compares.

  python tools/module_coverage.py                                  # what `make module-coverage` runs
  python tools/module_coverage.py --names '^nn.Conv.* float32'     # searched in "name dtype kind"
  python tools/module_coverage.py --databases optimizers --dtype float32 --samples 4

The dtypes are those that the databases list, or others on request; counting and judging are those of
tools/op_coverage.py. A module or optimizer of which no sample ran, though the database says that it takes the dtype, is
named at the end and makes the run fail.
"""
import argparse
import itertools
import os
import re
import sys
import time
import warnings
from pathlib import Path

os.environ.setdefault("TORCH_TPU_CACHE", "off")  # few programs are ever run again

import torch  # before the databases: they look for the device when they are imported
from sweep import modules, optimizers
from sweep.operators import dtype_name
from sweep.report import ROOT, Report
from sweep.verdict import tally
from sweep.workers import run_tasks
from torch.testing._internal.common_modules import module_db
from torch.testing._internal.common_optimizers import optim_db

DATABASES = {"modules": (module_db, modules), "optimizers": (optim_db, optimizers)}
ALL_SAMPLES = 1 << 30


def tasks_of(databases, dtypes, kinds, pattern):
    """[(database, index, dtype, kind)] of the entries whose "name dtype kind" contains the pattern."""
    tasks = []
    for database in databases:
        entries, samples = DATABASES[database]
        for kind in samples.KINDS:
            for name in (dtypes or samples.DTYPES).split(","):
                dtype = getattr(torch, name)
                tasks += [(database, index, dtype, kind) for index, info in enumerate(entries)
                          if samples.has(info, dtype, kind) and (dtypes or samples.lists(info, dtype))
                          and re.search(pattern, f"{info.name} {name} {kind}") and (not kinds or kind in kinds)]
    return tasks


def run_entry(task, count):
    """Counts of one module or optimizer, and the first differences."""
    database, index, dtype, kind = task
    entries, samples = DATABASES[database]
    info = entries[index]
    started = time.perf_counter()
    torch.manual_seed(0)
    warnings.simplefilter("ignore")
    result, error = tally(itertools.islice(samples.KINDS[kind](info, dtype), count))
    if error:
        outcome = "failing" if samples.lists(info, dtype) else "refused"
        result[outcome] = result.get(outcome, 0) + 1
    missing = samples.lists(info, dtype) and not result.keys() & {"equal", "reasoned", "failing"}
    return {**result, "missing": missing, "seconds": round(time.perf_counter() - started, 2)}


def parse(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--databases", default=",".join(DATABASES))
    parser.add_argument("--dtype", default="", help="those that the databases list unless given")
    parser.add_argument("--kinds", default="", help=",".join({**modules.KINDS, **optimizers.KINDS}))
    parser.add_argument("--names", default="", help='a regular expression, searched in "name dtype kind"')
    parser.add_argument("--samples", type=int, default=ALL_SAMPLES, help="at most so many samples of each entry")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--timeout", type=float, default=600, help="seconds for one entry, dtype and kind")
    parser.add_argument("--out", type=Path, default=ROOT / "build/module_coverage.json")
    return parser.parse_args(argv)


def main(argv=None):
    options = parse(argv)
    if not (hasattr(torch, "tpu") and torch.tpu.is_available()):
        sys.exit('there is no device "tpu"')
    report = Report()
    missing = []
    started = time.monotonic()
    kinds = options.kinds.split(",") if options.kinds else []
    tasks = tasks_of(options.databases.split(","), options.dtype, kinds, options.names)

    def run(task):
        return run_entry(task, options.samples)

    for (database, index, dtype, kind), result in run_tasks(tasks, run, options.jobs, options.timeout):
        name = DATABASES[database][0][index].name
        report.add(name, dtype_name(dtype), kind, result)
        if result.get("missing"):
            missing.append(f"{name} {dtype_name(dtype)} {kind}")
    report.print_totals()
    print(f"without a sample: {', '.join(missing) or 'none'}; {(time.monotonic() - started) / 60:.1f} minutes")
    report.write(options.out)
    return 1 if report.failing() or missing else 0


if __name__ == "__main__":
    sys.exit(main())

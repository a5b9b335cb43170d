"""The tasks of a sweep over the operator database."""
import collections
import re
import time

import torch
from torch.testing._internal.common_methods_invocations import op_db

from .kinds import KINDS

ERROR_DTYPE = torch.float32  # errors run once, not per dtype


def name_of(op):
    """The operator and its variant, as reports and deviations name it."""
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def dtype_name(dtype):
    return str(dtype).removeprefix("torch.")


def tasks_of(dtypes, kinds, pattern, every):
    """[(index in op_db, dtype, kind)] of the operators whose "name dtype" contains the pattern."""
    tasks = []
    for kind in kinds:
        for dtype in dtypes:
            if (kind == "errors" and dtype != ERROR_DTYPE) or (kind == "gradcheck" and dtype != torch.float64):
                continue
            for index, op in list(enumerate(op_db))[::every]:
                listed = dtype in op.supported_dtypes("cpu") or kind == "errors"
                if listed and re.search(pattern, f"{name_of(op)} {dtype_name(dtype)}"):
                    tasks.append((index, dtype, kind))
    return tasks


def run_operator(task, samples):
    """Counts of the operator's samples, the first differences, and the reason of those that have one."""
    index, dtype, kind = task
    result = collections.Counter()
    problems, reason = [], {}
    started = time.perf_counter()
    torch.manual_seed(0)
    try:
        for number, (outcome, problem) in enumerate(KINDS[kind](op_db[index], dtype, samples)):
            result[outcome] += 1
            if outcome == "reasoned":
                reason = {"reason": problem}
            elif problem and len(problems) < 5:
                problems.append(f"{number}: {problem}")
    except Exception as error:  # noqa: BLE001  some samples need packages that are not installed
        problems.append(f"no samples: {type(error).__name__}: {error}"[:300])
    return {**result, **reason, "problems": problems, "seconds": round(time.perf_counter() - started, 2)}

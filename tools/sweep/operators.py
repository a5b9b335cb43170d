"""The tasks of a sweep over the operator database."""
import re
import time

import torch
from torch.testing._internal.common_methods_invocations import op_db

from .kinds import KINDS
from .verdict import tally

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
    started = time.perf_counter()
    torch.manual_seed(0)
    result, _ = tally(KINDS[kind](op_db[index], dtype, samples))
    return {**result, "seconds": round(time.perf_counter() - started, 2)}

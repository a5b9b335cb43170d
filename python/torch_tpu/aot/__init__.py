"""Compiling for TPUs that need not be there.

    report = torch_tpu.aot.compile(model, (tokens,), topology="v6e:1x1", optimizer=torch.optim.AdamW)
    print(report)                    # accepted or the operator that is not, memory, operations, predicted time

records a step of the model without computing anything, so that any size fits into this machine's memory, and asks
TPU's compiler about it. The parts:

    with torch_tpu.aot.capture() as programs:
        (torch.ones(2, device="tpu") + 1).cpu()
    with torch_tpu.aot.Compiler("v5e:1x1") as compiler:
        compiled = compiler.compile(programs[0])
        print(compiled.memory["peak_bytes"], compiled.cost["flops"])

libtpu (`pip install torch_tpu[tpu]`) does it in a process of its own, which may end or be ended without harm.
"""

from torch_tpu.aot.compiler import (CompileError, Compiled, Compiler, CompilerCrash, CompileTimeout, is_available,
                                    topologies)
from torch_tpu.aot.recording import capture, dry_run
from torch_tpu.aot.report import Program, Report
from torch_tpu.aot.step import compile

__all__ = ["CompileError", "CompileTimeout", "Compiled", "Compiler", "CompilerCrash", "Program", "Report", "capture",
           "compile", "dry_run", "is_available", "topologies"]

"""Where an operator on "tpu" is known to differ from the CPU: {"operator", "operator dtype" or "operator dtype kind": the
reason, as a fact}.

Operators and kinds are named as in tools/op_coverage.py. Failing samples of these count as reasoned.
"""

COMPLEX32 = "complex32 has no type in PJRT or StableHLO"
MEMORY_ORDER = "the CPU writes out= in the order of its memory, whatever its strides"
SAVED_MEAN = "the CPU's kernel does not resize the saved statistics in evaluation, and fails on out= of two dimensions"
CANCELS = "the gradient of two elements cancels, and leaves the rounding of the saved statistics"
TRACED_NARROW = "while tracing, torch 2.13 loses the start of narrow() that is a tensor, also on the CPU"
TRACED_SPLIT = "while tracing, where to split is known of tensors on the CPU only"
REAL_OUT = "the CPU drops imaginary parts before the logarithm where out= is real"

DEVIATIONS = {
    "chalf": COMPLEX32,
    "complex float16": COMPLEX32,
    "view_as_complex float16": COMPLEX32,
    **{f"{name} {dtype} out": MEMORY_ORDER
       for name in ("narrow_copy", "nn.functional.avg_pool3d")
       for dtype in ("float32", "bfloat16", "float16", "float64", "int64", "int32", "uint8", "bool", "complex64")},
    **{f"{name} {dtype} out": SAVED_MEAN
       for name in ("native_batch_norm", "_native_batch_norm_legit")
       for dtype in ("float32", "bfloat16", "float16", "float64")},
    **{f"{name} float16 noncontiguous": CANCELS
       for name in ("native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update")},
    "logsumexp complex64 out": REAL_OUT,
    "narrow float32 compiled": TRACED_NARROW,
    "tensor_split float32 compiled": TRACED_SPLIT,
}

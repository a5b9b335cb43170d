"""Where an operator on "tpu" is known to differ from the CPU: {"operator", "operator dtype" or "operator dtype kind": the
reason, as a fact}.

Operators and kinds are named as in tools/op_coverage.py. Failing samples of these count as reasoned.
"""

TIES = "the order of equal elements is not defined; each device has its own"

DEVIATIONS = {
    "argsort bfloat16": TIES,
    "argsort bool": TIES,
    "chalf": "complex32 has no type in PJRT or StableHLO",
    "erfinv float32": "the gradient, exp(y²)·√π/2, magnifies the last bit of the result y",
    "kthvalue int64": TIES,
    "matrix_exp float32": "rounding errors double with each squaring; relative errors stay below 1e-5",
    "msort bfloat16": TIES,
    "rsqrt bfloat16": "the gradient, -½·g·y³, is rounded to bfloat16 after each product",
    "sort bfloat16": TIES,
    "sort bool": TIES,
    "tensor_split": "indices given as a tensor must be on the CPU, as on every device that is not the CPU",
    "topk int64": TIES,
}

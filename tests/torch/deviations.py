"""Where an operator on "tpu" is known to differ from the CPU: {(operator, dtype or None for all): the reason, as a fact}.

Operators are named as in tools/op_coverage.py. Failing samples of these count as reasoned.
"""

SPARSE = "sparse layouts do not exist on tpu"
TIES = "the order of equal elements is not defined; each device has its own"

DEVIATIONS = {
    ("argsort", "bfloat16"): TIES,
    ("argsort", "bool"): TIES,
    ("chalf", None): "complex32 has no type in PJRT or StableHLO",
    ("erfinv", "float32"): "the gradient, exp(y²)·√π/2, magnifies the last bit of the result y",
    ("kthvalue", "int64"): TIES,
    ("matrix_exp", "float32"): "rounding errors double with each squaring; relative errors stay below 1e-5",
    ("msort", "bfloat16"): TIES,
    ("rsqrt", "bfloat16"): "the gradient, -½·g·y³, is rounded to bfloat16 after each product",
    ("sort", "bfloat16"): TIES,
    ("sort", "bool"): TIES,
    ("sparse.mm.reduce", None): SPARSE,
    ("sparse.sampled_addmm", None): SPARSE,
    ("tensor_split", None): "indices given as a tensor must be on the CPU, as on every device that is not the CPU",
    ("to_sparse", None): SPARSE,
    ("topk", "int64"): TIES,
}

# Operators that have no lowering yet, and therefore raise NotImplementedError.
UNIMPLEMENTED = {"bincount", "linalg.ldl_factor", "linalg.ldl_factor_ex", "linalg.ldl_solve", "unique", "unique_consecutive"}

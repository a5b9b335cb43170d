"""Where an operator on "tpu" is known to differ from the CPU: {"operator", "operator dtype" or "operator dtype kind": the
reason, as a fact}.

Operators and kinds are named as in tools/op_coverage.py. Failing samples of these count as reasoned.
"""

COMPLEX32 = "complex32 has no type in PJRT or StableHLO"

DEVIATIONS = {
    "chalf": COMPLEX32,
    "complex float16": COMPLEX32,
    "view_as_complex float16": COMPLEX32,
}

# What differs and should not. Samples of these count as failing; the tests expect no others to.
UNFINISHED = {
    "linalg.eigvals float32 out": "there is no out= form",
    "linalg.eigvals float64 gradcheck": "two backward passes differ in the last bits",
    "linalg.ldl_factor float32 out": "rounding of the last bits",
    "native_batch_norm bfloat16 plain": "the saved statistics are float32",
    "native_batch_norm float16 plain": "the saved statistics are float32",
    "nn.functional.ctc_loss float32 plain": "the gradient is less accurate than the CPU's",
}

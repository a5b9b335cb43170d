"""Where an operator on "tpu" is known to differ from the CPU: {(operator, dtype or None for all): the reason, as a fact}.

Operators are named as in tools/op_coverage.py. Failing samples of these count as reasoned.
"""

DEVIATIONS = {}

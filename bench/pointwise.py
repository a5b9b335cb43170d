"""Sixteen cheap operations in a row: one program, where torch on the CPU runs sixteen loops over memory."""

SIZES = {"16Mi": 16 << 20, "1Mi": 1 << 20}  # float32


def chain(x):
    """16 operations."""
    for _ in range(8):
        x = x * 1.001 + 0.01
    return x


def _row(name, goals):
    def row(run):
        def programs(result):
            return run.report.judge("programs a chain", result["programs"], 1)

        run.compare(f"pointwise.{name}", ["tpu", "cpu", "jax"], unit="ms", tolerance=1e-5, goals=goals, note=programs)

    return row


ROWS = {
    "pointwise.16Mi": _row("16Mi", {"cpu": 0.25, "jax": 1.05}),
    "pointwise.1Mi": _row("1Mi", {"jax": 1.05}),
}

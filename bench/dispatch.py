"""The cost of small operations."""


def _row(name, **options):
    return lambda run: run.compare(f"dispatch.{name}", ["tpu", "cpu"], unit="µs", **options)


ROWS = {
    "dispatch.record": _row("record", goals={"cpu": 1.3}),
    "dispatch.strict": _row("strict", most=8),
    "dispatch.chain": _row("chain", goals={"cpu": 1.2}),
    "dispatch.item": _row("item"),
}

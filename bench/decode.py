"""A decoder with a static cache: a prompt, then token after token without a host read."""


def _row(name, tolerance, per):
    def row(run):
        run.compare(f"decode.{name}", ["tpu", "tpu compiled", "cpu", "jax", "inductor"], unit="ms",
                    tolerance=tolerance, goals={"cpu": 1.1, "jax": 1.05},
                    note=lambda result: f"{result['programs']:.3g} programs {per}")

    return row


ROWS = {"decode.prefill": _row("prefill", 1e-3, "a prompt"), "decode.token": _row("token", 0, "for all tokens")}

"""Training steps: forward, backward, optimizer, and waiting for all of it."""

_GOALS = {"gpt": 1.1, "mlp": 1.1, "resnet": 1.3, "unet": 1.3, "dlrm": 1.1}  # of torch CPU, eager


def _row(name):
    def row(run):
        def note(result):
            late = result["compiles"] - result["compiles_at"][2]
            late = run.report.judge("compiles after step 3", late, 0)
            return f"{result['programs']:.3g} programs a step  {late}  {result['faults']} faults"

        run.compare(f"training.{name}", ["tpu", "tpu compiled", "cpu", "jax", "inductor"], unit="ms", tolerance=5e-3,
                    goals={"cpu": _GOALS[name], "jax": 1.05}, note=note)

    return row


ROWS = {f"training.{name}": _row(name) for name in _GOALS}

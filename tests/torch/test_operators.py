"""A fixed sample of the operator sweep of tools/op_coverage.py: how much ran is asserted as well as that it was right."""
import json
import subprocess
import sys
from pathlib import Path

import pytest
from deviations import UNIMPLEMENTED

ROOT = Path(__file__).resolve().parents[2]

# What training MLPs, convolutional networks and transformers needs.
TRAINING = """
    abs add addmm all amax any arange argmax baddbmm bmm cat chunk clamp clone contiguous copysign cos cumsum div dot
    einsum eq exp expand flatten full full_like gather ge gt index_add index_copy index_put index_select isfinite
    isnan le lerp linalg.vector_norm log log_softmax lt masked_fill matmul max.binary max.reduction_with_dim maximum
    mean mm mul narrow ne neg nn.functional.adaptive_avg_pool2d nn.functional.avg_pool2d nn.functional.batch_norm
    nn.functional.conv1d nn.functional.conv2d nn.functional.conv_transpose2d nn.functional.cross_entropy
    nn.functional.dropout nn.functional.embedding nn.functional.gelu nn.functional.group_norm
    nn.functional.interpolate.bilinear nn.functional.layer_norm nn.functional.leaky_relu nn.functional.linear
    nn.functional.max_pool2d nn.functional.mse_loss nn.functional.nll_loss nn.functional.normalize
    nn.functional.one_hot nn.functional.pad.constant nn.functional.relu nn.functional.rms_norm
    nn.functional.scaled_dot_product_attention nn.functional.silu nn.functional.smooth_l1_loss nn.functional.softplus
    norm normal ones_like outer permute pow prod rand_like randint_like randn reciprocal repeat reshape roll rsqrt
    scatter scatter_add select sigmoid sign sin slice softmax sort split sqrt squeeze stack std sub sum t tanh topk
    transpose tril triu unbind unfold unsqueeze var var_mean view where zeros_like
""".split()
PATTERN = "^(?:" + "|".join(name.replace(".", "[.]") for name in TRAINING) + ") "

# name: (arguments of the tool, the samples that ran when this was written)
SWEEPS = {
    "training float32": (["--ops", PATTERN, "--samples", "2"], 236),
    "training bfloat16": (["--ops", PATTERN, "--samples", "1", "--dtype", "bfloat16"], 123),
    "every sixth operator": (["--every", "6", "--samples", "1", "--dtype", "float32,int64,bool"], 253),
}


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """{name of a sweep: its report}; one process runs them all, as importing the database takes seconds."""
    folder = tmp_path_factory.mktemp("coverage")
    runs = [[*arguments, "--out", str(folder / f"{n}.json")] for n, (arguments, _) in enumerate(SWEEPS.values())]
    code = f"import op_coverage\nfor arguments in {runs!r}: op_coverage.main(arguments)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT / "tools", capture_output=True, text=True, timeout=900,
                          check=False)
    print(done.stdout, done.stderr)  # pytest shows it on failure
    assert done.returncode == 0
    return {name: json.loads((folder / f"{index}.json").read_text()) for index, name in enumerate(SWEEPS)}


def is_unimplemented(operator, result):
    return operator in UNIMPLEMENTED and all("NotImplementedError" in problem for problem in result["problems"])


@pytest.mark.parametrize("name", SWEEPS)
def test_operators(reports, name):
    totals = reports[name]["totals"].values()
    failing = {f"{operator} {dtype}": result["problems"] for dtype, operators in reports[name]["operators"].items()
               for operator, result in operators.items() if result["failing"] and not is_unimplemented(operator, result)}
    assert not failing
    assert sum(total["executed"] for total in totals) >= SWEEPS[name][1]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int64", "bool", "complex64"])
def test_all_operators(dtype, tmp_path):
    """The whole database."""
    out = tmp_path / "report.json"
    done = subprocess.run([sys.executable, "op_coverage.py", "--dtype", dtype, "--out", str(out)], cwd=ROOT / "tools",
                          capture_output=True, text=True, timeout=3000, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

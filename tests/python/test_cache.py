"""The compiled programs on disk: a second process compiles nothing, whatever happened to the folder."""
import json
from pathlib import Path

import pytest

STEP = """
import json
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4)).to("tpu")
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
losses = []
for step in range(3):
    loss = model(torch.ones(5, 8, device="tpu") * step).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
counters = torch.tpu.counters()
print(json.dumps({"losses": losses, "compiles": counters["compiles"], "modules": counters["modules_emitted"],
                  "disk": torch.tpu.cache.info()}))
"""


@pytest.fixture
def run(forked, tmp_path):
    """run(code, env): what a fresh process with a cache folder of this test printed, as JSON."""

    def call(code=STEP, **env):
        result = forked("torch.manual_seed(0)\n" + code, env={"TORCH_TPU_CACHE": "on", "TORCH_TPU_CACHE_DIR": str(tmp_path / "cache"), **env},
                        timeout=120)
        assert result.code == 0, result.err
        return json.loads(result.out.splitlines()[-1])

    call.folder = tmp_path / "cache"
    return call


def programs(folder: Path):
    return sorted(folder.glob("*.program"))


def test_second_process_compiles_nothing(run):
    cold = run()
    warm = run()
    assert cold["compiles"] > 0
    assert (warm["compiles"], warm["modules"]) == (0, 0)
    assert warm["losses"] == cold["losses"]
    assert warm["disk"]["misses"] == 0


def test_damaged_programs_are_compiled_again(run):
    cold = run()
    for number, path in enumerate(programs(run.folder)):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content[:10] if number % 2 else content)
    again = run()
    assert again["losses"] == cold["losses"]
    assert again["compiles"] == cold["compiles"]
    assert again["disk"]["discarded"] == again["compiles"]
    assert run()["compiles"] == 0


def test_off_and_unusable_folders(run, tmp_path):
    assert run(TORCH_TPU_CACHE="off")["disk"] is None
    assert not run.folder.exists()
    (tmp_path / "file").write_text("no folder")
    assert run(TORCH_TPU_CACHE_DIR=str(tmp_path / "file"))["compiles"] > 0


def test_frozen_cache_raises(run):
    run()
    assert run(TORCH_TPU_CACHE="frozen")["compiles"] == 0
    message = run("""
import json
try:
    (torch.ones(3, device="tpu") * 7 - torch.arange(3, device="tpu")).cpu()
except RuntimeError as error:
    print(json.dumps(str(error)))
""", TORCH_TPU_CACHE="frozen")
    assert "frozen" in message and "aten::mul" in message


def test_clear(run):
    run()
    assert programs(run.folder)
    left = run("import json; torch.tpu.cache.clear(); print(json.dumps(torch.tpu.cache.info()))")
    assert (left["programs"], left["bytes"]) == (0, 0)
    assert not programs(run.folder)

"""examples/llama and examples/qwen: checkpoints of `transformers` give its logits and tokens, and the other way round."""
import json

import pytest
import torch

import examples.torchvision_import  # noqa: F401

transformers = pytest.importorskip("transformers")

from examples.decoder import checkpoint, lora
from examples.decoder.generation import Sampling, generate, stream
from examples.decoder.model import Config, Decoder

SIZES = dict(vocab_size=96, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=256, bos_token_id=1, eos_token_id=None, pad_token_id=0)
ROPE = dict(rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
            original_max_position_embeddings=32)
FAMILIES = {
    "llama": ("Llama", {}),
    "llama-scaled": ("Llama", {"rope_parameters": ROPE}),
    "llama-linear": ("Llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}}),
    "llama-tied": ("Llama", {"tie_word_embeddings": True}),
    "qwen2": ("Qwen2", {}),
    "qwen2-tied": ("Qwen2", {"tie_word_embeddings": True}),
    "qwen3": ("Qwen3", {"head_dim": 16}),
    "qwen3-tied": ("Qwen3", {"head_dim": 16, "tie_word_embeddings": True}),
}


def make(name, dtype=torch.float32):
    """A model of transformers with random weights, wide enough apart for clear choices."""
    family, options = FAMILIES[name]
    torch.manual_seed(1)
    model = getattr(transformers, f"{family}ForCausalLM")(
        getattr(transformers, f"{family}Config")(**SIZES, **options)).to(dtype).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3) if parameter.dim() > 1 else parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


@pytest.fixture(params=FAMILIES)
def saved(request, tmp_path):
    """The model and its folder."""
    model = make(request.param)
    model.save_pretrained(tmp_path)
    return model, tmp_path


def test_logits(saved):
    reference, folder = saved
    ids = torch.randint(96, (2, 50))
    with torch.no_grad():
        expected, result = reference(ids).logits, checkpoint.load(folder, "tpu")(ids.to("tpu"))
    torch.testing.assert_close(result.cpu(), expected, rtol=1e-4, atol=1e-4)


def test_tokens(saved):
    """Greedy generation, of prompts of several lengths in one batch."""
    reference, folder = saved
    prompts = [torch.randint(96, (length,)).tolist() for length in (1, 9, 70)]
    expected = [reference.generate(ids := torch.tensor([prompt]), attention_mask=torch.ones_like(ids),
                                   max_new_tokens=12, do_sample=False)[0, len(prompt):].tolist() for prompt in prompts]
    assert generate(checkpoint.load(folder, "tpu"), prompts, 12) == expected


def test_saved_checkpoints_load_in_transformers(saved, tmp_path):
    reference, folder = saved
    checkpoint.save(checkpoint.load(folder, "tpu"), tmp_path / "copy")
    copy = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "copy").eval()
    assert type(copy) is type(reference)
    ids = torch.randint(96, (1, 20))
    with torch.no_grad():
        torch.testing.assert_close(copy(ids).logits, reference(ids).logits, rtol=1e-6, atol=1e-6)


def test_sharded_bfloat16_checkpoint(tmp_path):
    reference = make("llama-scaled", torch.bfloat16)
    reference.save_pretrained(tmp_path, max_shard_size="20KB")
    assert (tmp_path / "model.safetensors.index.json").exists()
    model = checkpoint.load(tmp_path, "tpu")
    assert model.lm_head.weight.dtype is torch.bfloat16
    wide = checkpoint.load(tmp_path, "tpu", torch.float32)
    ids = torch.randint(96, (1, 20))
    with torch.no_grad():
        torch.testing.assert_close(wide(ids.to("tpu")).cpu(), reference.float()(ids).logits, rtol=1e-4, atol=1e-4)


def test_one_program_per_token():
    """The steps of a generation share their programs, whatever the length reached."""
    torch.manual_seed(0)
    model = Decoder(Config(96, 32, 64, 2, 4, 2, 8)).to("tpu")
    counts = [torch.tpu.counters()["compiles"] for _ in stream(model, [[1, 2, 3]], 40)]
    assert counts[-1] == counts[2]
    compiled = [step for step in stream(model, [[1, 2, 3]], 20, compiled=True)]
    assert compiled == list(stream(model, [[1, 2, 3]], 20))


def test_end_of_text():
    torch.manual_seed(0)
    model = Decoder(Config(96, 32, 64, 2, 4, 2, 8)).to("tpu")
    free = generate(model, [[1, 2, 3], [4]], 10)
    model.config.end_tokens = [free[0][2]]
    ended = generate(model, [[1, 2, 3], [4]], 10)
    assert ended[0] == free[0][: free[0].index(free[0][2]) + 1]
    assert ended[1] == free[1][: len(ended[1])]
    with pytest.raises(ValueError, match="at least one token"):
        generate(model, [[]], 3)


@pytest.mark.parametrize("sampling, allowed", [(Sampling(1.0, top_k=1), {3}), (Sampling(1.0, top_k=2), {3, 1}),
                                               (Sampling(1.0, top_p=0.5), {3}), (Sampling(1.0, top_p=0.7), {3, 1}),
                                               (Sampling(0.7), {0, 1, 2, 3})])
def test_sampling(sampling, allowed):
    logits = torch.tensor([0.1, 0.3, 0.05, 0.55]).log().expand(400, -1).to("tpu")
    assert set(sampling.choose(logits).tolist()) == allowed


def test_adapters(tmp_path):
    """Only adapters get gradients; merged, the model computes the same; the files are those of `peft`."""
    torch.manual_seed(0)
    model = lora.add(Decoder(Config(96, 32, 64, 2, 4, 2, 8)).to("tpu"), 4, 8.0)
    trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    assert len(trained) == 8 and all("lora_" in name for name in trained)
    ids = torch.randint(96, (2, 10)).to("tpu")
    optimizer = torch.optim.AdamW([parameter for parameter in model.parameters() if parameter.requires_grad], 1e-2)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = model.loss(ids[:, :-1], ids[:, 1:])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    lora.save(model, tmp_path)
    assert json.loads((tmp_path / "adapter_config.json").read_text())["target_modules"] == ["q_proj", "v_proj"]
    with torch.no_grad():
        before = model(ids)
        after = lora.merge(model)(ids)
    assert not [name for name, _ in model.named_parameters() if "lora_" in name]
    torch.testing.assert_close(after.cpu(), before.cpu(), rtol=1e-4, atol=1e-5)


def test_unknown_checkpoints(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mamba"}))
    with pytest.raises(ValueError, match="mamba"):
        checkpoint.load(tmp_path)
    transformers.Qwen2Config(**SIZES, use_sliding_window=True).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="sliding"):
        checkpoint.load(tmp_path)

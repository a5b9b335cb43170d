"""Unmodified models of `transformers`, tiny: forward and backward equal the CPU, `generate` gives its tokens, and a
loop as in its Trainer keeps to the CPU's losses without a new program after the second step."""
import copy

import pytest
import torch

import examples.torchvision_import  # noqa: F401

transformers = pytest.importorskip("transformers")

DECODER = dict(vocab_size=96, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
               num_key_value_heads=2, max_position_embeddings=128, pad_token_id=0, bos_token_id=1, eos_token_id=2)
ENCODER = dict(vocab_size=96, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
               max_position_embeddings=64)
LLAMA_ROPE = dict(rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                  original_max_position_embeddings=32)


def text(count=96, length=12):
    """Token ids of two sequences, of which the second is padded on the left."""
    ids = torch.randint(3, count, (2, length))
    mask = torch.ones_like(ids)
    mask[1, :3] = 0
    return {"input_ids": ids * mask, "attention_mask": mask}


def language(count=96, length=12):
    """Text that is its own target, but for the padding."""
    inputs = text(count, length)
    return {**inputs, "labels": inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, -100)}


def translation():
    return {**text(), "labels": torch.randint(3, 96, (2, 7))}


def sound():
    return {"input_features": torch.randn(2, 8, 60), "labels": torch.randint(3, 96, (2, 7))}


# name: (class, config, batch of inputs, the inputs that `generate` takes, or None)
MODELS = {
    "llama": ("LlamaForCausalLM", lambda: transformers.LlamaConfig(**DECODER, rope_parameters=LLAMA_ROPE), language,
              text),
    "qwen2": ("Qwen2ForCausalLM", lambda: transformers.Qwen2Config(**DECODER), language, text),
    "qwen3": ("Qwen3ForCausalLM", lambda: transformers.Qwen3Config(**DECODER, head_dim=8), language, text),
    "mixtral": ("MixtralForCausalLM", lambda: transformers.MixtralConfig(
        **DECODER, num_local_experts=4, num_experts_per_tok=2), lambda: {**language(), "output_router_logits": True},
        text),
    "gpt2": ("GPT2LMHeadModel", lambda: transformers.GPT2Config(
        vocab_size=96, n_positions=64, n_embd=32, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=2, pad_token_id=0,
        resid_pdrop=0, embd_pdrop=0, attn_pdrop=0), language, text),
    "bert": ("BertForMaskedLM", lambda: transformers.BertConfig(
        **ENCODER, hidden_dropout_prob=0, attention_probs_dropout_prob=0), language, None),
    "t5": ("T5ForConditionalGeneration", lambda: transformers.T5Config(
        vocab_size=96, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, dropout_rate=0, pad_token_id=0,
        eos_token_id=2, decoder_start_token_id=0), translation, text),
    "vit": ("ViTForImageClassification", lambda: transformers.ViTConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, image_size=16, patch_size=4,
        num_labels=5, hidden_dropout_prob=0, attention_probs_dropout_prob=0),
        lambda: {"pixel_values": torch.randn(2, 3, 16, 16), "labels": torch.randint(5, (2,))}, None),
    "whisper": ("WhisperForConditionalGeneration", lambda: transformers.WhisperConfig(
        vocab_size=96, num_mel_bins=8, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, max_source_positions=30,
        max_target_positions=32, dropout=0, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
        suppress_tokens=None, begin_suppress_tokens=None), sound,
        lambda: {"input_features": torch.randn(2, 8, 60)}),
}


def build(name):
    """The model on the CPU and on "tpu", with the same random weights, wide enough apart for clear choices."""
    kind, config, *_ = MODELS[name]
    model = getattr(transformers, kind)(config()).train()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(3)
    return model, copy.deepcopy(model).to("tpu")


def on_tpu(inputs):
    return {name: value.to("tpu") if isinstance(value, torch.Tensor) else value for name, value in inputs.items()}


def close(ours, reference):
    torch.testing.assert_close(ours.cpu(), reference, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_gradients(name, mode):
    reference, model = build(name)
    inputs = MODELS[name][2]()
    before = torch.tpu.counters()["fallbacks"]
    expected, result = reference(**inputs), model(**on_tpu(inputs))
    close(result.logits, expected.logits)
    close(result.loss, expected.loss)
    expected.loss.backward()
    result.loss.backward()
    gradients = dict(reference.named_parameters())
    for parameter, value in model.named_parameters():
        assert (value.grad is None) == (gradients[parameter].grad is None), parameter
        if value.grad is not None:
            close(value.grad, gradients[parameter].grad)
    assert torch.tpu.counters()["fallbacks"] == before


@pytest.mark.parametrize("options", [{"do_sample": False}, {"do_sample": False, "num_beams": 3},
                                     {"do_sample": False, "cache_implementation": "static"}],
                         ids=["greedy", "beams", "static"])
@pytest.mark.parametrize("name", [name for name in MODELS if MODELS[name][3]])
def test_generate(name, options):
    if name in ("t5", "whisper") and "cache_implementation" in options:
        pytest.skip("transformers compiles a static cache of an encoder and a decoder with torch.compile only")
    reference, model = (each.eval() for each in build(name))
    inputs = MODELS[name][3]()
    before = torch.tpu.counters()["fallbacks"]
    expected = reference.generate(**inputs, max_new_tokens=16, **options)
    assert model.generate(**on_tpu(inputs), max_new_tokens=16, **options).tolist() == expected.tolist()
    assert torch.tpu.counters()["fallbacks"] == before


def train(model, batches, steps):
    """Losses of a loop as Trainer runs it, and the programs compiled after step 2."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, 2, steps)
    losses, programs = [], []
    for step in range(steps):
        inputs = batches[step % len(batches)]
        loss = model(**(on_tpu(inputs) if model.device.type == "tpu" else inputs)).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        programs.append(torch.tpu.counters()["compiles"])
    return losses, programs[-1] - programs[1]


@pytest.mark.parametrize("name", MODELS)
def test_training(name):
    reference, model = build(name)
    batches = [MODELS[name][2]() for _ in range(3)]
    expected, _ = train(reference, batches, 10)
    losses, late = train(model, batches, 10)
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(expected), rtol=1e-3, atol=1e-4)
    assert late == 0

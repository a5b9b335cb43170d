"""Folders in Hugging Face's format: config.json, safetensors in one file or several, tokenizer.json."""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from examples.decoder.model import Config, Decoder

FAMILIES = {  # model_type: its class in `transformers`, and what its config.json leaves unsaid
    "qwen2": ("Qwen2ForCausalLM", {"qkv_bias": True}),
    "qwen3": ("Qwen3ForCausalLM", {"qk_norm": True}),
    "llama": ("LlamaForCausalLM", {}),
}


def read_config(folder) -> Config:
    """Of a Llama, Qwen 2, Qwen 2.5 or Qwen 3. Raises ValueError for what this decoder does not compute."""
    values = json.loads((Path(folder) / "config.json").read_text())
    family = values.get("model_type")
    if family not in FAMILIES:
        raise ValueError(f"{folder} holds a model of type {family!r}; the types known here: {', '.join(FAMILIES)}")
    if values.get("use_sliding_window") or values.get("mlp_bias") or values.get("attention_bias"):
        raise ValueError(f"{folder}: sliding windows and biases beside Qwen 2's are not built")
    rope = values.get("rope_parameters") or values.get("rope_scaling") or {}
    ends = values.get("eos_token_id")
    known = {name: values[name] for name in Config.__dataclass_fields__ if values.get(name) is not None}
    known |= {"head_dim": values.get("head_dim") or values["hidden_size"] // values["num_attention_heads"],
              "num_key_value_heads": values.get("num_key_value_heads") or values["num_attention_heads"],
              "rope_theta": rope.get("rope_theta") or values.get("rope_theta") or 10000.0,
              "rope_scaling": rope if rope.get("rope_type", rope.get("type", "default")) != "default" else None,
              "end_tokens": ends if isinstance(ends, list) else [] if ends is None else [ends]}
    return Config(**{**known, **FAMILIES[family][1]})


def write_config(config: Config, folder) -> None:
    """A config.json that read_config and `transformers` read."""
    family, name = next((family, name) for family, (name, traits) in FAMILIES.items()
                        if all(getattr(config, trait) for trait in traits))
    ours = ("qkv_bias", "qk_norm", "end_tokens")
    values = {name: getattr(config, name) for name in Config.__dataclass_fields__ if name not in ours}
    values |= {"model_type": family, "architectures": [name], "hidden_act": "silu",
               "eos_token_id": config.end_tokens or None}
    (Path(folder) / "config.json").write_text(json.dumps(values, indent=2) + "\n")


def load(folder, device="cpu", dtype: torch.dtype | None = None) -> Decoder:
    """The decoder with the folder's weights, in their own dtype where none is given."""
    folder, config = Path(folder), read_config(folder)
    with torch.device("meta"):
        model = Decoder(config)
    index = folder / "model.safetensors.index.json"
    files = sorted(set(json.loads(index.read_text())["weight_map"].values())) if index.exists() else ["model.safetensors"]
    weights = {}
    for file in files:  # one at a time, so that the host never holds the whole checkpoint twice
        for name, weight in load_file(folder / file).items():
            weights[name] = weight.to(device, dtype)
    if config.tie_word_embeddings:
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    model.load_state_dict(weights, assign=True)
    if config.tie_word_embeddings:
        model.lm_head.weight = model.model.embed_tokens.weight
    model.model.frequencies = model.model.frequencies.to(device)
    return model.requires_grad_(True)


def save(model: Decoder, folder, tokenizer: Tokenizer | None = None) -> None:
    """Writes config.json, model.safetensors and the tokenizer."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_config(model.config, folder)
    weights = {name: weight.detach().cpu().contiguous() for name, weight in model.state_dict().items()
               if not (name == "lm_head.weight" and model.config.tie_word_embeddings)}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    if tokenizer is not None:
        tokenizer.save(str(folder / "tokenizer.json"))


def load_tokenizer(folder) -> Tokenizer:
    """Of the folder's tokenizer.json."""
    return Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))

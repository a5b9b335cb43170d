"""The decoder of Llama and Qwen: RMSNorm, rotary positions, grouped-query attention, SwiGLU.

Modules carry the names of Hugging Face's checkpoints, so a state dict is one.
"""

import math
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    """Sizes, with the names of a Hugging Face config.json."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int = 2048
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    rope_scaling: dict | None = None
    tie_word_embeddings: bool = False
    qkv_bias: bool = False  # Qwen 2 and 2.5
    qk_norm: bool = False  # Qwen 3
    end_tokens: list[int] = field(default_factory=list)


class RMSNorm(nn.Module):
    """x / sqrt(mean(x²) + eps) · weight over the last dimension, computed in float32."""

    def __init__(self, width: int, eps: float):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)).to(x.dtype)


def frequencies(config: Config) -> list[float]:
    """Radians per position of each pair of a head's channels.

    Llama 3's scaling divides those of wavelengths beyond its old context by `factor` and blends between.
    """
    plain = [config.rope_theta ** (-2 * pair / config.head_dim) for pair in range(config.head_dim // 2)]
    scaling = config.rope_scaling or {}
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind == "default":
        return plain
    if kind == "linear":
        return [frequency / scaling["factor"] for frequency in plain]
    if kind != "llama3":
        raise ValueError(f"rope_scaling of type {kind!r} is not known; default, linear and llama3 are")
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]

    def scaled(frequency):
        turns = scaling["original_max_position_embeddings"] * frequency / (2 * math.pi)
        share = min(1.0, max(0.0, (turns - low) / (high - low)))
        return share * frequency + (1 - share) * frequency / scaling["factor"]

    return [scaled(frequency) for frequency in plain]


def rotate(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """Turns the pairs (i, i + half) of x [batch, heads, time, channels] by angles [batch, time, channels / 2]."""
    cosine, sine = (torch.cat([turn, turn], -1).unsqueeze(1).to(x.dtype) for turn in (angles.cos(), angles.sin()))
    first, second = x.chunk(2, -1)
    return x * cosine + torch.cat([-second, first], -1) * sine


class Cache:
    """Keys and values of all layers with room for `capacity` tokens: tensors [batch, heads, capacity, channels].

    Its shapes never change, so that every token of a generation runs the same program.
    """

    def __init__(self, config: Config, batch: int, capacity: int, device, dtype: torch.dtype):
        shape = (batch, config.num_key_value_heads, capacity, config.head_dim)
        self.layers = [tuple(torch.zeros(shape, device=device, dtype=dtype) for _ in range(2))
                       for _ in range(config.num_hidden_layers)]
        self.slots = torch.arange(capacity, device=device)

    def write(self, layer: int, positions: torch.Tensor, *news: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Puts keys and values [batch, heads, time, channels] at positions [batch, time]; returns the whole cache."""
        for cache, new in zip(self.layers[layer], news):
            index = positions[:, None, :, None].expand_as(new)
            cache.scatter_(2, index, new.to(cache.dtype))
        return self.layers[layer]

    def mask(self, positions: torch.Tensor) -> torch.Tensor:
        """What tokens at positions [batch, time] may look at: bool [batch, 1, time, capacity]."""
        return self.slots <= positions[:, None, :, None]


class Attention(nn.Module):
    """Causal attention, in which several query heads share a head of keys and values."""

    def __init__(self, config: Config, layer: int):
        super().__init__()
        self.layer, self.head_dim, self.qk_norm = layer, config.head_dim, config.qk_norm
        queries, keys = (heads * config.head_dim for heads in (config.num_attention_heads, config.num_key_value_heads))
        self.q_proj = nn.Linear(config.hidden_size, queries, bias=config.qkv_bias)
        self.k_proj = nn.Linear(config.hidden_size, keys, bias=config.qkv_bias)
        self.v_proj = nn.Linear(config.hidden_size, keys, bias=config.qkv_bias)
        self.o_proj = nn.Linear(queries, config.hidden_size, bias=False)
        if config.qk_norm:
            self.q_norm = RMSNorm(config.head_dim, config.rms_norm_eps)
            self.k_norm = RMSNorm(config.head_dim, config.rms_norm_eps)

    def forward(self, x, angles, positions=None, cache: Cache | None = None, mask=None):
        q, k, v = (project(x).unflatten(-1, (-1, self.head_dim)) for project in (self.q_proj, self.k_proj, self.v_proj))
        if self.qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        q, k = rotate(q, angles), rotate(k, angles)
        if cache is not None:
            k, v = (part.to(q.dtype) for part in cache.write(self.layer, positions, k, v))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=True)
        return self.o_proj(y.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """SwiGLU: down(silu(gate(x)) · up(x))."""

    def __init__(self, config: Config):
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """Attention and a feed-forward part, each behind a norm and beside a residual."""

    def __init__(self, config: Config, layer: int):
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config, layer)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = FeedForward(config)

    def forward(self, x, *where):
        x = x + self.self_attn(self.input_layernorm(x), *where)
        return x + self.mlp(self.post_attention_layernorm(x))


class Trunk(nn.Module):
    """The decoder without its head: hidden states [batch, time, hidden_size]."""

    def __init__(self, config: Config):
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config, layer) for layer in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.register_buffer("frequencies", torch.tensor(frequencies(config), device="cpu"), persistent=False)

    def forward(self, ids, positions=None, cache: Cache | None = None):
        x = self.embed_tokens(ids)
        mask = None if cache is None else cache.mask(positions)
        where = positions if positions is not None else torch.arange(ids.shape[1], device=ids.device).unsqueeze(0)
        angles = where.unsqueeze(-1).float() * self.frequencies
        for layer in self.layers:
            x = layer(x, angles, positions, cache, mask)
        return self.norm(x)


class Decoder(nn.Module):
    """Logits [batch, time, vocab_size] of the tokens that follow ids [batch, time].

    With a cache, ids stand at positions [batch, time] and look at what the cache holds up to there.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        self.model = Trunk(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.apply(self._initialise)
        if config.tie_word_embeddings:
            self.lm_head.weight = self.model.embed_tokens.weight

    @staticmethod
    def _initialise(module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, ids, positions=None, cache: Cache | None = None, last: torch.Tensor | None = None):
        """last [batch]: only the logits behind these tokens, [batch, vocab_size]."""
        x = self.model(ids, positions, cache)
        if last is not None:
            x = x.gather(1, last[:, None, None].expand(-1, 1, x.shape[-1])).squeeze(1)
        return self.lm_head(x)

    def loss(self, ids, targets):
        """Mean cross entropy in nats per token; targets of -100 do not count."""
        return F.cross_entropy(self(ids).flatten(0, 1).float(), targets.flatten())


def training_job(config: Config, batch: int, context: int) -> dict:
    """A step of AdamW in bfloat16, described for `torch_tpu.aot`: nothing is allocated."""
    with torch.device("meta"):
        model, ids = Decoder(config), torch.empty(batch, context, dtype=torch.long)
    return {"model": model, "inputs": (ids,), "targets": (ids,), "optimizer": torch.optim.AdamW,
            "dtype": torch.bfloat16,
            "loss": lambda logits, targets: F.cross_entropy(logits.flatten(0, 1), targets.flatten())}

"""A small GPT: pre-norm transformer blocks, learned positions, GELU, tied nothing."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    """Sizes; `vocabulary` is set from the text."""

    vocabulary: int = 0
    context: int = 64
    layers: int = 4
    heads: int = 4
    width: int = 128
    dropout: float = 0.0


class Attention(nn.Module):
    """Causal multi-head self-attention over [batch, time, width]."""

    def __init__(self, config: Config):
        super().__init__()
        self.heads = config.heads
        self.dropout = config.dropout
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.out = nn.Linear(config.width, config.width)

    def forward(self, x):
        batch, time, width = x.shape
        q, k, v = (
            part.view(batch, time, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(x).split(width, dim=2)
        )
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout)
        return self.out(y.transpose(1, 2).reshape(batch, time, width))


class Block(nn.Module):
    """Attention and a feed-forward layer, each behind a layer norm and a residual."""

    def __init__(self, config: Config):
        super().__init__()
        self.norm1 = nn.LayerNorm(config.width)
        self.attention = Attention(config)
        self.norm2 = nn.LayerNorm(config.width)
        self.feed_forward = nn.Sequential(
            nn.Linear(config.width, 4 * config.width),
            nn.GELU(),
            nn.Linear(4 * config.width, config.width),
            nn.Dropout(config.dropout),
        )

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.feed_forward(self.norm2(x))


class GPT(nn.Module):
    """Next-token logits [batch, time, vocabulary] for token ids [batch, time]."""

    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.positions = nn.Embedding(config.context, config.width)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.Sequential(*(Block(config) for _ in range(config.layers)))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        self.apply(self._initialise)

    @staticmethod
    def _initialise(module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, ids):
        positions = torch.arange(ids.shape[1], device=ids.device)
        x = self.dropout(self.tokens(ids) + self.positions(positions))
        return self.head(self.norm(self.blocks(x)))

    def loss(self, ids, targets):
        """Mean cross entropy in nats per token."""
        return F.cross_entropy(self(ids).flatten(0, 1), targets.flatten())

    @torch.no_grad()
    def generate(self, ids, count, generator=None):
        """Appends `count` sampled tokens to ids [1, time] and returns all of them as a list.

        The window has a fixed length, so that every token runs the same program; what lies after the
        last token does not matter, because attention is causal."""
        context = self.config.context
        tokens = ids[0].tolist()
        for _ in range(count):
            recent = tokens[-context:]
            window = torch.tensor([recent + [0] * (context - len(recent))])
            logits = self(window.to(ids.device))[0].float().cpu()[len(recent) - 1]
            tokens.append(int(torch.multinomial(logits.softmax(-1), 1, generator=generator)))
        return tokens


def job(batch=8, context=1024):
    """A training step of a GPT-2 of the small size: `python -m torch_tpu aot examples.mingpt.model`."""
    config = Config(vocabulary=50304, context=context, layers=12, heads=12, width=768)
    with torch.device("meta"):
        model, ids = GPT(config), torch.empty(batch, context, dtype=torch.long)
    return {"model": model, "inputs": (ids,), "targets": (ids,), "optimizer": torch.optim.AdamW,
            "dtype": torch.bfloat16, "loss": lambda logits, ids: F.cross_entropy(logits.flatten(0, 1), ids.flatten())}

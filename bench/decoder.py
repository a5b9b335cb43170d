"""A decoder of the Llama kind with a static cache of keys and values."""

import torch
import torch.nn.functional as F
from torch import nn

from bench import shapes


def _rotate(x, cos, sin):
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin


class Layer(nn.Module):
    """Grouped-query attention over the cache, then a gated network."""

    def __init__(self, sizes):
        super().__init__()
        width, self.size = sizes.width, sizes.width // sizes.heads
        key_width = sizes.key_heads * self.size
        self.norm1, self.norm2 = nn.RMSNorm(width, eps=1e-6), nn.RMSNorm(width, eps=1e-6)
        self.query, self.out = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.key, self.value = nn.Linear(width, key_width, bias=False), nn.Linear(width, key_width, bias=False)
        self.gate, self.up = nn.Linear(width, sizes.hidden, bias=False), nn.Linear(width, sizes.hidden, bias=False)
        self.down = nn.Linear(sizes.hidden, width, bias=False)

    def _heads(self, x):
        return x.view(*x.shape[:2], -1, self.size).transpose(1, 2)

    def forward(self, x, cos, sin, places, mask, keys, values):
        normed = self.norm1(x)
        query = _rotate(self._heads(self.query(normed)), cos, sin)
        keys.index_copy_(2, places, _rotate(self._heads(self.key(normed)), cos, sin))
        values.index_copy_(2, places, self._heads(self.value(normed)))
        attended = F.scaled_dot_product_attention(query, keys, values, attn_mask=mask, enable_gqa=True)
        x = x + self.out(attended.transpose(1, 2).reshape(x.shape))
        normed = self.norm2(x)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))


class Llama(nn.Module):
    """Rotary positions, RMS norms; `forward` writes the caches and gives the logits of the last place."""

    def __init__(self, sizes=shapes.LLAMA):
        super().__init__()
        self.sizes = sizes
        self.tokens = nn.Embedding(sizes.vocabulary, sizes.width)
        self.layers = nn.ModuleList(Layer(sizes) for _ in range(sizes.layers))
        self.norm = nn.RMSNorm(sizes.width, eps=1e-6)
        self.head = nn.Linear(sizes.width, sizes.vocabulary, bias=False)
        size, places = sizes.width // sizes.heads, sizes.prompt + sizes.tokens
        frequencies = 10000.0 ** (-torch.arange(0, size, 2).float() / size)
        angles = torch.outer(torch.arange(places).float(), frequencies).repeat(1, 2)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)
        self.register_buffer("causal", torch.ones(places, places, dtype=torch.bool).tril(), persistent=False)

    def forward(self, tokens, places, keys, values):
        x, cos, sin, mask = self.tokens(tokens), self.cos[places], self.sin[places], self.causal[places]
        for layer, layer_keys, layer_values in zip(self.layers, keys, values):
            x = layer(x, cos, sin, places, mask, layer_keys, layer_values)
        return self.head(self.norm(x[:, -1]))

    def caches(self):
        """Empty (keys, values), a tensor for each layer."""
        sizes = self.sizes
        shape = 1, sizes.key_heads, sizes.prompt + sizes.tokens, sizes.width // sizes.heads
        return tuple([torch.zeros(shape, device=self.cos.device) for _ in self.layers] for _ in range(2))

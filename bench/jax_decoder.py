"""The decoder of decoder.py in JAX."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from bench import shapes
from bench.jax_models import linear


def _rms_norm(parameters, name, x):
    return x * lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-6) * parameters[f"{name}.weight"]


def _angles():
    """Of the rotations, [places, size of a head], as torch computes them."""
    sizes = shapes.LLAMA
    size = sizes.width // sizes.heads
    frequencies = 10000.0 ** (-np.arange(0, size, 2, dtype=np.float32) / size)
    angles = np.outer(np.arange(sizes.prompt + sizes.tokens, dtype=np.float32), frequencies).astype(np.float32)
    return np.concatenate([angles, angles], -1)


def caches():
    """Empty (keys, values), an array for each layer."""
    sizes = shapes.LLAMA
    shape = 1, sizes.key_heads, sizes.prompt + sizes.tokens, sizes.width // sizes.heads
    return tuple([jnp.zeros(shape) for _ in range(sizes.layers)] for _ in range(2))


def llama(parameters, tokens, places, keys, values):
    """(logits of the last place, keys, values)."""
    sizes, angles = shapes.LLAMA, _angles()
    cos, sin = jnp.asarray(np.cos(angles))[places], jnp.asarray(np.sin(angles))[places]
    mask = jnp.arange(angles.shape[0])[None, :] <= places[:, None]
    x = parameters["tokens.weight"][tokens]
    batch, time, width = x.shape

    def heads(name, x):
        return linear(parameters, name, x).reshape(batch, time, -1, width // sizes.heads).transpose(0, 2, 1, 3)

    def rotate(x):
        first, second = jnp.split(x, 2, -1)
        return x * cos + jnp.concatenate([-second, first], -1) * sin

    keys, values = list(keys), list(values)
    for number in range(sizes.layers):
        layer = f"layers.{number}"
        normed = _rms_norm(parameters, f"{layer}.norm1", x)
        query, key = rotate(heads(f"{layer}.query", normed)), rotate(heads(f"{layer}.key", normed))
        keys[number] = lax.dynamic_update_slice_in_dim(keys[number], key, places[0], 2)
        values[number] = lax.dynamic_update_slice_in_dim(values[number], heads(f"{layer}.value", normed), places[0], 2)
        query = query.reshape(batch, sizes.key_heads, -1, time, query.shape[-1])
        scores = jnp.einsum("bkgtd,bksd->bkgts", query, keys[number]) * query.shape[-1] ** -0.5
        chances = jax.nn.softmax(jnp.where(mask, scores, -jnp.inf))
        attended = jnp.einsum("bkgts,bksd->bkgtd", chances, values[number]).reshape(batch, sizes.heads, time, -1)
        x = x + linear(parameters, f"{layer}.out", attended.transpose(0, 2, 1, 3).reshape(x.shape))
        normed = _rms_norm(parameters, f"{layer}.norm2", x)
        gated = jax.nn.silu(linear(parameters, f"{layer}.gate", normed)) * linear(parameters, f"{layer}.up", normed)
        x = x + linear(parameters, f"{layer}.down", gated)
    return linear(parameters, "head", _rms_norm(parameters, "norm", x[:, -1])), keys, values

"""What jax.jit does, on the PJRT plugin that our device uses."""

import os

import jax
import jax.numpy as jnp
import numpy as np
from jax import monitoring
from jax._src import xla_bridge

from bench import jax_decoder, jax_models, pointwise, shapes, weights
from bench.work import Work


class Peer:
    """JAX with the plugin $BENCH_PLUGIN as its only platform."""

    def __init__(self, name):
        xla_bridge.register_plugin("bench", library_path=os.environ["BENCH_PLUGIN"], options={"cpu_device_count": 1})
        jax.config.update("jax_platforms", "bench")
        self.compiles = 0
        monitoring.register_event_duration_secs_listener(self._listen)

    def _listen(self, event, duration, **_):
        self.compiles += event.endswith("backend_compile_duration")

    def work(self, row):
        """The Work of a row such as "training.gpt"."""
        group, name = row.split(".")
        return _WORKS[group](name)

    def synchronize(self):
        """Every work has waited already."""

    def counts(self):
        """Compilations; programs are not counted."""
        return {"compiles": self.compiles, "programs": 0}

    def device_peak_bytes(self):
        """Unknown."""
        return None

    def forward(self):
        """A function from a sequence length to one of the GPT's logits there."""
        parameters = {key: jax_models.load(key, array) for key, array in weights.weights_of("gpt").items()}
        compiled, tokens = jax.jit(jax_models.gpt), weights.sequences().astype(np.int32)
        return lambda length: float(np.asarray(compiled(parameters, tokens[:, :length]))[0, -1, 7])


def _pointwise(name):
    x = jnp.linspace(-1, 1, pointwise.SIZES[name], dtype=jnp.float32)
    chain = jax.jit(pointwise.chain)

    def run():
        return jax.block_until_ready(chain(x))

    return Work(run, lambda: np.asarray(run())[:: x.size // 16].tolist())


def _training(name):
    state, compiled = jax_models.training(name)
    batch = jax_models.batch_of(name)

    def step():
        nonlocal state
        state, loss = compiled(state, batch)
        jax.block_until_ready(state)
        return loss

    return Work(step, lambda: (float(step()) for _ in range(4)))


def _decode(name):
    parameters = {key: jax_models.load(key, array) for key, array in weights.weights_of("llama").items()}
    prompt, places = jnp.asarray(weights.prompt()), jnp.arange(shapes.LLAMA.prompt)
    caches = jax_decoder.caches()

    def following(parameters, tokens, places, keys, values):
        logits, keys, values = jax_decoder.llama(parameters, tokens, places, keys, values)
        return (logits.argmax(-1, keepdims=True), places[-1:] + 1), (keys, values)

    compiled = jax.jit(following, donate_argnums=(3, 4))

    def advance(tokens, places):
        nonlocal caches
        state, caches = compiled(parameters, tokens, places, *caches)
        return state

    def prefill():
        return jax.block_until_ready(advance(prompt, places))

    start = prefill()

    def decode():
        state, tokens = start, []
        for _ in range(shapes.LLAMA.tokens):
            state = advance(*state)
            tokens.append(state[0])
        jax.block_until_ready(caches)
        return tokens

    def logits():
        return np.asarray(jax.jit(jax_decoder.llama)(parameters, prompt, places, *jax_decoder.caches())[0])[0, ::64]

    if name == "prefill":
        return Work(prefill, logits)
    return Work(decode, lambda: [int(token[0, 0]) for token in decode()], units=shapes.LLAMA.tokens)


_WORKS = {"pointwise": _pointwise, "training": _training, "decode": _decode}

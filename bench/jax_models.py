"""The trained models as users of JAX write them: weights [inputs, outputs], images NHWC."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from bench import shapes, weights


def load(name, array):
    """One of torch's arrays in the layout that is used here."""
    if name.endswith(".weight") and array.ndim == 4:
        if ".transposed." in name:  # lax.conv_transpose does not turn the filter around
            array = array[:, :, ::-1, ::-1]
            array = array.transpose(2, 3, 0, 1)
        else:
            array = array.transpose(2, 3, 1, 0)
    elif name.endswith(".weight") and array.ndim == 2 and not name.startswith(("tokens.", "positions.", "tables.")):
        array = array.T
    return jnp.asarray(np.ascontiguousarray(array))


def is_buffer(name):
    """True for what is not trained."""
    return "running_" in name or "num_batches" in name


def batch_of(name):
    """The batch; images as NHWC."""
    return tuple(
        jnp.asarray(np.ascontiguousarray(array.transpose(0, 2, 3, 1)) if array.ndim == 4 else array)
        for array in weights.batch_of(name)
    )


def linear(parameters, name, x):
    """nn.Linear."""
    y = x @ parameters[f"{name}.weight"]
    return y + parameters[f"{name}.bias"] if f"{name}.bias" in parameters else y


def convolution(parameters, name, x, stride=1, padding=0):
    """nn.Conv2d."""
    y = lax.conv_general_dilated(x, parameters[f"{name}.weight"], (stride, stride), [(padding, padding)] * 2,
                                 dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return y + parameters[f"{name}.bias"] if f"{name}.bias" in parameters else y


def transposed(parameters, name, x):
    """nn.ConvTranspose2d with kernel 2 and stride 2."""
    y = lax.conv_transpose(x, parameters[f"{name}.weight"], (2, 2), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return y + parameters[f"{name}.bias"]


def batch_norm(parameters, name, x, buffers):
    """nn.BatchNorm2d while training; writes `buffers`."""
    mean = x.mean((0, 1, 2))
    variance = jnp.square(x - mean).mean((0, 1, 2))
    count = x.size // x.shape[-1]
    buffers[f"{name}.running_mean"] = 0.9 * parameters[f"{name}.running_mean"] + 0.1 * mean
    unbiased = variance * (count / (count - 1))
    buffers[f"{name}.running_var"] = 0.9 * parameters[f"{name}.running_var"] + 0.1 * unbiased
    buffers[f"{name}.num_batches_tracked"] = parameters[f"{name}.num_batches_tracked"] + 1
    return (x - mean) * lax.rsqrt(variance + 1e-5) * parameters[f"{name}.weight"] + parameters[f"{name}.bias"]


def max_pool(x, size, stride, padding):
    """nn.MaxPool2d."""
    edges = [(0, 0), (padding, padding), (padding, padding), (0, 0)]
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, size, size, 1), (1, stride, stride, 1), edges)


def layer_norm(parameters, name, x):
    """nn.LayerNorm."""
    mean = x.mean(-1, keepdims=True)
    variance = jnp.square(x - mean).mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-5) * parameters[f"{name}.weight"] + parameters[f"{name}.bias"]


def cross_entropy(logits, targets):
    """F.cross_entropy over the last dimension."""
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], -1).mean()


def gpt(parameters, tokens):
    """Logits [batch, time, vocabulary]."""
    (batch, time), width, heads = tokens.shape, shapes.GPT.width, shapes.GPT.heads
    x = parameters["tokens.weight"][tokens] + parameters["positions.weight"][:time]
    mask = jnp.tril(jnp.ones((time, time), bool))
    for number in range(shapes.GPT.layers):
        block = f"blocks.{number}"
        qkv = linear(parameters, f"{block}.qkv", layer_norm(parameters, f"{block}.norm1", x))
        q, k, v = (part.reshape(batch, time, heads, -1).transpose(0, 2, 1, 3) for part in jnp.split(qkv, 3, -1))
        scores = jnp.where(mask, q @ k.swapaxes(-1, -2) * (width // heads) ** -0.5, -jnp.inf)
        attended = (jax.nn.softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(batch, time, width)
        x = x + linear(parameters, f"{block}.out", attended)
        hidden = linear(parameters, f"{block}.up", layer_norm(parameters, f"{block}.norm2", x))
        x = x + linear(parameters, f"{block}.down", jax.nn.gelu(hidden, approximate=True))
    return linear(parameters, "head", layer_norm(parameters, "norm", x))


def _gpt_loss(parameters, buffers, tokens, targets):
    return cross_entropy(gpt(parameters, tokens), targets)


def _layers(parameters, name, count, x, last=True):
    """Linear layers with ReLU between them, and after the last one unless `last`."""
    for layer in range(count):
        x = linear(parameters, f"{name}.{layer}", x)
        x = x if last and layer == count - 1 else jax.nn.relu(x)
    return x


def _mlp_loss(parameters, buffers, x, targets):
    return jnp.square(_layers(parameters, "layers", shapes.MLP.layers, x) - targets).mean()


def _residual(parameters, name, x, stride, buffers):
    y = convolution(parameters, f"{name}.conv1", x, stride, 1)
    y = jax.nn.relu(batch_norm(parameters, f"{name}.norm1", y, buffers))
    y = batch_norm(parameters, f"{name}.norm2", convolution(parameters, f"{name}.conv2", y, 1, 1), buffers)
    if f"{name}.shortcut.weight" in parameters:
        x = convolution(parameters, f"{name}.shortcut", x, stride)
        x = batch_norm(parameters, f"{name}.shortcut_norm", x, buffers)
    return jax.nn.relu(y + x)


def _resnet_loss(parameters, buffers, images, targets):
    x = batch_norm(parameters, "stem_norm", convolution(parameters, "stem", images, 2, 3), buffers)
    x = max_pool(jax.nn.relu(x), 3, 2, 1)
    for stage in range(len(shapes.RESNET.stages)):
        for number in range(2):
            x = _residual(parameters, f"stages.{stage}.{number}", x, 2 if stage and number == 0 else 1, buffers)
    return cross_entropy(linear(parameters, "head", x.mean((1, 2))), targets)


def _double(parameters, name, x, buffers):
    for number in (1, 2):
        x = convolution(parameters, f"{name}.conv{number}", x, 1, 1)
        x = jax.nn.relu(batch_norm(parameters, f"{name}.norm{number}", x, buffers))
    return x


def _unet_loss(parameters, buffers, x, targets):
    kept = []
    for level in range(len(shapes.UNET.channels)):
        x = _double(parameters, f"down.{level}", max_pool(x, 2, 2, 0) if level else x, buffers)
        kept.append(x)
    for level in reversed(range(len(kept) - 1)):
        joined = jnp.concatenate([kept[level], transposed(parameters, f"up.{level}.transposed", x)], -1)
        x = _double(parameters, f"up.{level}.joined", joined, buffers)
    return cross_entropy(convolution(parameters, "head", x), targets)


def _dlrm_loss(parameters, buffers, dense, rows, targets):
    sizes = shapes.DLRM
    x = _layers(parameters, "bottom", len(sizes.bottom), dense, last=False)
    embedded = [parameters[f"tables.{number}.weight"][rows[:, number]] for number in range(sizes.tables)]
    features = jnp.stack([x, *embedded], 1)
    first, second = np.tril_indices(sizes.tables + 1, -1)
    products = (features @ features.swapaxes(1, 2))[:, first, second]
    x = _layers(parameters, "top", len(sizes.top), jnp.concatenate([x, products], 1))
    return (jnp.maximum(x, 0) - x * targets + jnp.log1p(jnp.exp(-jnp.abs(x)))).mean()


_LOSSES = {"gpt": _gpt_loss, "mlp": _mlp_loss, "resnet": _resnet_loss, "unet": _unet_loss, "dlrm": _dlrm_loss}


def _adamw():
    """torch.optim.AdamW: (initial state, update)."""
    rate, decay, beta1, beta2, epsilon = 1e-3, 0.01, 0.9, 0.999, 1e-8

    def initial(parameters):
        zeros = jax.tree.map(jnp.zeros_like, parameters)
        return jax.tree.map(jnp.zeros_like, parameters), zeros, jnp.zeros((), jnp.float32)

    def update(parameters, gradients, state):
        first, second, steps = state[0], state[1], state[2] + 1
        first = jax.tree.map(lambda m, g: beta1 * m + (1 - beta1) * g, first, gradients)
        second = jax.tree.map(lambda v, g: beta2 * v + (1 - beta2) * g * g, second, gradients)
        correction1, correction2 = 1 - beta1**steps, jnp.sqrt(1 - beta2**steps)

        def updated(p, m, v):
            return p * (1 - rate * decay) - (rate / correction1) * m / (jnp.sqrt(v) / correction2 + epsilon)

        return jax.tree.map(updated, parameters, first, second), (first, second, steps)

    return initial, update


def _sgd(rate, momentum=0.0, decay=0.0):
    """torch.optim.SGD: (initial state, update)."""

    def initial(parameters):
        return jax.tree.map(jnp.zeros_like, parameters) if momentum else ()

    def update(parameters, gradients, state):
        if decay:
            gradients = jax.tree.map(lambda p, g: g + decay * p, parameters, gradients)
        if momentum:
            gradients = state = jax.tree.map(lambda b, g: momentum * b + g, state, gradients)
        return jax.tree.map(lambda p, g: p - rate * g, parameters, gradients), state

    return initial, update


def _optimizer_of(name):
    if name == "resnet":
        return _sgd(0.01, momentum=0.9, decay=1e-4)
    return _sgd(0.1) if name == "dlrm" else _adamw()


def training(name):
    """(state, step): step(state, batch) gives the next state and the loss."""
    initial, update = _optimizer_of(name)
    arrays = {key: load(key, array) for key, array in weights.weights_of(name).items()}
    parameters = {key: array for key, array in arrays.items() if not is_buffer(key)}
    buffers = {key: array for key, array in arrays.items() if is_buffer(key)}

    def loss_of(parameters, buffers, batch):
        written = dict(buffers)
        return _LOSSES[name]({**parameters, **buffers}, written, *batch), written

    def step(state, batch):
        parameters, buffers, moments = state
        (loss, buffers), gradients = jax.value_and_grad(loss_of, has_aux=True)(parameters, buffers, batch)
        parameters, moments = update(parameters, gradients, moments)
        return (parameters, buffers, moments), loss

    return (parameters, buffers, initial(parameters)), jax.jit(step, donate_argnums=0)

"""First weights and batches as numpy arrays, named as in torch's state_dict: every peer starts from the same bits."""

import numpy as np

from bench import shapes


class _Weights(dict):
    """Collects arrays by name."""

    def __init__(self):
        super().__init__()
        self.random = np.random.default_rng(0)

    def normal(self, name, shape, scale):
        """Normal numbers of standard deviation `scale`."""
        self[name] = (self.random.standard_normal(shape) * scale).astype(np.float32)

    def constant(self, name, size, value):
        """A vector of one number."""
        self[name] = np.full((size,), value, np.float32)

    def linear(self, name, inputs, outputs, bias=True):
        """Of nn.Linear."""
        self.normal(f"{name}.weight", (outputs, inputs), inputs**-0.5)
        if bias:
            self.constant(f"{name}.bias", outputs, 0)

    def norm(self, name, width):
        """Of nn.LayerNorm."""
        self.constant(f"{name}.weight", width, 1)
        self.constant(f"{name}.bias", width, 0)

    def batch_norm(self, name, channels):
        """Of nn.BatchNorm2d, with its buffers."""
        self.norm(name, channels)
        self.constant(f"{name}.running_mean", channels, 0)
        self.constant(f"{name}.running_var", channels, 1)
        self[f"{name}.num_batches_tracked"] = np.zeros((), np.int64)

    def convolution(self, name, inputs, outputs, size):
        """Of nn.Conv2d without a bias."""
        self.normal(f"{name}.weight", (outputs, inputs, size, size), (2 / (inputs * size * size)) ** 0.5)


def _gpt():
    weights, sizes = _Weights(), shapes.GPT
    width = sizes.width
    weights.normal("tokens.weight", (sizes.vocabulary, width), 0.02)
    weights.normal("positions.weight", (sizes.context, width), 0.02)
    for layer in range(sizes.layers):
        block = f"blocks.{layer}"
        weights.norm(f"{block}.norm1", width)
        weights.linear(f"{block}.qkv", width, 3 * width)
        weights.linear(f"{block}.out", width, width)
        weights.norm(f"{block}.norm2", width)
        weights.linear(f"{block}.up", width, 4 * width)
        weights.linear(f"{block}.down", 4 * width, width)
    weights.norm("norm", width)
    weights.linear("head", width, sizes.vocabulary, bias=False)
    return weights


def _mlp():
    weights = _Weights()
    for layer in range(shapes.MLP.layers):
        weights.linear(f"layers.{layer}", shapes.MLP.width, shapes.MLP.width)
    return weights


def _resnet():
    weights, inputs = _Weights(), shapes.RESNET.stages[0]
    weights.convolution("stem", 3, inputs, 7)
    weights.batch_norm("stem_norm", inputs)
    for stage, outputs in enumerate(shapes.RESNET.stages):
        for number in range(2):
            block = f"stages.{stage}.{number}"
            weights.convolution(f"{block}.conv1", inputs, outputs, 3)
            weights.batch_norm(f"{block}.norm1", outputs)
            weights.convolution(f"{block}.conv2", outputs, outputs, 3)
            weights.batch_norm(f"{block}.norm2", outputs)
            if inputs != outputs:
                weights.convolution(f"{block}.shortcut", inputs, outputs, 1)
                weights.batch_norm(f"{block}.shortcut_norm", outputs)
            inputs = outputs
    weights.linear("head", inputs, shapes.RESNET.classes)
    return weights


def _double(weights, name, inputs, outputs):
    weights.convolution(f"{name}.conv1", inputs, outputs, 3)
    weights.batch_norm(f"{name}.norm1", outputs)
    weights.convolution(f"{name}.conv2", outputs, outputs, 3)
    weights.batch_norm(f"{name}.norm2", outputs)


def _unet():
    weights, channels = _Weights(), shapes.UNET.channels
    for level, (inputs, outputs) in enumerate(zip((3, *channels), channels)):
        _double(weights, f"down.{level}", inputs, outputs)
    for level, (outputs, inputs) in enumerate(zip(channels, channels[1:])):
        weights.normal(f"up.{level}.transposed.weight", (inputs, outputs, 2, 2), inputs**-0.5)
        weights.constant(f"up.{level}.transposed.bias", outputs, 0)
        _double(weights, f"up.{level}.joined", 2 * outputs, outputs)
    weights.normal("head.weight", (shapes.UNET.classes, channels[0], 1, 1), channels[0] ** -0.5)
    weights.constant("head.bias", shapes.UNET.classes, 0)
    return weights


def _dlrm():
    weights, sizes = _Weights(), shapes.DLRM
    for table in range(sizes.tables):
        weights.normal(f"tables.{table}.weight", (sizes.rows, sizes.width), 0.05)
    features = sizes.tables + 1
    for name, inputs, widths in (("bottom", sizes.dense, sizes.bottom),
                                 ("top", sizes.width + features * (features - 1) // 2, sizes.top)):
        for layer, outputs in enumerate(widths):
            weights.linear(f"{name}.{layer}", inputs, outputs)
            inputs = outputs
    return weights


def _llama():
    weights, sizes = _Weights(), shapes.LLAMA
    width, key_width = sizes.width, sizes.width // sizes.heads * sizes.key_heads
    weights.normal("tokens.weight", (sizes.vocabulary, width), 1)
    for number in range(sizes.layers):
        layer = f"layers.{number}"
        weights.constant(f"{layer}.norm1.weight", width, 1)
        weights.constant(f"{layer}.norm2.weight", width, 1)
        for name, inputs, outputs in (("query", width, width), ("key", width, key_width), ("value", width, key_width),
                                      ("out", width, width), ("gate", width, sizes.hidden), ("up", width, sizes.hidden),
                                      ("down", sizes.hidden, width)):
            weights.linear(f"{layer}.{name}", inputs, outputs, bias=False)
    weights.constant("norm.weight", width, 1)
    weights.linear("head", width, sizes.vocabulary, bias=False)
    return weights


_WEIGHTS = {"gpt": _gpt, "mlp": _mlp, "resnet": _resnet, "unet": _unet, "dlrm": _dlrm, "llama": _llama}


def weights_of(model):
    """The first weights of a model: name -> array."""
    return dict(_WEIGHTS[model]())


def batch_of(model):
    """The one batch of a model: inputs, then targets."""
    random = np.random.default_rng(1)

    def normal(*shape):
        return random.standard_normal(shape).astype(np.float32)

    if model == "gpt":
        tokens = random.integers(0, shapes.GPT.vocabulary, (shapes.GPT.batch, shapes.GPT.context + 1))
        return tokens[:, :-1].copy(), tokens[:, 1:].copy()
    if model == "mlp":
        return normal(shapes.MLP.batch, shapes.MLP.width), normal(shapes.MLP.batch, shapes.MLP.width)
    if model == "resnet":
        sizes = shapes.RESNET
        return normal(sizes.batch, 3, sizes.size, sizes.size), random.integers(0, sizes.classes, sizes.batch)
    if model == "unet":
        sizes = shapes.UNET
        images = normal(sizes.batch, 3, sizes.size, sizes.size)
        return images, random.integers(0, sizes.classes, (sizes.batch, sizes.size, sizes.size))
    assert model == "dlrm"
    sizes = shapes.DLRM
    return (normal(sizes.batch, sizes.dense), random.integers(0, sizes.rows, (sizes.batch, sizes.tables)),
            random.integers(0, 2, (sizes.batch, 1)).astype(np.float32))


def prompt():
    """The tokens a decoder starts from."""
    return np.random.default_rng(3).integers(0, shapes.LLAMA.vocabulary, (1, shapes.LLAMA.prompt))


def sequences():
    """Tokens whose beginnings are the sequences of shapes.LENGTHS."""
    return np.random.default_rng(2).integers(0, shapes.GPT.vocabulary, (shapes.LENGTHS_BATCH, shapes.GPT.context))

"""The trained models as users of PyTorch write them; `loss(*batch)` is the objective of each."""

import torch
import torch.nn.functional as F
from torch import nn

from bench import shapes


class Block(nn.Module):
    """A pre-norm transformer block."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, time, width = x.shape
        parts = self.qkv(self.norm1(x)).split(width, 2)
        q, k, v = (part.view(batch, time, self.heads, width // self.heads).transpose(1, 2) for part in parts)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, time, width))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    """A decoder with learned positions."""

    def __init__(self, sizes=shapes.GPT):
        super().__init__()
        self.tokens = nn.Embedding(sizes.vocabulary, sizes.width)
        self.positions = nn.Embedding(sizes.context, sizes.width)
        self.blocks = nn.ModuleList(Block(sizes.width, sizes.heads) for _ in range(sizes.layers))
        self.norm = nn.LayerNorm(sizes.width)
        self.head = nn.Linear(sizes.width, sizes.vocabulary, bias=False)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))

    def loss(self, tokens, targets):
        logits = self(tokens)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))


class MLP(nn.Module):
    """Linear layers with ReLU between them."""

    def __init__(self, sizes=shapes.MLP):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(sizes.width, sizes.width) for _ in range(sizes.layers))

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = F.relu(layer(x))
        return self.layers[-1](x)

    def loss(self, x, targets):
        return F.mse_loss(self(x), targets)


class Residual(nn.Module):
    """Two convolutions and a shortcut."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut = self.shortcut_norm = None
        if inputs != outputs:
            self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.shortcut_norm = nn.BatchNorm2d(outputs)

    def forward(self, x):
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(y + (x if self.shortcut is None else self.shortcut_norm(self.shortcut(x))))


class ResNet(nn.Module):
    """ResNet-18."""

    def __init__(self, sizes=shapes.RESNET):
        super().__init__()
        inputs = sizes.stages[0]
        self.stem = nn.Conv2d(3, inputs, 7, 2, padding=3, bias=False)
        self.stem_norm = nn.BatchNorm2d(inputs)
        self.pool = nn.MaxPool2d(3, 2, padding=1)
        self.stages = nn.ModuleList()
        for number, outputs in enumerate(sizes.stages):
            blocks = Residual(inputs, outputs, 2 if number else 1), Residual(outputs, outputs, 1)
            self.stages.append(nn.Sequential(*blocks))
            inputs = outputs
        self.head = nn.Linear(inputs, sizes.classes)

    def forward(self, images):
        x = self.pool(F.relu(self.stem_norm(self.stem(images))))
        for stage in self.stages:
            x = stage(x)
        return self.head(x.mean((2, 3)))

    def loss(self, images, targets):
        return F.cross_entropy(self(images), targets)


class Double(nn.Module):
    """Two convolutions."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs)
        self.conv2, self.norm2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs)

    def forward(self, x):
        x = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(x)))


class Up(nn.Module):
    """Doubles the size and joins what was kept on the way down."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.transposed = nn.ConvTranspose2d(inputs, outputs, 2, 2)
        self.joined = Double(2 * outputs, outputs)

    def forward(self, x, kept):
        return self.joined(torch.cat([kept, self.transposed(x)], 1))


class UNet(nn.Module):
    """Double convolutions, max pooling down, transposed convolutions up."""

    def __init__(self, sizes=shapes.UNET):
        super().__init__()
        channels = sizes.channels
        self.down = nn.ModuleList(Double(*pair) for pair in zip((3, *channels), channels))
        self.up = nn.ModuleList(Up(inputs, outputs) for outputs, inputs in zip(channels, channels[1:]))
        self.head = nn.Conv2d(channels[0], sizes.classes, 1)

    def forward(self, x):
        kept = []
        for level, double in enumerate(self.down):
            x = double(F.max_pool2d(x, 2) if level else x)
            kept.append(x)
        for up, skipped in zip(reversed(self.up), reversed(kept[:-1])):
            x = up(x, skipped)
        return self.head(x)

    def loss(self, images, targets):
        return F.cross_entropy(self(images), targets)


class DLRM(nn.Module):
    """Embedding tables, products of all pairs of features, and two small networks."""

    def __init__(self, sizes=shapes.DLRM):
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(sizes.rows, sizes.width, mode="sum") for _ in range(sizes.tables))
        features = sizes.tables + 1
        self.bottom = self._layers(sizes.dense, sizes.bottom)
        self.top = self._layers(sizes.width + features * (features - 1) // 2, sizes.top)
        self.register_buffer("pairs", torch.tril_indices(features, features, -1), persistent=False)

    @staticmethod
    def _layers(inputs, widths):
        return nn.ModuleList(nn.Linear(*pair) for pair in zip((inputs, *widths), widths))

    def forward(self, dense, rows):
        for layer in self.bottom:
            dense = F.relu(layer(dense))
        embedded = [table(rows[:, number : number + 1]) for number, table in enumerate(self.tables)]
        features = torch.stack([dense, *embedded], 1)
        products = torch.bmm(features, features.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        x = torch.cat([dense, products], 1)
        for layer in self.top[:-1]:
            x = F.relu(layer(x))
        return self.top[-1](x)

    def loss(self, dense, rows, targets):
        return F.binary_cross_entropy_with_logits(self(dense, rows), targets)


MODELS = {"gpt": GPT, "mlp": MLP, "resnet": ResNet, "unet": UNet, "dlrm": DLRM}


def optimizer_of(name, parameters):
    """The optimizer a model is trained with."""
    if name == "resnet":
        return torch.optim.SGD(parameters, lr=0.01, momentum=0.9, weight_decay=1e-4)
    if name == "dlrm":
        return torch.optim.SGD(parameters, lr=0.1)
    return torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.01)

"""Small models that train in a few steps, and the loop that trains them."""
import torch
import torch.nn.functional as F
from torch import nn

from examples.mingpt.model import GPT, Config


def gpt(**sizes):
    """The model of examples/mingpt, tiny, with its loss."""
    return GPT(Config(**{**dict(vocabulary=11, context=8, layers=1, heads=2, width=16), **sizes}))


class Mlp(nn.Sequential):
    """Two linear layers."""

    def __init__(self):
        super().__init__(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


class ConvNet(nn.Module):
    """Convolutions, batch norm, pooling, and a linear layer."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(4, 8, 3, stride=2, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.features(x).flatten(1))


class Training:
    """A model, an optimizer and batches, the same for every device."""

    def __init__(self, kind, device, optimizer=torch.optim.AdamW, **options):
        torch.manual_seed(0)
        self.kind = kind
        self.model = {"mlp": Mlp, "convnet": ConvNet, "gpt": gpt}[kind]().to(device)
        self.optimizer = optimizer(self.model.parameters(), **{"lr": 1e-2, **options})
        self.generator = torch.Generator().manual_seed(1)
        self.device = device

    def batch(self):
        """(inputs, targets) on the device, drawn on the CPU."""
        if self.kind == "gpt":
            ids = torch.randint(11, (4, 9), generator=self.generator).to(self.device)
            return ids[:, :-1], ids[:, 1:]
        shape = (6, 8) if self.kind == "mlp" else (6, 1, 8, 8)
        x = torch.randn(shape, generator=self.generator)
        y = torch.randint(4, (6,), generator=self.generator)
        return x.to(self.device), y.to(self.device)

    def loss(self):
        """The loss of the next batch."""
        x, y = self.batch()
        return self.model.loss(x, y) if self.kind == "gpt" else F.cross_entropy(self.model(x), y)

    def step(self):
        """One training step; returns the loss without reading it."""
        loss = self.loss()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def gradients(self):
        """{name: gradient, on the CPU} of one batch."""
        self.loss().backward()
        return {name: p.grad.cpu() for name, p in self.model.named_parameters()}

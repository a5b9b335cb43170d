"""A UNet: an encoder, a decoder, and at each resolution a bridge between them; optionally told a time."""

import math

import torch
from torch import nn


class Block(nn.Module):
    """Two 3x3 convolutions with group norms, and a shortcut; the embedded time shifts the channels between them."""

    def __init__(self, inputs: int, outputs: int, time_width: int):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(4, inputs), nn.Conv2d(inputs, outputs, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(4, outputs), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.time = nn.Linear(time_width, outputs) if time_width else None
        self.shortcut = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()
        self.activation = nn.SiLU()

    def forward(self, x: torch.Tensor, time: torch.Tensor | None) -> torch.Tensor:
        """[batch, inputs, height, width] and [batch, time_width] -> [batch, outputs, height, width]."""
        hidden = self.conv1(self.activation(self.norm1(x)))
        if self.time is not None:
            hidden = hidden + self.time(time)[:, :, None, None]
        return self.conv2(self.activation(self.norm2(hidden))) + self.shortcut(x)


class TimeEmbedding(nn.Module):
    """Sines and cosines of a time, whose periods grow from 2 pi to 10,000 times that, through a small network."""

    def __init__(self, width: int):
        super().__init__()
        frequencies = torch.exp(-math.log(10_000) * torch.arange(width // 2) / (width // 2))
        self.register_buffer("frequencies", frequencies, persistent=False)
        self.layers = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, time: torch.Tensor) -> torch.Tensor:
        """int64 [batch] -> float [batch, width]."""
        angle = time[:, None] * self.frequencies
        return self.layers(torch.cat([angle.sin(), angle.cos()], 1))


class UNet(nn.Module):
    """[batch, inputs, height, width] -> [batch, outputs, height, width].

    widths: channels at each resolution, multiples of 4; each has half the size of the one before, so height and width
    are multiples of 2 ** (len(widths) - 1). time_width: of the embedding, 0 for a network that is told no time.
    """

    def __init__(self, inputs: int, outputs: int, widths: tuple[int, ...] = (16, 32, 64), time_width: int = 0):
        super().__init__()
        self.time = TimeEmbedding(time_width) if time_width else None
        self.first = nn.Conv2d(inputs, widths[0], 3, padding=1)
        self.down, self.shrink = nn.ModuleList(), nn.ModuleList()
        self.up, self.grow = nn.ModuleList(), nn.ModuleList()
        for fine, coarse in zip(widths, widths[1:]):
            self.down.append(Block(fine, fine, time_width))
            self.shrink.append(nn.Conv2d(fine, coarse, 3, stride=2, padding=1))
            self.grow.append(nn.ConvTranspose2d(coarse, fine, 2, stride=2))
            self.up.append(Block(2 * fine, fine, time_width))
        self.middle = Block(widths[-1], widths[-1], time_width)
        self.norm, self.last = nn.GroupNorm(4, widths[0]), nn.Conv2d(widths[0], outputs, 3, padding=1)

    def forward(self, x: torch.Tensor, time: torch.Tensor | None = None) -> torch.Tensor:
        if self.time is not None:
            time = self.time(time)
        x, bridges = self.first(x), []
        for block, shrink in zip(self.down, self.shrink):
            x = block(x, time)
            bridges.append(x)
            x = shrink(x)
        x = self.middle(x, time)
        for block, grow in zip(reversed(self.up), reversed(self.grow)):
            x = block(torch.cat([grow(x), bridges.pop()], 1), time)
        return self.last(nn.functional.silu(self.norm(x)))

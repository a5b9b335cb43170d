"""ResNet-18, -34 and -50; parameters bear torchvision's names, so that its weights load."""

import torch
from torch import nn

LAYERS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3)}


def convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    """Without bias, because a batch norm follows; an odd kernel keeps the size at stride 1."""
    return nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)


class Block(nn.Module):
    """A residual of convolutions, and a shortcut that is projected where the shape changes."""

    expansion = 1  # channels out, in terms of the block's width

    def __init__(self, inputs: int, width: int, stride: int):
        super().__init__()
        outputs = width * self.expansion
        self.build(inputs, width, stride)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))

    def build(self, inputs: int, width: int, stride: int) -> None:
        """The layers of the residual."""
        self.conv1, self.bn1 = convolution(inputs, width, 3, stride), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = convolution(width, width, 3), nn.BatchNorm2d(width)

    @property
    def last_norm(self) -> nn.BatchNorm2d:
        """Of the residual."""
        return self.bn2

    def residual(self, x: torch.Tensor) -> torch.Tensor:
        x = self.relu(self.bn1(self.conv1(x)))
        return self.bn2(self.conv2(x))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, inputs, height, width] -> [batch, outputs, height / stride, width / stride]."""
        shortcut = x if self.downsample is None else self.downsample(x)
        return self.relu(self.residual(x) + shortcut)


class Bottleneck(Block):
    """1x1, 3x3 and 1x1 convolutions; the middle one has the stride."""

    expansion = 4

    def build(self, inputs: int, width: int, stride: int) -> None:
        outputs = width * self.expansion
        self.conv1, self.bn1 = convolution(inputs, width, 1), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = convolution(width, width, 3, stride), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = convolution(width, outputs, 1), nn.BatchNorm2d(outputs)

    @property
    def last_norm(self) -> nn.BatchNorm2d:
        return self.bn3

    def residual(self, x: torch.Tensor) -> torch.Tensor:
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        return self.bn3(self.conv3(x))


class ResNet(nn.Module):
    """Class scores [batch, classes] for images [batch, channels, height, width].

    depth: 18, 34 or 50. width: channels of the first stage; each of the other three has twice as many.
    small_images: a 3x3 convolution is the stem (as for CIFAR), instead of a 7x7 one of stride 2 and a max pool.
    """

    def __init__(self, depth: int, classes: int, channels: int = 3, width: int = 64, small_images: bool = False):
        super().__init__()
        block = Bottleneck if depth >= 50 else Block
        self.conv1 = convolution(channels, width, *((3, 1) if small_images else (7, 2)))
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.Identity() if small_images else nn.MaxPool2d(3, 2, 1)
        inputs = width
        for stage, count in enumerate(LAYERS[depth]):
            blocks = []
            for index in range(count):
                stride = 2 if stage and not index else 1
                blocks.append(block(inputs, width << stage, stride))
                inputs = (width << stage) * block.expansion
            setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(inputs, classes)
        self.apply(self._initialise)

    @staticmethod
    def _initialise(module: nn.Module) -> None:
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        if isinstance(module, Block):  # residuals start at zero, so that a deep network starts as a shallow one
            nn.init.zeros_(module.last_norm.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))

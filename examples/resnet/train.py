"""Trains a ResNet on scikit-learn's digits, or on a folder of images.

  python examples/resnet/train.py                          # digits, on "tpu"
  python examples/resnet/train.py --images FOLDER --depth 50 --width 64 --channels-last --dtype bf16
"""

import math
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from examples.resnet.data import Digits, Folder
from examples.resnet.model import LAYERS, ResNet
from examples.training import Training, flags, train


class Classifier(Training):
    """A ResNet, SGD with momentum, and a learning rate that rises for 50 steps, then follows a cosine to zero."""

    unit = "images"

    def __init__(self, args, device: str):
        super().__init__(args, device)
        self.data = (Folder if args.images else Digits)(args)
        self.layout = torch.channels_last if args.channels_last else torch.contiguous_format
        model = ResNet(args.depth, self.data.classes, self.data.channels, args.width, small_images=not args.images)
        self.model = model.to(device, memory_format=self.layout)
        self.optimizer = torch.optim.SGD(self.model.parameters(), args.lr, momentum=0.9, weight_decay=5e-4,
                                         nesterov=True)

    def batch(self):
        return self.data.batch(self.step, self.generator)

    def loss(self, images, labels):
        """Mean cross entropy in nats."""
        scores = self.model(images.contiguous(memory_format=self.layout))
        return torch.nn.functional.cross_entropy(scores, labels)

    def learning_rate(self):
        cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, self.step / self.args.steps)))
        return self.args.lr * cosine * min(1.0, (self.step + 1) / 50)

    @torch.no_grad()
    def accuracy(self) -> float:
        """The fraction of held-out images whose class has the highest score."""
        self.model.eval()
        right = count = 0
        for images, labels in self.data.held_out():
            with self.autocast():
                scores = self.model(images.to(self.device, memory_format=self.layout))
            right += (scores.argmax(1).cpu() == labels).sum().item()
            count += len(labels)
        self.model.train()
        return right / count


def parse(argv=None):
    parser = flags(__doc__, steps=500, batch=64, lr=0.05, log=100)
    parser.add_argument("--depth", type=int, choices=sorted(LAYERS), default=18)
    parser.add_argument("--width", type=int, default=12, help="channels of the first stage; 64 in the paper")
    parser.add_argument("--images", metavar="FOLDER", help="FOLDER/train/CLASS/*.jpg and FOLDER/val/CLASS/*.jpg")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--workers", type=int, default=2, help="processes that read images")
    parser.add_argument("--channels-last", action="store_true")
    return parser.parse_args(argv)


def main(argv=None) -> tuple[list[float], float]:
    """The losses of the steps, and the accuracy on the held-out images."""
    run, losses = train(Classifier, parse(argv))
    accuracy = run.accuracy()
    print(f"accuracy {accuracy:.2%} on held-out images")
    return losses, accuracy


if __name__ == "__main__":
    main()

"""Teaches a UNet to find what is red or orange in the two photographs that scikit-learn ships.

  python examples/unet/segment.py                       # on "tpu"
  python examples/unet/segment.py --picture masks.png   # and draw image, mask and prediction of the held-out half

The masks are a threshold of blurred colours. The left half of each photograph trains, the right half tests.
"""

import sys
from pathlib import Path

import torch
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import examples.torchvision_import  # noqa: F401
from sklearn.datasets import load_sample_images
from torchvision.utils import save_image

from examples.training import Training, flags, train
from examples.unet.model import UNet

SIZE = 64  # of a crop, in pixels


def photographs() -> tuple[torch.Tensor, torch.Tensor]:
    """Two photographs in [0, 1], float32 [2, 3, 384, 640], and their masks of 0 and 1, float32 [2, 1, 384, 640]."""
    images = torch.stack([torch.from_numpy(image.copy()) for image in load_sample_images().images])
    images = images[:, :384].permute(0, 3, 1, 2).float() / 255
    blurred = functional.avg_pool2d(images, 5, stride=1, padding=2)
    return images, (blurred[:, :1] - blurred[:, 2:] > 0.2).float()


class Segmentation(Training):
    """A UNet that scores each pixel; its loss is the binary cross entropy."""

    unit = "crops"

    def __init__(self, args, device: str):
        super().__init__(args, device)
        images, masks = photographs()
        half = images.shape[3] // 2
        self.images, self.masks = images[..., :half], masks[..., :half]
        self.test = images[..., half:], masks[..., half:]
        self.model = UNet(3, 1).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), args.lr)

    def batch(self):
        """Random crops, float32 [batch, 3, 64, 64], some of them mirrored, and their masks."""
        count, (height, width) = self.args.batch, self.images.shape[2:]
        which = torch.randint(len(self.images), (count,), generator=self.generator).tolist()
        rows = torch.randint(height - SIZE, (count,), generator=self.generator).tolist()
        columns = torch.randint(width - SIZE, (count,), generator=self.generator).tolist()
        mirrored = torch.rand(count, 1, 1, 1, generator=self.generator) < 0.5
        crops = (torch.stack([source[image, :, row : row + SIZE, column : column + SIZE]
                              for image, row, column in zip(which, rows, columns)])
                 for source in (self.images, self.masks))
        return tuple(torch.where(mirrored, part.flip(3), part) for part in crops)

    def loss(self, images, masks):
        """In nats per pixel."""
        return functional.binary_cross_entropy_with_logits(self.model(images - 0.5), masks)

    @torch.no_grad()
    def predict(self, images: torch.Tensor) -> torch.Tensor:
        """The masks of images, bool, on the CPU."""
        with self.autocast():
            return (self.model(images.to(self.device) - 0.5) > 0).cpu()


def intersection_over_union(masks: torch.Tensor, predicted: torch.Tensor) -> float:
    """Of the pixels that either of the two marks, the fraction that both do."""
    masks, predicted = masks.bool(), predicted.bool()
    return ((masks & predicted).sum() / (masks | predicted).sum()).item()


def main(argv=None) -> tuple[list[float], float]:
    """The losses of the steps, and the intersection over union on the held-out halves."""
    parser = flags(__doc__, steps=80, batch=16, lr=2e-3, log=20)
    parser.add_argument("--picture", metavar="FILE.png", help="image, mask and prediction side by side")
    args = parser.parse_args(argv)
    run, losses = train(Segmentation, args)
    images, masks = run.test
    predicted = run.predict(images)
    score = intersection_over_union(masks, predicted)
    print(f"intersection over union {score:.3f} on the held-out halves")
    if args.picture:
        columns = [images, masks.expand_as(images), predicted.float().expand_as(images)]
        save_image(torch.stack(columns, 1).flatten(0, 1), args.picture, nrow=3)
    return losses, score


if __name__ == "__main__":
    main()

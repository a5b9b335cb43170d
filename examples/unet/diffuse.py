"""Teaches a UNet to remove noise from scikit-learn's digits, then makes digits out of noise.

  python examples/unet/diffuse.py --picture digits.png    # on "tpu"

This is denoising diffusion (Ho, Jain, Abbeel, NeurIPS 2020) with the cosine schedule of Nichol and Dhariwal (2021).
"""

import math
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import examples.torchvision_import  # noqa: F401
from sklearn.datasets import load_digits
from torchvision.utils import save_image

from examples.training import Training, flags, train
from examples.unet.model import UNet


def kept_signal(times: int) -> torch.Tensor:
    """What is left of an image's variance after 0, 1, …, `times` steps of noise; float32 [times + 1]."""
    angle = (torch.arange(times + 1, dtype=torch.float64) / times + 0.008) / 1.008 * math.pi / 2
    kept = angle.cos() ** 2
    steps = (kept[1:] / kept[:-1]).clamp(min=1 - 0.999)
    return torch.cat([torch.ones(1, dtype=torch.float64), steps.cumprod(0)]).float()


class Diffusion(Training):
    """A UNet that predicts the noise in a digit, given how many steps of noise it has seen."""

    unit = "images"

    def __init__(self, args, device: str):
        super().__init__(args, device)
        self.images = torch.from_numpy(load_digits().images).float().unsqueeze(1) / 8 - 1  # [1797, 1, 8, 8], -1 … 1
        self.kept = kept_signal(args.times)
        self.model = UNet(1, 1, (32, 64), time_width=64).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), args.lr)

    def batch(self):
        """Noisy digits [batch, 1, 8, 8], the steps of noise [batch] (int64, from 1), and the noise."""
        count = self.args.batch
        images = self.images[torch.randint(len(self.images), (count,), generator=self.generator)]
        times = torch.randint(1, self.args.times + 1, (count,), generator=self.generator)
        noise = torch.randn(images.shape, generator=self.generator)
        kept = self.kept[times][:, None, None, None]
        return kept.sqrt() * images + (1 - kept).sqrt() * noise, times, noise

    def loss(self, noisy, times, noise):
        """Mean squared error of the noise."""
        return torch.nn.functional.mse_loss(self.model(noisy, times), noise)

    def learning_rate(self):
        return self.args.lr * 0.5 * (1 + math.cos(math.pi * min(1.0, self.step / self.args.steps)))

    @torch.no_grad()
    def sample(self, count: int) -> torch.Tensor:
        """New digits [count, 1, 8, 8] in -1 … 1, on the CPU."""
        generator = torch.Generator().manual_seed(self.args.seed)
        x = torch.randn(count, 1, 8, 8, generator=generator).to(self.device)
        for time in range(self.args.times, 0, -1):
            kept, before = self.kept[time].item(), self.kept[time - 1].item()
            with self.autocast():
                noise = self.model(x, torch.full((count,), time, device=self.device)).float()
            image = ((x - math.sqrt(1 - kept) * noise) / math.sqrt(kept)).clamp(-1, 1)
            step = kept / before
            mean = (math.sqrt(before) * (1 - step) * image + math.sqrt(step) * (1 - before) * x) / (1 - kept)
            fresh = torch.randn(x.shape, generator=generator).to(self.device)
            x = mean + math.sqrt((1 - step) * (1 - before) / (1 - kept)) * fresh
        return x.cpu()

    def distance(self, images: torch.Tensor) -> float:
        """The mean distance from an image to the nearest real digit, in root mean squares of a pixel."""
        return (torch.cdist(images.flatten(1), self.images.flatten(1)).amin(1) / 8).mean().item()


def main(argv=None) -> tuple[list[float], float]:
    """The losses of the steps, and how far the samples are from real digits, in terms of what noise is."""
    parser = flags(__doc__, steps=800, batch=64, lr=2e-3, log=200)
    parser.add_argument("--times", type=int, default=100, help="steps from noise to a digit")
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--picture", metavar="FILE.png", help="write the samples here")
    args = parser.parse_args(argv)
    run, losses = train(Diffusion, args)
    samples = run.sample(args.samples)
    noise = torch.randn(samples.shape, generator=torch.Generator().manual_seed(args.seed)).clamp(-1, 1)
    distance, of_noise = run.distance(samples), run.distance(noise)
    print(f"{len(samples)} samples, {distance:.3f} from the nearest digit; {of_noise:.3f} for noise")
    if args.picture:
        save_image(torch.nn.functional.interpolate(samples / 2 + 0.5, scale_factor=4), args.picture, nrow=8)
    return losses, distance / of_noise


if __name__ == "__main__":
    main()

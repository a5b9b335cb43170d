"""The images: scikit-learn's digits, which it ships, or a folder of classes like ImageNet's."""

import os
from collections.abc import Iterator

import torch
from sklearn.datasets import load_digits

import examples.torchvision_import  # noqa: F401
from torchvision import datasets, transforms

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet's red, green and blue


class Digits:
    """1,797 grey images of 8x8; every fifth is held out. Images are float32 [count, 1, 8, 8] of about unit variance."""

    classes, channels = 10, 1

    def __init__(self, args):
        digits = load_digits()
        images = (torch.from_numpy(digits.images).float().unsqueeze(1) - 4.9) / 6.0
        labels = torch.from_numpy(digits.target).long()
        held_out = torch.arange(len(images)) % 5 == 0
        self.train = images[~held_out], labels[~held_out]
        self.test = images[held_out], labels[held_out]
        self.size = args.batch

    def batch(self, step: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """Random images, each shifted by up to one pixel, and their classes."""
        images, labels = self.train
        chosen = torch.randint(len(images), (self.size,), generator=generator)
        row, column = torch.randint(3, (2, self.size, 1, 1), generator=generator)
        padded = torch.nn.functional.pad(images[chosen, 0], (1, 1, 1, 1), value=-4.9 / 6.0)
        pixels = torch.arange(8)
        shifted = padded[torch.arange(self.size)[:, None, None], pixels[:, None] + row, pixels + column]
        return shifted.unsqueeze(1), labels[chosen]

    def held_out(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """All held-out images in batches of one size, the last of which may be smaller."""
        yield from zip(*(part.split(128) for part in self.test))


class Seeded(torch.utils.data.Dataset):
    """A data set whose key also says the seed of the random augmentation: workers and resumed runs see the same."""

    def __init__(self, dataset):
        self.dataset = dataset

    def __getitem__(self, key: tuple[int, int]):
        index, seed = key
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.dataset[index]

    def __len__(self):
        return len(self.dataset)


class Order(torch.utils.data.Sampler):
    """Endless batches of keys for `Seeded`: a function of the seed and the step alone, so any step can be the first."""

    def __init__(self, count: int, batch: int, seed: int, first: int):
        self.count, self.batch, self.seed, self.first = count, batch, seed, first

    def __iter__(self):
        per_epoch, step = max(1, self.count // self.batch), self.first
        while True:
            epoch = torch.Generator().manual_seed(self.seed + step // per_epoch)
            order = torch.randperm(self.count, generator=epoch).tolist()
            for index in range(step % per_epoch, per_epoch):
                chosen = order[index * self.batch : (index + 1) * self.batch]
                yield [(key, self.seed + step * self.batch + place) for place, key in enumerate(chosen)]
                step += 1


class Folder:
    """FOLDER/train/CLASS/*.jpg and FOLDER/val/CLASS/*.jpg; images become float32 [count, 3, size, size]."""

    channels = 3

    def __init__(self, args):
        size = args.image_size
        augment = [transforms.RandomResizedCrop(size), transforms.RandomHorizontalFlip()]
        centre = [transforms.Resize(size * 8 // 7), transforms.CenterCrop(size)]
        convert = [transforms.ToTensor(), transforms.Normalize(MEAN, DEVIATION)]
        self.args, self.stream = args, None
        self.train, self.test = (
            datasets.ImageFolder(os.path.join(args.images, part), transforms.Compose(steps + convert))
            for part, steps in (("train", augment), ("val", centre)))
        self.classes = len(self.train.classes)

    def batch(self, step: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """The images of this step, which follows the last one asked for, and their classes."""
        if self.stream is None:
            order = Order(len(self.train), min(self.args.batch, len(self.train)), self.args.seed, step)
            self.stream = iter(torch.utils.data.DataLoader(Seeded(self.train), batch_sampler=order,
                                                           num_workers=self.args.workers))
        return next(self.stream)

    def held_out(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        yield from torch.utils.data.DataLoader(self.test, self.args.batch, num_workers=self.args.workers)

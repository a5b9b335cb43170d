"""Every size of the measured models, in one place. Nothing is changed here to flatter a peer."""

from types import SimpleNamespace

GPT = SimpleNamespace(layers=4, width=256, heads=8, context=128, batch=8, vocabulary=1000)
MLP = SimpleNamespace(layers=3, width=512, batch=64)
RESNET = SimpleNamespace(batch=8, size=64, classes=100, stages=(64, 128, 256, 512))  # ResNet-18 with the 7x7 stem
UNET = SimpleNamespace(batch=4, size=64, channels=(32, 64, 128, 256), classes=4)
DLRM = SimpleNamespace(batch=512, tables=26, rows=10_000, width=64, dense=13, bottom=(512, 256, 64), top=(512, 256, 1))
LLAMA = SimpleNamespace(layers=8, width=512, heads=8, key_heads=2, hidden=1408, vocabulary=4096, prompt=256, tokens=64)

SCALARS = 100  # different Python numbers
VALUES = 64  # different sizes or places
PLACES = 8  # different indices

# 64 sequence lengths between 1 and 128, in a fixed order.
LENGTHS = [
    5, 123, 37, 88, 64, 2, 101, 77, 19, 120, 46, 9, 93, 58, 31, 112, 70, 14, 125, 83, 26, 99, 41, 7, 117, 66, 52, 90,
    22, 108, 34, 80, 12, 96, 60, 48, 127, 3, 73, 104, 29, 86, 55, 17, 114, 44, 91, 68, 10, 121, 38, 79, 24, 106, 62, 50,
    98, 15, 110, 33, 75, 6, 118, 84]  # fmt: skip
LENGTHS_BATCH = 4

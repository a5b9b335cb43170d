"""Imported before torchvision, or what imports it, where torch may have no CUDA.

The wheels of torchvision on PyPI are built for CUDA. Beside a torch without it their C++ operators cannot load, and
then the import itself fails, because it describes two of them. Models, transforms and data sets are Python and need
none of the operators: with the two schemas declared here, they work.
"""

import torch

try:
    import torchvision  # noqa: F401
except RuntimeError:
    operators = torch.library.Library("torchvision", "FRAGMENT")
    operators.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    operators.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import torchvision  # noqa: F401

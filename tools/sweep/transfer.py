"""Moving the arguments of a sample to a device, and its results back."""
import torch
from torch.utils._pytree import tree_flatten, tree_map

DEVICE = "tpu"


def copy_to(device):
    """A function that copies a tensor to `device` with its strides, and renames the CPU where it is an argument."""

    def copy(value):
        if isinstance(value, torch.device) or (isinstance(value, str) and value == "cpu"):
            return torch.device(device)
        if not isinstance(value, torch.Tensor) or value.device.type == "meta":
            return value
        source = value.detach()
        plain = source.layout == torch.strided and not source.is_conj() and not source.is_neg()
        if not plain or source.is_contiguous():
            result = source.to(device, copy=True)
        else:
            count = source.untyped_storage().nbytes() // source.element_size()
            memory = source.as_strided((count,), (1,), 0).to(device, copy=True)
            result = memory.as_strided(source.size(), source.stride(), source.storage_offset())
        return result.requires_grad_(value.requires_grad)

    return copy


def arguments_on(device, sample):
    """(input, args, kwargs) of a sample, copied to `device`."""
    return tree_map(copy_to(device), (sample.input, list(sample.args), sample.kwargs))


def tensors_in(tree):
    """The tensors of a tree, in order."""
    return [leaf for leaf in tree_flatten(tree)[0] if isinstance(leaf, torch.Tensor)]


def to_cpu(tree):
    """The tree with its tensors detached and on the CPU."""
    return tree_map(lambda v: v.detach().cpu() if isinstance(v, torch.Tensor) else v, tree)

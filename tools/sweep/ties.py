"""What operators that choose among equal elements give when they keep the order of appearance.

Without stable=True torch defines no order of equal elements. The CPU's is that of its sorting algorithm; ours is the
stable one, which the CPU computes by torch.sort(stable=True). Its results and gradients judge ours.
"""
import torch


def stable_sort(x, dim=-1, descending=False, stable=True):
    del stable
    return torch.sort(x, dim=dim, descending=descending, stable=True)


def argsort(x, dim=-1, descending=False, stable=True):
    return stable_sort(x, dim, descending, stable)[1]


def msort(x):
    return stable_sort(x, 0)[0]


def topk(x, k, dim=-1, largest=True, sorted=True):  # noqa: A002
    del sorted
    return tuple(result.narrow(dim, 0, k) for result in stable_sort(x, dim, largest))


def kthvalue(x, k, dim=-1, keepdim=False):
    results = [result.narrow(dim, k - 1, 1) for result in stable_sort(x, dim)]
    return tuple(result if keepdim else result.squeeze(dim) for result in results)


def mode(x, dim=-1, keepdim=False):
    """The last position of the value that torch.mode finds."""
    values = torch.mode(x, dim, True)[0].detach()
    places = torch.arange(x.size(dim)).view([-1 if i == dim % x.dim() else 1 for i in range(x.dim())])
    indices = torch.where(x.detach() == values, places, 0).amax(dim, keepdim=True)
    results = x.gather(dim, indices), indices
    return tuple(result if keepdim else result.squeeze(dim) for result in results)


STABLE = {"sort": stable_sort, "argsort": argsort, "msort": msort, "topk": topk, "kthvalue": kthvalue, "mode": mode}

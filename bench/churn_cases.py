"""Programs that change a number, an index or a size from call to call, and how many compilations that takes."""

import torch

from bench import shapes


def _grown(device, size, values):
    """A cache that grows by a row at a time."""
    cache, row = torch.zeros(0, size, device=device), torch.ones(1, size, device=device)
    yield
    for _ in values:
        cache = torch.cat([cache, row])
        yield cache.sum().item()


def _each(call):
    """A case that calls `call(x, value)` with one tensor; the result is read."""

    def case(device, size, values):
        x = torch.arange(float(size), device=device)
        yield  # from here on compilations count
        for value in values:
            yield call(x, value).cpu()

    return case


def _written(cache, place):
    """A row of a cache of keys is written."""
    cache = cache.view(-1, 2)
    cache[place] = cache[place] + 1
    return cache.sum()


def _assigned(x, place):
    x[place] = 2.5
    return x.sum()


# name -> (case, how many values, the greatest number of compilations after the first value, and in all)
CASES = {
    "x * number": (_each(lambda x, value: x * (value + 0.5)), shapes.SCALARS, 0, None),
    "x[k]": (_each(lambda x, value: x[value]), shapes.PLACES, 0, None),
    "x[k] = v": (_each(_assigned), shapes.PLACES, 0, None),
    "x.uniform_(0, k)": (_each(lambda x, value: x.uniform_(0, value + 1)), shapes.PLACES, 0, None),
    "(x[:k] * 2).sum()": (_each(lambda x, value: (x[: value + 1] * 2).sum()), shapes.VALUES, None, 7),
    "nonzero": (_each(lambda x, value: (x <= value).nonzero()), shapes.VALUES, None, 7),
    "x[mask]": (_each(lambda x, value: x[x <= value]), shapes.VALUES, None, 7),
    "cache written at t": (_each(_written), shapes.VALUES, None, 7),
    "cache grown by cat": (_grown, shapes.VALUES, None, 7),
}


def compilations(name, device="tpu"):
    """How many programs a case compiles: (after its first value, in all)."""
    case, count, _, _ = CASES[name]
    compiles, size = [], 128 + 2 * list(CASES).index(name)  # of its own: cases share no programs
    for _ in case(device, size, range(count)):
        torch.tpu.synchronize()
        compiles.append(torch.tpu.counters()["compiles"])
    return compiles[-1] - compiles[1], compiles[-1] - compiles[0]


def all_compilations(peer):
    """name -> compilations(name)."""
    return {name: compilations(name, peer.device) for name in CASES}

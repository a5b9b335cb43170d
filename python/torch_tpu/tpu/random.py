"""Random numbers of the device: generators with a (seed, offset) state of 16 bytes."""

from collections.abc import Iterable

import torch

from torch_tpu import _C


def _generator(device) -> torch.Generator:
    from torch_tpu.tpu import _get_device_index

    return _C.default_generator(_get_device_index(device))


def _generators() -> list[torch.Generator]:
    return [_C.default_generator(i) for i in range(_C.device_count())]


def manual_seed(seed: int) -> None:
    """Seeds the current device's generator."""
    _generator(None).manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seeds every device's generator."""
    for generator in _generators():
        generator.manual_seed(int(seed))


def seed() -> None:
    """Seeds the current device's generator with a random number."""
    _generator(None).seed()


def seed_all() -> None:
    """Seeds every device's generator with one random number."""
    generators = _generators()
    if generators:
        number = generators[0].seed()
        for generator in generators[1:]:
            generator.manual_seed(number)


def initial_seed() -> int:
    """The seed of the current device's generator."""
    return _generator(None).initial_seed()


def get_rng_state(device="tpu") -> torch.Tensor:
    """The generator's state: 16 bytes on the CPU (uint64 seed, int64 offset)."""
    return _generator(device).get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    """The states of all devices."""
    return [generator.get_state() for generator in _generators()]


def set_rng_state(new_state: torch.Tensor, device="tpu") -> None:
    """Restores what get_rng_state returned."""
    _generator(device).set_state(new_state.cpu().clone(memory_format=torch.contiguous_format))


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Restores what get_rng_state_all returned."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)

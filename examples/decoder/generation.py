"""Continues prompts token by token, with keys and values kept on the device."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from examples.decoder.model import Cache, Decoder


@dataclass
class Sampling:
    """How the next token is chosen: the likeliest at temperature 0, else drawn from what top_k and top_p leave."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0

    def choose(self, logits: torch.Tensor) -> torch.Tensor:
        """Token ids [batch] for logits [batch, vocabulary]."""
        if self.temperature == 0:
            return logits.argmax(-1)
        logits = logits.float() / self.temperature
        if self.top_k:
            least = logits.topk(min(self.top_k, logits.shape[-1])).values[:, -1:]
            logits = logits.masked_fill(logits < least, -torch.inf)
        if self.top_p < 1:
            ordered, order = logits.sort(descending=True)
            before = ordered.softmax(-1).cumsum(-1) - ordered.softmax(-1)  # the likeliest always stays
            ordered = ordered.masked_fill(before > self.top_p, -torch.inf)
            logits = torch.empty_like(logits).scatter(1, order, ordered)
        return torch.multinomial(logits.softmax(-1), 1).squeeze(1)


@torch.no_grad()
def stream(model: Decoder, prompts: list[list[int]], count: int, sampling: Sampling = Sampling(),
           compiled: bool = False) -> Iterator[list[int | None]]:
    """Yields, `count` times at most, the next token of each prompt; None behind a token that ends the text.

    Prompts may differ in length: they stand left in one batch, whose width is a multiple of 64, and each row writes
    over its padding. prompts: lists of at least one token id.
    """
    device, lengths = model.lm_head.weight.device, [len(prompt) for prompt in prompts]
    if not prompts or not min(lengths):
        raise ValueError("a prompt has at least one token")
    width = -(-max(lengths) // 64) * 64
    capacity = -(-max(max(lengths) + count, width) // 64) * 64
    ids = torch.tensor([prompt + [0] * (width - len(prompt)) for prompt in prompts]).to(device)
    positions = torch.tensor(lengths).to(device)
    cache = Cache(model.config, len(prompts), capacity, device, model.lm_head.weight.dtype)
    everywhere = torch.arange(width, device=device).expand(len(prompts), -1)
    tokens = sampling.choose(model(ids, everywhere, cache, positions - 1))

    def step(tokens, positions):
        logits = model(tokens[:, None], positions[:, None], cache).squeeze(1)
        return sampling.choose(logits), positions + 1

    step, ended = torch.compile(step) if compiled else step, [False] * len(prompts)
    for remaining in reversed(range(count)):
        chosen = tokens.tolist()
        yield [None if end else token for token, end in zip(chosen, ended)]
        ended = [end or token in model.config.end_tokens for token, end in zip(chosen, ended)]
        if all(ended) or not remaining:
            return
        tokens, positions = step(tokens, positions)


def generate(model: Decoder, prompts: list[list[int]], count: int, sampling: Sampling = Sampling()) -> list[list[int]]:
    """What `stream` yields, as one list of tokens for each prompt."""
    steps = list(stream(model, prompts, count, sampling))
    return [[step[row] for step in steps if step[row] is not None] for row in range(len(prompts))]

"""What the peers in torch do: "tpu" and "tpu compiled" on our device, "cpu" and "inductor" on the CPU."""

import torch

from bench import models, pointwise, shapes, weights
from bench.decoder import Llama
from bench.work import Work

OPERATIONS = 1000  # of a dispatch row


class Peer:
    """A device and a compiler."""

    def __init__(self, name):
        self.device = "tpu" if name.startswith("tpu") else "cpu"
        self.backend = {"tpu compiled": "tpu", "inductor": "inductor"}.get(name)

    def work(self, row):
        """The Work of a row such as "training.gpt"."""
        group, name = row.split(".")
        if self.device == "tpu":
            torch.tpu.set_mode("strict" if row == "dispatch.strict" else "fused")
        return _WORKS[group](self, name)

    def compile(self, function):
        """The function, compiled if that is what the peer does."""
        return torch.compile(function, backend=self.backend) if self.backend else function

    def synchronize(self):
        """Waits for the device."""
        if self.device == "tpu":
            torch.tpu.synchronize()

    def counts(self):
        """Compilations, and programs run."""
        if self.device != "tpu":
            return {"compiles": 0, "programs": 0}
        counters = torch.tpu.counters()
        return {"compiles": counters["compiles"], "programs": counters["programs_run"],
                "modules": counters["modules_emitted"]}

    def device_peak_bytes(self):
        """The most bytes on the device; None on the CPU."""
        return torch.tpu.max_memory_allocated() if self.device == "tpu" else None

    def forward(self):
        """A function from a sequence length to one of the GPT's logits there."""
        model = load(models.GPT(), "gpt").to(self.device)
        tokens = torch.from_numpy(weights.sequences())
        compiled = self.compile(model)

        @torch.no_grad()
        def call(length):
            return compiled(tokens[:, :length].contiguous().to(self.device))[0, -1, 7].item()

        return call


def load(model, name):
    """The model with its first weights."""
    model.load_state_dict({key: torch.from_numpy(array) for key, array in weights.weights_of(name).items()})
    return model


def _record(x):
    """Operations whose results nobody reads: what recording one costs."""
    for _ in range(OPERATIONS):
        x + x


def _chain(x):
    y = x
    for _ in range(OPERATIONS):
        y = y + x
    return y


def _dispatch(peer, name):
    x, one = torch.ones(8, 8, device=peer.device), torch.ones(1, device=peer.device)

    def chain():
        _chain(x)
        peer.synchronize()

    def items():
        for _ in range(OPERATIONS):
            one.item()

    runs = {"record": lambda: _record(x), "strict": chain, "chain": lambda: _chain(x)[0, 0].item(), "item": items}
    return Work(runs[name], lambda: [_chain(x)[0, 0].item()], units=OPERATIONS)


def _pointwise(peer, name):
    x = torch.linspace(-1, 1, pointwise.SIZES[name], device=peer.device)
    chain = peer.compile(pointwise.chain)

    def run():
        result = chain(x)
        peer.synchronize()
        return result

    return Work(run, lambda: run()[:: x.numel() // 16].tolist())


def _training(peer, name):
    model = load(models.MODELS[name](), name).to(peer.device).train()
    optimizer = models.optimizer_of(name, model.parameters())
    batch = [torch.from_numpy(array).to(peer.device) for array in weights.batch_of(name)]
    loss_of, update = peer.compile(model.loss), peer.compile(optimizer.step)

    def step():
        loss = loss_of(*batch)
        loss.backward()
        update()
        optimizer.zero_grad()
        peer.synchronize()
        return loss.detach()

    return Work(step, lambda: (step().item() for _ in range(4)))


def _decode(peer, name):
    model = load(Llama(), "llama").to(peer.device)
    prompt = torch.from_numpy(weights.prompt()).to(peer.device)
    places, caches = torch.arange(shapes.LLAMA.prompt, device=peer.device), model.caches()

    @torch.no_grad()
    def following(tokens, places):
        return model(tokens, places, *caches).argmax(-1, keepdim=True), places[-1:] + 1

    following = peer.compile(following)

    def prefill():
        result = following(prompt, places)
        peer.synchronize()
        return result

    start = prefill()

    def decode():
        state, tokens = start, []
        for _ in range(shapes.LLAMA.tokens):
            state = following(*state)
            tokens.append(state[0])
        peer.synchronize()
        return tokens

    @torch.no_grad()
    def logits():
        return model(prompt, places, *model.caches())[0, ::64].tolist()

    if name == "prefill":
        return Work(prefill, logits)
    return Work(decode, lambda: [token.item() for token in decode()], units=shapes.LLAMA.tokens)


_WORKS = {"dispatch": _dispatch, "pointwise": _pointwise, "training": _training, "decode": _decode}

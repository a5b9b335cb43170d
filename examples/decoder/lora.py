"""Low-rank adapters: y = W x + (alpha / rank) B A x, in which only A and B are trained."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn


class Adapter(nn.Module):
    """A linear layer whose weight stays and whose low-rank update is trained. B starts at zero."""

    def __init__(self, base: nn.Linear, rank: int, alpha: float):
        super().__init__()
        self.base, self.rank, self.alpha = base.requires_grad_(False), rank, alpha
        place = {"device": base.weight.device, "dtype": base.weight.dtype}
        self.lora_A = nn.Linear(base.in_features, rank, bias=False, **place)
        self.lora_B = nn.Linear(rank, base.out_features, bias=False, **place)
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, x):
        return self.base(x) + self.lora_B(self.lora_A(x)) * (self.alpha / self.rank)

    @torch.no_grad()
    def merged(self) -> nn.Linear:
        """The base with the update added to its weight."""
        self.base.weight += self.lora_B.weight @ self.lora_A.weight * (self.alpha / self.rank)
        return self.base


def add(model: nn.Module, rank: int, alpha: float, targets=("q_proj", "v_proj")) -> nn.Module:
    """Freezes the model and puts adapters on the linear layers of these names."""
    model.requires_grad_(False)
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if name in targets:
                setattr(module, name, Adapter(child, rank, alpha))
    return model


def merge(model: nn.Module) -> nn.Module:
    """Puts plain layers in the adapters' place."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, Adapter):
                setattr(module, name, child.merged())
    return model


def save(model: nn.Module, folder) -> None:
    """Writes the adapters as `peft` reads them: adapter_config.json and adapter_model.safetensors."""
    adapters = {name: module for name, module in model.named_modules() if isinstance(module, Adapter)}
    weights = {f"base_model.model.{name}.{part}.weight": getattr(module, part).weight.detach().cpu().contiguous()
               for name, module in adapters.items() for part in ("lora_A", "lora_B")}
    first, folder = next(iter(adapters.values())), Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    config = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": first.rank, "lora_alpha": first.alpha,
              "target_modules": sorted({name.rpartition(".")[2] for name in adapters}), "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n")

"""Quotients are rounded once, as the CPU's are, whatever else a program computes and however the divisor comes."""
import pytest
import torch

QUOTIENTS = {
    "number": lambda x, y: x / 49,
    "element": lambda x, y: x / y[0],
    "rows": lambda x, y: x.view(64, 64) / y[:64].view(64, 1),
    "columns": lambda x, y: x.view(64, 64) / y[:64],
    "elements": lambda x, y: x / y,
    "own maximum": lambda x, y: x / x.max(),
    "quotients": lambda x, y: (x / 3) / (y / 7),
    "large quotients": lambda x, y: x * 1e35 / (x * 1e35 / y),
    "large divisors": lambda x, y: x * 1e-20 / (y * 1e-20) / 1e-30,
    "reciprocals": lambda x, y: 1 / y.reciprocal(),
    "floors": lambda x, y: torch.floor(x / 49) + torch.floor_divide(x, 7),
    "list": lambda x, y: torch._foreach_div([x, y], 49.0),
    "addcdiv": lambda x, y: torch.addcdiv(x * 0, x, y[:1]),
    "histogram": lambda x, y: torch.histc(x, 5, 0, 100),
}


@pytest.mark.parametrize("name", QUOTIENTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_quotients_equal_the_cpu(name, dtype):
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randint(1, 1000, (4096,), generator=generator).to(dtype) for _ in range(2))
    torch.testing.assert_close(QUOTIENTS[name](x.tpu(), y.tpu()), QUOTIENTS[name](x, y), rtol=0, atol=0,
                               check_device=False)

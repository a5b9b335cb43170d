"""Convolutions large enough that the CPU platform leaves them to torch's own library: values and gradients."""
import pytest
import torch

# name: shapes of input and weights, and the arguments of aten::convolution
CASES = {
    "square": ((4, 16, 16, 16), (32, 16, 3, 3), {"padding": 1}),
    "strided": ((4, 16, 17, 19), (32, 16, 3, 5), {"padding": (1, 2), "stride": (2, 3)}),
    "dilated": ((3, 16, 24, 24), (16, 16, 3, 3), {"padding": 2, "dilation": (2, 3)}),
    "one_image": ((1, 32, 32, 32), (48, 32, 3, 3), {"padding": 1}),
    "many_weights": ((2, 128, 4, 4), (160, 128, 3, 3), {"padding": 1}),
    "odd_channels": ((5, 3, 40, 40), (7, 3, 7, 7), {"stride": 2, "padding": 3}),
    "one_channel": ((2, 1, 64, 64), (24, 1, 5, 5), {}),
    "line": ((4, 32, 200), (48, 32, 5), {"padding": 2}),
    "volume": ((2, 8, 9, 10, 11), (16, 8, 3, 3, 3), {"padding": 1, "stride": (1, 2, 1)}),
}
FUNCTIONS = {3: torch.nn.functional.conv1d, 4: torch.nn.functional.conv2d, 5: torch.nn.functional.conv3d}


def results(function, inputs, device, **options):
    """The result and the gradients of all inputs."""
    leaves = [tensor.detach().to(device).requires_grad_() for tensor in inputs]
    y = function(*leaves, **options)
    y.backward(torch.randn(y.shape, generator=torch.Generator().manual_seed(1)).to(device))
    return [y.detach().cpu()] + [leaf.grad.cpu() for leaf in leaves]


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name):
    x_shape, weight_shape, options = CASES[name]
    inputs = [torch.randn(x_shape), torch.randn(weight_shape) / 8, torch.randn(weight_shape[0])]
    function = FUNCTIONS[len(x_shape)]
    found = results(function, inputs, "tpu", **options)
    for one, other in zip(found, results(function, inputs, "cpu", **options)):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-3)


def test_transposed():
    inputs = [torch.randn(4, 32, 12, 12), torch.randn(32, 16, 3, 3) / 8, torch.randn(16)]
    for options in {"stride": 2, "padding": 1, "output_padding": 1}, {"dilation": 2}:
        found = results(torch.nn.functional.conv_transpose2d, inputs, "tpu", **options)
        for one, other in zip(found, results(torch.nn.functional.conv_transpose2d, inputs, "cpu", **options)):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-3)


def test_layouts_and_second_gradients():
    x, w = torch.randn(4, 16, 16, 16), torch.randn(32, 16, 3, 3) / 8
    x = x.to(memory_format=torch.channels_last)
    penalties = []
    for device in "tpu", "cpu":
        a, b = x.to(device).requires_grad_(), w.to(device).requires_grad_()
        y = torch.nn.functional.conv2d(a, b, padding=1)
        gradients = torch.autograd.grad(y.square().mean(), (a, b), create_graph=True)
        sum(gradient.square().sum() for gradient in gradients).backward()
        penalties.append([y.detach().cpu(), a.grad.cpu(), b.grad.cpu()])
    for found, expected in zip(*penalties):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_infinities_and_nans():
    x = torch.randn(2, 16, 24, 24)
    x[0, 3, 5, 5], x[1, 2, 20, 1] = float("nan"), float("inf")
    w = torch.randn(16, 16, 3, 3)
    found = torch.nn.functional.conv2d(x.tpu(), w.tpu(), padding=1).cpu()
    torch.testing.assert_close(found, torch.nn.functional.conv2d(x, w, padding=1), rtol=1e-4, atol=1e-3, equal_nan=True)

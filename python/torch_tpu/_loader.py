"""Registers device "tpu" with torch. Called by `import torch` through the entry point group
`torch.backends`; must never raise, because torch would then refuse to be imported."""

import sys
import warnings

SUPPORTED_TORCH = "2.13."

_state = {"loaded": False, "error": None}


def load() -> bool:
    """Registers the device once. Returns False, after one warning, where that is impossible."""
    if _state["loaded"] or _state["error"] is not None:
        return _state["loaded"]
    try:
        _register()
        _state["loaded"] = True
    except Exception as error:  # noqa: BLE001  an exception here would break `import torch`
        _state["error"] = error
        warnings.warn(f"device 'tpu' is not available: {error}", RuntimeWarning, stacklevel=2)
    return _state["loaded"]


def error() -> Exception | None:
    """Why load() failed, or None."""
    return _state["error"]


def _register():
    import torch

    if not torch.__version__.startswith(SUPPORTED_TORCH):
        raise RuntimeError(f"torch_tpu was built for torch {SUPPORTED_TORCH}*, but torch {torch.__version__} is installed")
    from torch_tpu import _C, plugins

    _C.configure(plugins.cpu_plugins(), plugins.libtpu())
    torch.utils.rename_privateuse1_backend("tpu")
    _C.register_kernels()

    from torch_tpu import backends, distributed, import_hook, tpu

    torch._register_device_module("tpu", tpu)
    sys.modules["torch.tpu"] = tpu
    torch.backends.tpu = backends
    sys.modules["torch.backends.tpu"] = backends
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
    # Lazily initialised modules may move before their parameters exist.
    torch.nn.parameter.UninitializedTensorMixin._allowed_methods.append(torch.Tensor.tpu)
    torch.set_autocast_dtype("tpu", torch.bfloat16)
    import_hook.when_imported("torch.distributed.distributed_c10d", distributed.register)
    import_hook.when_imported("torch._dynamo.backends.registry", _set_default_backend)
    import_hook.when_imported("torch.nn.modules.linear_cross_entropy_options", _accumulate_in_float32)


def _set_default_backend(registry):
    # torch.compile without a backend: Inductor knows no tpu, so graphs on tpu come to us and all
    # others go on to Inductor. Dynamo costs seconds to import, hence only when somebody needs it.
    def default(graph_module, example_inputs, **kwargs):
        from torch_tpu import dynamo

        return dynamo.default(graph_module, example_inputs, **kwargs)

    registry.set_default_backend(default)


def _accumulate_in_float32(options):
    # linear_cross_entropy accumulates half precision in float32 on the devices that it knows by name.
    import torch

    defaults, chosen = options._AUTO_DEFAULTS, options.LinearCrossEntropyOptions._resolve_auto_acc_dtype
    for dtype in (torch.bfloat16, torch.float16):
        defaults["tpu", dtype] = defaults["cpu", dtype]

    def choose(dtype, device):
        return chosen(dtype, torch.device("cpu") if device is not None and device.type == "tpu" else device)

    options.LinearCrossEntropyOptions._resolve_auto_acc_dtype = staticmethod(choose)

"""Plugins that are absent, broken or old, and a torch of another release: `import torch` works, using the device raises
one clear sentence, and nothing aborts."""
import os
import shutil
import sys
from pathlib import Path

import pytest
from processes import run_python

ROOT = Path(__file__).resolve().parents[2]

USE = """
import torch
assert torch.ones(2).sum().item() == 2
assert isinstance(torch.tpu.is_available(), bool) and not torch.tpu.is_initialized()
torch.manual_seed(0)
for use in (lambda: torch.ones(2, device="tpu"), lambda: torch.zeros(2).to("tpu"), torch.tpu.init,
            torch.tpu.get_device_name, torch.tpu.synchronize):
    try:
        use()
        print("no exception")
    except (RuntimeError, torch.OutOfMemoryError) as error:
        print(str(error).split("\\nException raised from")[0].strip())
assert torch.ones(2).sum().item() == 2
"""


def the_sentence(result):
    """The message of each way to use the device; they must be the same one line."""
    messages = result.check().split("\n")
    assert "no exception" not in messages
    assert len(set(messages[:5])) == 1, messages
    assert "Traceback" not in result.err
    return messages[0]


def elf_file(path, size):
    """The first `size` bytes of a real library."""
    import torch_tpu._C

    path.write_bytes(Path(torch_tpu._C.__file__).read_bytes()[:size])
    return path


def write_plugin(kind, path):
    if kind == "missing":
        return path
    if kind == "folder":
        path.mkdir()
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "text":
        path.write_text("version https://git-lfs.github.com/spec/v1\n")
    elif kind == "corrupt":
        path.write_bytes(b"\x7fELF" + bytes(5000))
    elif kind == "truncated":
        elf_file(path, 20_000)
    elif kind == "another library":
        import _ctypes

        shutil.copy(_ctypes.__file__, path)
    return path


@pytest.mark.parametrize("kind, words", [
    ("missing", "there is no PJRT plugin at"),
    ("folder", "there is no PJRT plugin at"),
    ("empty", "cannot load the PJRT plugin"),
    ("text", "cannot load the PJRT plugin"),
    ("corrupt", "cannot load the PJRT plugin"),
    ("truncated", "cannot load the PJRT plugin"),
    ("another library", "is not a PJRT plugin"),
])
def test_broken_plugin(forked, tmp_path, kind, words):
    path = write_plugin(kind, tmp_path / "plugin.so")
    sentence = the_sentence(forked(USE, {"TORCH_TPU_PJRT_PLUGIN": str(path)}))
    assert words in sentence and str(path) in sentence


def fake_plugin():
    """The plugin that the C++ tests build, if they were built."""
    if given := os.environ.get("TORCH_TPU_FAKE_PLUGIN"):
        return Path(given)
    for name in ("libfake_plugin.so", "fake_plugin.so"):
        for path in (ROOT / "build").rglob(name):
            return path
    return None


@pytest.mark.parametrize("settings, words", [
    ({"FAKE_PJRT_MINOR": "3"}, "implements PJRT 0.3"),
    ({"FAKE_PJRT_FAIL": "compile"}, ""),
    ({"FAKE_PJRT_FAIL": "execute"}, ""),
    ({"FAKE_PJRT_FAIL": "oom"}, ""),
])
def test_fake_plugin(forked, settings, words):
    path = fake_plugin()
    if path is None:
        pytest.skip("the fake plugin is not built: make build-tests")
    result = forked("""
        try:
            print((torch.ones(2, device="tpu") + 1).tolist())
        except (RuntimeError, torch.OutOfMemoryError) as error:
            print(type(error).__name__, error)
    """, {"TORCH_TPU_PJRT_PLUGIN": str(path), **settings})
    message = result.check()
    assert "Error" in message and words in message
    if settings.get("FAKE_PJRT_FAIL") == "oom":
        assert message.startswith("OutOfMemoryError")


def test_no_plugin_installed():
    """None in sys.modules: what find_spec() sees in an environment without the wheels."""
    hide = "import sys\nsys.modules.update(dict.fromkeys(%r))\n"
    show = "print(torch.tpu.device_count(), torch.tpu.is_available(), torch.accelerator.is_available())\n"
    wheels = ["lammps_jax_pjrt_cpu", "fastatomstruct_xla_cpu", "xla_plugins", "libtpu"]
    result = run_python(hide % (wheels,) + USE + show)
    sentence = the_sentence(result)
    assert "no PJRT plugin is installed" in sentence and "pip install" in sentence
    assert result.out.strip().endswith("0 False False")
    assert result.err == ""


def test_plugin_whose_package_is_broken():
    """find_spec() raises for a package that is half removed."""
    result = run_python("""
        import sys, types
        broken = types.ModuleType("lammps_jax_pjrt_cpu")
        broken.__spec__ = None
        sys.modules["lammps_jax_pjrt_cpu"] = broken
        import torch
        print(torch.ones(2).sum().item())
    """)
    assert result.check() == "2.0"


def test_another_release_of_torch():
    """The package of a later torch: torch works, with one warning, and tpu does not."""
    result = run_python("""
        import os
        os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
        import torch, warnings
        torch.__version__ = "2.99.0"
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            from torch_tpu import _loader
            assert not _loader.load() and not _loader.load()
        assert len(caught) == 1, [str(w.message) for w in caught]
        assert "2.99.0" in str(caught[0].message) and "2.13" in str(caught[0].message)
        assert "2.99.0" in str(_loader.error())
        try:
            torch.ones(1, device="tpu")
        except RuntimeError as error:
            print("raised")
        assert torch.ones(1).item() == 1
    """)
    assert result.check() == "raised"


def test_extension_module_that_cannot_load(tmp_path):
    """A package without its extension module: `import torch` warns once and works."""
    import torch_tpu

    source = Path(torch_tpu.__file__).parent
    shutil.copytree(source, tmp_path / "torch_tpu", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    (tmp_path / "torch_tpu" / "_C.py").write_text("raise ImportError('undefined symbol: something')\n")
    # An import of its own comes first: the entry point then finds this package already imported.
    result = run_python("""
        import sys
        sys.meta_path = [finder for finder in sys.meta_path if "editable" not in repr(finder).lower()]
        import torch
        print(torch.ones(2).sum().item())
        try:
            torch.ones(1, device="tpu")
            print("no exception")
        except RuntimeError:
            print("raised")
    """, {"PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])})
    assert result.check() == "2.0\nraised"
    assert result.err.count("device 'tpu' is not available") == 1 and "undefined symbol" in result.err


def test_unknown_settings(forked):
    """A wrong value of a variable is a default or an exception, never an abort."""
    for name, value in [("TORCH_TPU_MODE", "quick"), ("TORCH_TPU_CPU_DEVICES", "many"),
                        ("TORCH_TPU_CUT_WINDOW", "-5"), ("TORCH_TPU_MEMORY_LIMIT_BYTES", "lots")]:
        result = forked("print((torch.ones(2, device='tpu') + 1).tolist())", {name: value})
        assert result.code in (0, 1), (name, result)
        assert result.out.strip() == "[2.0, 2.0]" or "Error" in result.err, (name, result)


def test_the_interpreter_is_ours():
    """The other tests here mean something only when the children load the same package."""
    import torch_tpu

    result = run_python("import torch_tpu, sys; print(torch_tpu.__file__, sys.version_info[:2])")
    assert result.check() == f"{torch_tpu.__file__} {sys.version_info[:2]}"

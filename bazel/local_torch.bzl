"""A repository rule: the Python interpreter and the torch package of this machine."""

_PROBE = """
import importlib.util, json, re, sys, sysconfig, tomllib
missing = [n for n in ("torch", "scikit_build_core", "numpy") if not importlib.util.find_spec(n)]
torch = "" if missing else importlib.util.find_spec("torch").submodule_search_locations[0]
version = torch and re.search("^__version__ = '(.*)'", open(torch + "/version.py").read(), re.MULTILINE)[1]
project = tomllib.load(open(sys.argv[1], "rb"))["project"]
tag = "cp%d%d" % sys.version_info[:2]
platform = sysconfig.get_platform().replace("-", "_")
print(json.dumps({
    "missing": missing,
    "python": sys.executable,
    "torch": torch,
    "torch_version": version,
    "wheel": "torch_tpu-%s-%s-%s-%s.whl" % (project["version"], tag, tag, platform),
}))
"""

def _local_torch(ctx):
    python = ctx.os.environ.get("TORCH_TPU_PYTHON") or ctx.which("python3")
    if not python:
        fail("no python3 on PATH and TORCH_TPU_PYTHON is not set")
    probe = ctx.execute([python, "-c", _PROBE, ctx.path(ctx.attr.pyproject)])
    if probe.return_code:
        fail("probing %s: %s" % (python, probe.stderr))
    found = json.decode(probe.stdout)
    if found["missing"]:
        fail("%s lacks %s: run %s -m pip install -r requirements-build.txt, or set TORCH_TPU_PYTHON" %
             (python, ", ".join(found["missing"]), python))
    ctx.file("BUILD")
    ctx.file("defs.bzl", "\n".join([
        "PYTHON = %r" % found["python"],
        "TORCH_DIR = %r" % found["torch"],
        "TORCH_VERSION = %r" % found["torch_version"],
        "WHEEL = %r" % found["wheel"],
        "",
    ]))

local_torch = repository_rule(
    implementation = _local_torch,
    attrs = {"pyproject": attr.label(allow_single_file = True)},
    environ = ["TORCH_TPU_PYTHON", "PATH"],
    local = True,
)

#!/usr/bin/env python3
"""Checks that a folder of src/ includes only the folders below it, as CMakeLists.txt declares them in layer(…) lines."""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
TORCH_HEADERS = {"ATen", "c10", "caffe2", "pybind11", "torch"}  # folders of torch's include/
C_API = "pjrt/pjrt_c_api.h"


def layers():
    """{layer: the layers it may include}; torch is on top of all of them."""
    declared = re.findall(r"^layer\(([\w ]+)\)", (ROOT / "CMakeLists.txt").read_text(), re.MULTILINE)
    below = {names[0]: set(names) for names in map(str.split, declared)}
    return {**below, "torch": {*below, "torch"}}


def problem(layer, allowed, bracket, header):
    folder = header.split("/")[0] if "/" in header else ""
    if header == C_API:
        return "" if layer == "pjrt" else "only src/pjrt calls PJRT"
    if bracket == "<" and folder in TORCH_HEADERS:
        return "" if layer == "torch" else "only src/torch includes torch's headers"
    if bracket == '"' and folder in TORCH_HEADERS - {"torch"}:
        return "torch's headers are included with <>"
    if bracket == '"' and folder not in allowed[layer] | {"", "tests"}:
        return f"{layer} may include only {', '.join(sorted(allowed[layer]))}"
    return ""


def check():
    allowed = layers()
    problems = []
    for layer in allowed:
        for path in sorted(p for top in ("src", "tests") for p in (ROOT / top / layer).rglob("*.[ch]*")):
            if path.suffix not in (".cc", ".h"):
                continue
            for number, line in enumerate(path.read_text().splitlines(), 1):
                include = INCLUDE.match(line)
                what = include and problem(layer, allowed, *include.groups())
                if what:
                    problems.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}: {what}")
    undeclared = [p.name for p in (ROOT / "src").iterdir() if p.is_dir() and p.name not in allowed]
    return problems + [f"src/{name}: no layer({name} …) in CMakeLists.txt" for name in sorted(undeclared)]


if __name__ == "__main__":
    found = check()
    print("\n".join(found))
    sys.exit(1 if found else 0)

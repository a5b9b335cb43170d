"""What the text of programs tells: StableHLO as it is given to the compiler, and the compiler's own dumps."""

import glob
import os
import re
from dataclasses import dataclass

BITS = {"i1": 8, "f8E4M3FN": 8, "f8E5M2": 8, "bf16": 16, "complex<f32>": 64, "complex<f64>": 128}
_COLLECTIVE = re.compile(r'"stablehlo\.(all_reduce|all_gather|reduce_scatter|all_to_all|collective_permute|'
                         r'collective_broadcast)"')
_TENSOR = re.compile(r"tensor<((?:\d+x)*)([^<>]+(?:<f\d+>)?)>")


def bytes_of(type_text: str) -> int:
    """Of "tensor<4x8xbf16>"."""
    dims, element = _TENSOR.match(type_text).groups()
    bits = BITS.get(element) or int(re.search(r"\d+$", element).group())
    for size in dims.split("x")[:-1]:
        bits *= int(size)
    return bits // 8


@dataclass
class _Statement:
    """One of a program's: its lines, from `begin` to before `end`, and what it defines."""

    begin: int
    end: int
    results: list[tuple[str, str]]  # (name, type)


def _statements(lines):
    """Of the main function, in order; those inside regions belong to the one around them."""
    statements, begin, depth = [], None, 0
    for number, line in enumerate(lines):
        if depth == 0 and line.startswith("%"):
            begin = number
        depth += line.count("({") - line.startswith("})")
        if begin is not None and depth == 0 and "-> " in line:
            types = [match[0] for match in _TENSOR.finditer(line, line.rindex("-> "))]
            name = re.match(r"%\d+", lines[begin])[0]
            names = [name] if len(types) == 1 else [f"{name}#{i}" for i in range(len(types))]
            statements.append(_Statement(begin, number + 1, list(zip(names, types))))
            begin = None
    return statements


def collectives(text: str) -> dict[str, tuple[int, int]]:
    """{"all_reduce": (how many, bytes of their results on one device)}"""
    found, lines = {}, text.splitlines()
    for statement in _statements(lines):
        if match := _COLLECTIVE.search(lines[statement.begin]):
            count, total = found.get(match[1], (0, 0))
            found[match[1]] = count + 1, total + sum(bytes_of(kind) for _, kind in statement.results)
    return found


def _prefix(lines, statements):
    """A module of the first statements, whose results are all values that none of them reads."""
    body = lines[2 : statements[-1].end]
    read = set(re.findall(r"%\d+(?:#\d+)?", "\n".join(line.partition(" = ")[2] or line for line in body)))
    results = [result for statement in statements for result in statement.results if result[0] not in read]
    names, types = ", ".join(name for name, _ in results), ", ".join(kind for _, kind in results)
    head = lines[1][: lines[1].rindex(" -> (")] + f" -> ({types}) {{"
    return "\n".join([lines[0], head, *body, f"return {names} : {types}", "}", "}"])


def first_refused(text: str, is_refused) -> str:
    """The operator of the first statement with which is_refused(module) holds, and the line of Python that it comes
    from; "" where that is no statement's fault. Halves the program again and again."""
    lines = text.splitlines()
    statements = _statements(lines)
    low, high = 0, len(statements)
    while low < high:
        middle = (low + high) // 2
        if is_refused(_prefix(lines, statements[: middle + 1])):
            high = middle
        else:
            low = middle + 1
    if low == len(statements):
        return ""
    return next((line[3:] for line in reversed(lines[: statements[low].end]) if line.startswith("// ")), "")


@dataclass
class Schedule:
    """What the compiler's dump of a program says of what is scheduled by itself, outside fusions."""

    cycles: int
    custom_calls: int  # that its sums count as -1
    loops: int


def schedule_of(folder: str) -> Schedule | None:
    """Of the program whose dumps (xla_dump_to) lie in the folder; None where the compiler wrote none."""
    paths = glob.glob(os.path.join(folder, "*after_codegen.txt"))
    if not paths:
        return None
    with open(max(paths, key=os.path.getsize), encoding="utf-8", errors="replace") as file:
        text = file.read()
    loops = re.findall(r" while\(.*?body=%?([\w.-]+)", text)
    scheduled = "".join(part for part in re.split(r"\n(?=(?:ENTRY )?%[^\n]*\{\n)", text)
                        if part.startswith("ENTRY") or part.split(" ")[0].lstrip("%") in loops)
    cycles = [int(number) for number in re.findall(r'"estimated_cycles":"(\d+)"', scheduled)]
    calls = [name for name in re.findall(r' custom-call\(.*?custom_call_target="(\w+)"', scheduled)
             if name != "AllocateBuffer"]
    return Schedule(sum(cycles), len(calls), len(loops))

"""Coverage of the failures that other systems had, checked mechanically: each id is in the docstring of a test."""

from __future__ import annotations

import ast
import re
from pathlib import Path

#: What this part of the system must hold. (The others come with the parts they touch.)
WANTED = [
    *(f"W{n}" for n in range(1, 17)),
    *(f"B{n}" for n in range(1, 10)),
    *(f"K{n}" for n in range(1, 9)),
    *(f"T{n}" for n in range(1, 12)),
    *(f"S{n}" for n in range(1, 29)),
    *(f"D{n}" for n in range(1, 32)),
    *("D33", "D34", "D35", "D36", "D37"),
]


def test_every_regression_of_this_part_is_named_by_a_test() -> None:
    named: set[str] = set()
    for file in Path(__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                named |= set(re.findall(r"\b[WBKTSD]\d+\b", ast.get_docstring(node) or ""))
    assert [i for i in WANTED if i not in named] == []

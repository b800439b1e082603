"""Every example in a docstring prints what it says."""

import ast
import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in sorted((ROOT / "h2o_theory").rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_print_what_they_say(name):
    found = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert found.attempted and not found.failed


def test_the_main_functions_have_examples():
    shown = {
        node.name
        for name in MODULES
        for node in ast.walk(ast.parse((ROOT / f"{name.replace('.', '/')}.py").read_text("utf-8")))
        if isinstance(node, ast.FunctionDef) and ">>> " in (ast.get_docstring(node) or "")
    }
    assert {"optimum_at", "check_certificate", "split_budget", "lazy_greedy", "refute"} <= shown

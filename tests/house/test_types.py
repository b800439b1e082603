"""Types: every public function says what it takes and returns, and tools see it."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted([*(ROOT / "h2o_theory").rglob("*.py"), *(ROOT / "paper_checks").glob("*.py")])

CLIENT = """\
import h2o_theory as ht

trace = ht.open_trace("made-up.trace")
ht.replay(trace, polices="h2o", budgets=3.7, workers="two")
"""


def public_functions(tree):
    """``(name, function)`` of the functions and public methods that ``__all__`` names."""
    exported = set()
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            exported = {
                item.value for item in ast.walk(node.value) if isinstance(item, ast.Constant)
            }
    for node in tree.body:
        if getattr(node, "name", None) not in exported:
            continue
        if isinstance(node, ast.FunctionDef) and not is_kernel(node):
            yield node.name, node
        if isinstance(node, ast.ClassDef):
            for item in node.body:
                public = isinstance(item, ast.FunctionDef) and not item.name.startswith("_")
                if public or getattr(item, "name", None) == "__init__":
                    if not is_kernel(item):
                        yield f"{node.name}.{item.name}", item


def is_kernel(function):
    """Compiled by numba, which infers the types from the arrays it is given."""
    decorators = " ".join(map(ast.unparse, function.decorator_list))
    return "njit" in decorators or "kernel(" in decorators


def is_annotated(function):
    given = function.args
    arguments = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    bare = [
        item.arg
        for place, item in enumerate(arguments)
        if item is not None
        and item.annotation is None
        and not (place == 0 and item.arg in ("self", "cls"))
    ]
    return not bare and (function.returns is not None or function.name == "__init__")


def room(path):
    parts = path.relative_to(ROOT).parts
    return parts[1].removesuffix(".py") if parts[0] == "h2o_theory" else parts[0]


def unannotated():
    """Names of public functions without full annotations, by room."""
    found = {}
    for path in MODULES:
        for name, function in public_functions(ast.parse(path.read_text())):
            if not is_annotated(function):
                found.setdefault(room(path), []).append(f"{path.name}: {name}")
    return found


PENDING = {
    "analysis", "engine", "experiments", "families", "figures", "live", "masks", "policies",
    "report", "sweep", "testing", "transforms", "paper_checks",
}  # fmt: skip
"""Rooms that are still to be annotated; nothing may be added."""


def test_every_public_function_is_annotated():
    found = unannotated()
    assert {name: what for name, what in found.items() if name not in PENDING} == {}


@pytest.mark.parametrize(
    "text, fine",
    [
        ("def f(a: int) -> int: ...", True),
        ("def f(a) -> int: ...", False),
        ("def f(a: int): ...", False),
        ("def f(*a: int, b: int, **c) -> int: ...", False),
        ("class f:\n    def m(self, a: int) -> int: ...", True),
        ("class f:\n    def m(self, a) -> int: ...", False),
        ("class f:\n    def __init__(self, a): ...", False),
        ("@kernel()\ndef f(a): ...", True),
    ],
)
def test_a_missing_annotation_is_found(text, fine):
    functions = list(public_functions(ast.parse(f"__all__ = ['f']\n{text}")))
    assert all(is_annotated(function) for _, function in functions) == fine


def test_a_client_is_told_of_its_mistakes(tmp_path):
    (tmp_path / "client.py").write_text(CLIENT)
    command = [sys.executable, "-m", "mypy", f"--config-file={ROOT / 'pyproject.toml'}"]
    found = subprocess.run(
        [*command, "--follow-imports=silent", f"--cache-dir={ROOT / '.mypy_cache'}", "client.py"],
        cwd=tmp_path,
        env={"MYPYPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert 'Unexpected keyword argument "polices"' in found.stdout, found.stdout + found.stderr
    if "engine" not in PENDING:
        assert '"workers"' in found.stdout and '"budgets"' in found.stdout

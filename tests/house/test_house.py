"""The house: imports go down only, the package is light to import, and tests assert something."""

import ast
import pydoc
import re
import resource
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "h2o_theory"
FLOORS = [
    {"errors", "families"},
    {"annotations", "dependencies", "kernels"},
    {"store"},
    {"attention", "optimum", "statistics"},
    {"submodular", "instances"},
    {"policies"},
    {"budgets", "costs"},
    {"engine"},
    {"testing", "masks"},
    {"trace"},
    {"recorder", "guarantee", "transforms"},
    {"analysis", "live", "sweep"},
    {"experiments"},
    {"figures"},
    {"report"},
    {"data", "traces"},
    {"paper_checks"},
    {"cli"},
    {"__main__"},
]
LIBRARIES = {"numpy", "numba", "h2o_theory", "collections", "dataclasses", "typing", "heapq"} | {
    "math",
    "operator",
    "types",
}
EXCEPTIONS = {"optimum/deadline.py": {"time"}}
"""What the pure mathematics may import, and the modules that may import more."""
FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
CHECKS = ROOT / "paper_checks"
MODULES = sorted([*PACKAGE.rglob("*.py"), *CHECKS.glob("*.py")])


def imported_rooms(path):
    """Rooms of this package that a module imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        for name in names:
            parts = name.split(".")
            if parts[0] == "h2o_theory" and len(parts) > 1:
                yield parts[1]
            elif parts[0] == "paper_checks":
                yield parts[0]


def test_no_room_stands_on_two_floors():
    assert len(FLOOR) == sum(map(len, FLOORS))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_down_only(path):
    inside = path.is_relative_to(PACKAGE)
    room = path.relative_to(PACKAGE).parts[0].removesuffix(".py") if inside else "paper_checks"
    if room == "__init__":
        return
    for imported in imported_rooms(path):
        same = imported == room
        assert same or FLOOR[imported] < FLOOR[room], f"{room} imports {imported}"


def calls(function):
    """Names of the functions that a function calls."""
    found = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
    return {called.id for called in found if isinstance(called, ast.Name)}


def test_a_cached_kernel_calls_no_compiled_function_of_another_file():
    """numba's cache would not notice a change over there; ``h2o_theory.kernels.kernel`` does."""
    plain, compiled = {}, {}
    for path in MODULES:
        for node in ast.parse(path.read_text()).body:
            if not isinstance(node, ast.FunctionDef):
                continue
            decorators = " ".join(map(ast.unparse, node.decorator_list))
            if "njit(cache=True" in decorators:
                plain[path, node.name] = calls(node)
            if "njit(" in decorators or "kernel(" in decorators:
                compiled.setdefault(node.name, set()).add(path)
    wrong = {
        (path.name, name, called)
        for (path, name), names in plain.items()
        for called in names
        if called in compiled and (path not in compiled[called] or (path, called) not in plain)
    }
    assert len(plain) > 20 and not wrong


def test_pure_maths_imports_numpy_and_numba_only():
    for room in ("attention", "instances", "optimum", "statistics", "submodular"):
        for path in (PACKAGE / room).glob("*.py"):
            allowed = LIBRARIES | EXCEPTIONS.get(f"{room}/{path.name}", set())
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Import):
                    roots = {alias.name.split(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom):
                    roots = {node.module.split(".")[0]}
                else:
                    continue
                assert roots <= allowed, f"{path.name}: {roots - allowed}"


def test_importing_and_replaying_needs_no_heavy_library():
    code = (
        "import sys, numpy, h2o_theory\n"
        "assert not {'numba', 'pandas', 'torch'} & set(sys.modules)\n"
        "h2o_theory.replay; h2o_theory.open_trace\n"
        "heavy = {'torch', 'transformers', 'matplotlib', 'networkx'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def public_names():
    """Names in the stub of the package: its rooms and what they export there."""
    stub = ast.parse((PACKAGE / "__init__.pyi").read_text())
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    rooms = [alias.name for node in imports if node.module is None for alias in node.names]
    names = [alias.name for node in imports if node.module for alias in node.names]
    return rooms, names


def test_every_room_and_public_name_is_there_on_a_fresh_import():
    """A process of its own for each name (forked, so that it costs no start)."""
    rooms, names = public_names()
    code = (
        "import os, sys, h2o_theory\n"
        "for name in sys.argv[1:]:\n"
        "    child = os.fork()\n"
        "    if not child:\n"
        "        found = getattr(h2o_theory, name, None)\n"
        "        os._exit(found is None)\n"
        "    assert os.waitpid(child, 0)[1] == 0, name\n"
    )
    subprocess.run([sys.executable, "-c", code, *rooms, *names], check=True, cwd=ROOT)
    with pytest.raises(subprocess.CalledProcessError):
        subprocess.run(
            [sys.executable, "-c", code, "nothing"], check=True, cwd=ROOT, stderr=subprocess.PIPE
        )


def test_the_public_names_are_complete_and_in_the_table_of_contents():
    import h2o_theory

    rooms, names = public_names()
    private = {"__init__", "__main__", "cli", "data", "dependencies", "families", "kernels"}
    found = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or is_package(path)}
    assert set(rooms) == found - private, "add the room to h2o_theory/__init__.pyi"
    assert sorted(set(h2o_theory.__dir__())) == sorted([*rooms, *names])
    words = set(re.findall(r"\w+", h2o_theory.__doc__))
    assert {*rooms, *names} <= words, "add the name to the docstring of h2o_theory/__init__.py"
    text = pydoc.plain(pydoc.render_doc(h2o_theory))
    assert len(text.splitlines()) < 120 and "Functions" not in text


def is_package(path):
    return (path / "__init__.py").is_file()


@pytest.mark.parametrize(
    "arguments",
    [["-c", "import h2o_theory"], *(["-m", "h2o_theory", x] for x in ("--version", "--help"))],
)
def test_what_needs_no_library_starts_quickly(arguments):
    """In seconds of the processor, which other processes do not change much; the best of three."""
    begun = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], check=True, cwd=ROOT, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        begun.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(begun) < 0.3


def test_every_package_is_shipped():
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    shipped = set(config["packages"])
    found = {".".join(path.parent.relative_to(ROOT).parts) for path in PACKAGE.rglob("__init__.py")}
    assert shipped == found | {"h2o_theory.traces", "paper_checks"}


def test_tests_assert_something():
    """No comparison whose result is thrown away, no test function without an assertion."""
    for path in (ROOT / "tests").rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Expr):
                assert not isinstance(node.value, ast.Compare), f"{path.name}:{node.lineno}"
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                inside = list(ast.walk(node))
                asserts = any(isinstance(item, ast.Assert) for item in inside)
                calls = {
                    getattr(item.func, "attr", getattr(item.func, "id", ""))
                    for item in inside
                    if isinstance(item, ast.Call)
                }
                checked = any(
                    name in ("raises", "run", "refused")
                    or name.startswith(("assert_", "check_", "require_"))
                    for name in calls
                )
                assert asserts or checked, f"{path.name}:{node.lineno} {node.name}"


def test_no_machine_paths_or_unfinished_marks():
    marks = ("TO" + "DO", "FIX" + "ME", "/wo" + "rk/", "/ro" + "ot/")
    for path in [*MODULES, *(ROOT / "tests").rglob("*.py")]:
        text = path.read_text()
        assert not [mark for mark in marks if mark in text], path.name

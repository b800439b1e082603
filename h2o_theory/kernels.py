"""Compiled functions whose cache on disk notices every change of the code they are built from.

numba's own cache looks at the file of the compiled function alone. A function that calls compiled
functions of another file would go on with their old code after a change of that file.
"""

import hashlib
import inspect
import types
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

__all__ = ["code_digest", "kernel"]


def kernel(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """``numba.njit`` with a cache that depends on the code of all functions called.

    The qualified name, by which numba files what it compiled, gets their digest. For functions
    that call compiled functions of other files, and for those that call such functions. Compiling
    takes about a second for each pair of rules, once on a machine.
    """

    def decorate(function):
        function.__qualname__ += f"_{code_digest(function)}"
        return njit(cache=True, **options)(function)

    return decorate


def code_digest(*functions: Callable[..., Any]) -> str:
    """Twelve hex digits that change with the code of any function, of all that it calls, and with
    the constants and compiler options they use."""
    found, waiting = {}, list(functions)
    while waiting:
        function = waiting.pop()
        python = getattr(function, "py_func", function)
        if python in found:
            continue
        names = python.__code__.co_names
        used = {name: python.__globals__[name] for name in names if name in python.__globals__}
        waiting += [value for value in used.values() if hasattr(value, "py_func")]
        used |= inspect.getclosurevars(python).nonlocals
        constants = {name: value for name, value in used.items() if isinstance(value, _CONSTANTS)}
        options = {
            name: sorted(value) if isinstance(value, set) else value
            for name, value in sorted(getattr(function, "targetoptions", {}).items())
        }
        found[python] = (python.__qualname__, *_bytecode(python.__code__), constants, options)
    return hashlib.sha256(repr(sorted(map(repr, found.values()))).encode()).hexdigest()[:12]


_CONSTANTS = (bool, int, float, str, tuple, np.generic)


def _bytecode(code):
    nested = types.CodeType
    constants = [_bytecode(c) if isinstance(c, nested) else c for c in code.co_consts]
    return code.co_code, constants, code.co_names, code.co_varnames

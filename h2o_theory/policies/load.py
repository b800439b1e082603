"""A user's own policy by its place: ``module:Class`` or ``path/to/file.py:Class``."""

import ast
import hashlib
import importlib
import importlib.util
import inspect
import sys
from pathlib import Path

from h2o_theory.errors import BadArgument

__all__ = ["load_policy", "names_a_class"]


def names_a_class(text):
    """Whether ``text`` is ``module:Class``, perhaps with ``:parameter=value,...`` behind it."""
    module, _, rest = text.strip().partition(":")
    name = rest.partition(":")[0]
    return bool(module) and name.isidentifier()


def load_policy(text):
    """An instance of a class of the user's, from its module or file.

    ``"module:Class"``, ``"path/to/file.py:Class"``, and ``"module:Class:parameter=value,..."``
    with values as Python literals (anything else is text). Modules are also looked for in the
    current directory. The code of the module runs: load only what you trust.

    Raises
    ------
    BadArgument
        If the module or file is missing or fails on import, has no such class, or the class does
        not take the parameters.
    """
    module_text, _, rest = text.strip().partition(":")
    name, _, parameters = rest.partition(":")
    found = getattr(_import(module_text), name, None)
    if not inspect.isclass(found):
        raise BadArgument(
            "the module has no such class",
            where=text,
            got="nothing of that name" if found is None else type(found).__name__,
            expected=f"a class {name} in {module_text}",
        )
    try:
        return found(**_parameters(text, parameters))
    except TypeError as error:
        raise BadArgument(
            "the policy cannot be made", where=text, got=error, expected="its parameters"
        ) from None


def _import(text):
    """The module of that name or file; any failure is a BadArgument that names it."""
    before = list(sys.path)
    try:
        if text.endswith(".py"):
            return _import_file(Path(text))
        sys.path.insert(0, str(Path.cwd()))
        return importlib.import_module(text)
    except Exception as error:  # the module's own code may raise anything
        raise BadArgument(
            "the policy's module cannot be imported",
            where=text,
            got=f"{type(error).__name__}: {error}",
            expected="a shipped policy, module:Class or file.py:Class",
            hint="See: h2o-theory ls policies",
        ) from None
    finally:
        sys.path[:] = before


def _import_file(path):
    """The file as a module, once: a second call gives the same classes."""
    digest = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]
    name = f"h2o_theory_user_{path.stem}_{digest}"
    if name not in sys.modules:
        if not path.is_file():
            raise FileNotFoundError("no such file")
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


def _parameters(text, parameters):
    found = {}
    for item in filter(None, parameters.split(",")):
        key, equals, value = (part.strip() for part in item.partition("="))
        if not equals or not key.isidentifier():
            raise BadArgument(
                "a parameter cannot be read",
                where=text,
                got=repr(item),
                expected="parameter=value",
            )
        try:
            found[key] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            found[key] = value
    return found

"""A user's own class by its place: ``module:Class`` or ``path/to/file.py:Class``."""

import hashlib
import importlib
import importlib.util
import inspect
import sys
from pathlib import Path
from types import ModuleType

from h2o_theory.errors import BadArgument
from h2o_theory.store.identity import file_identity, local_files

__all__ = ["find_class", "names_a_class"]


def names_a_class(text: str) -> bool:
    """Whether ``text`` is ``module:Class``, perhaps with ``:parameter=value,...`` behind it.

    Examples
    --------
    >>> names_a_class("mine.py:Mix:alpha=0.5"), names_a_class("h2o:rows=raw")
    (True, False)
    """
    module, _, rest = text.strip().partition(":")
    name = rest.partition(":")[0]
    return bool(module) and name.isidentifier()


def find_class(text: str) -> tuple[type, str]:
    """A class of the user's, from its module or file, and the text of its parameters.

    Modules are also looked for in the current directory. The code of the module runs: load only
    what you trust.

    Raises
    ------
    BadArgument
        If the module or file is missing or fails on import, or has no such class.
    """
    module, _, rest = text.strip().partition(":")
    name, _, parameters = rest.partition(":")
    found = getattr(_import(module), name, None)
    if not inspect.isclass(found):
        raise BadArgument(
            f"{module} must define a class {name}",
            where=text,
            got="nothing of that name" if found is None else type(found).__name__,
        )
    return found, parameters


def _import(text: str) -> ModuleType:
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


_HELPERS: set[str] = set()
"""Names of modules that users' files imported from beside them."""


def _import_file(path: Path) -> ModuleType:
    """The file as a module, with its folder on the path: it may import what lies beside it.

    A second call gives the same classes, until the file or one that it imports is changed.
    """
    if not path.is_file():
        raise FileNotFoundError("no such file")
    digest = hashlib.sha256(f"{path.resolve()} {file_identity(path)}".encode()).hexdigest()[:12]
    name = f"h2o_theory_user_{path.stem}_{digest}"
    if name not in sys.modules:
        # Helpers of an earlier version, or of another folder, may go by the same names.
        for helper in _HELPERS & set(sys.modules):
            del sys.modules[helper]
        sys.path.insert(0, str(path.resolve().parent))
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
        finally:
            own = set(local_files(path)) - {path.resolve()}
            for other, found in list(sys.modules.items()):
                if getattr(found, "__file__", None) and Path(found.__file__).resolve() in own:
                    _HELPERS.add(other)
    return sys.modules[name]

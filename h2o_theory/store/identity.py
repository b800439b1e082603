"""What a result is of: one identity that changes with everything the result depends on.

A cell is found again by :func:`identity` of its ingredients: the trace or the model and text, the
policy with all its parameters, budget, prefill, seed, positions, transform, and the code itself.
"""

import ast
import functools
import hashlib
import inspect
import json
import pickle
import sys
import sysconfig
import weakref
from pathlib import Path
from typing import Any

import joblib
import numpy as np

from h2o_theory.annotations import PathLike
from h2o_theory.dependencies import require
from h2o_theory.errors import BadArgument

__all__ = [
    "LIVE_ROOMS",
    "REPLAY_ROOMS",
    "code_identity",
    "file_identity",
    "identity",
    "local_files",
    "model_identity",
    "policy_identity",
    "source_identity",
    "text_identity",
]

PACKAGE = Path(__file__).parents[1]

REPLAY_ROOMS = ("attention", "budgets", "engine", "kernels", "optimum", "policies", "trace")
LIVE_ROOMS = (*REPLAY_ROOMS, "live", "masks", "recorder", "transforms")
"""The rooms whose code a replay and a run of a model depend on."""


def identity(**ingredients: Any) -> str:
    """Sixty-four hex digits that change with any ingredient; never with the clock or the process.

    Parameters
    ----------
    **ingredients
        Numbers, text, None, arrays, and lists and dicts of these.

    Examples
    --------
    >>> identity(policy="h2o", budget=51) == identity(budget=51, policy="h2o")
    True
    >>> identity(policy="h2o", budget=51) == identity(policy="h2o", budget=52)
    False
    """
    text = json.dumps(ingredients, sort_keys=True, default=_plain)
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        digest = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
        return [str(value.dtype), list(value.shape), digest]
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is no ingredient of an identity")


def text_identity(ids: Any) -> str:
    """A digest of token ids."""
    return hashlib.sha256(np.asarray(ids, dtype=np.int64).tobytes()).hexdigest()


def code_identity(*rooms: str) -> str:
    """A digest of the sources of this package that a result depends on.

    Parameters
    ----------
    *rooms : str
        Packages and modules of ``h2o_theory`` by name; all of it by default.

    Examples
    --------
    >>> code_identity("engine") == code_identity("engine") != code_identity("engine", "policies")
    True
    """
    return _code_identity(PACKAGE, rooms)


@functools.cache
def _code_identity(package: Path, rooms: tuple[str, ...]) -> str:
    digest = hashlib.sha256()
    for room in sorted(rooms) or ["."]:
        place = package / room
        files = place.rglob("*.py") if place.is_dir() else [place.with_suffix(".py")]
        for path in sorted(files):
            digest.update(f"{path.relative_to(package)} ".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def policy_identity(policy: Any) -> list[str]:
    """What a policy is: its class, all that the object holds, and a user's own code.

    The code of a shipped policy is part of :func:`code_identity`. That of a user's is the file of
    its class and every file beside it or elsewhere of the user's that it imports, however far
    down; or the cell of a notebook.

    Raises
    ------
    BadArgument
        If the source cannot be found, or the object holds what cannot be compared.
    """
    cls = type(policy)
    place = f"{cls.__module__.removeprefix('h2o_theory_user_')}.{cls.__qualname__}"
    try:
        state = str(joblib.hash(vars(policy), hash_name="sha1"))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise BadArgument(
            "a policy must hold what can be pickled, so that its results can be told apart",
            where=place,
            got=error,
            hint="Keep functions and open files out of the object, or name them by text",
        ) from None
    if cls.__module__.split(".")[0] == "h2o_theory":
        return [place, state]
    # A user's file may lie anywhere: its place is no part of what the policy is.
    return [cls.__qualname__, state, source_identity(cls)]


def source_identity(cls: type) -> str:
    """A digest of a class's code: its file with all local files it imports, or its own text.

    Raises
    ------
    BadArgument
        If the source cannot be found.
    """
    module = sys.modules.get(cls.__module__)
    file = getattr(module, "__file__", None)
    if file is not None and Path(file).is_file():
        return file_identity(file)
    try:
        return hashlib.sha256(inspect.getsource(cls).encode()).hexdigest()
    except (OSError, TypeError):
        raise BadArgument(
            "the source of the policy must be found, so that its cells can be addressed",
            where=cls.__qualname__,
            hint="Write the class in a file or a notebook cell",
        ) from None


def file_identity(file: PathLike) -> str:
    """A digest of a Python file and of the user's files that it imports, wherever they lie."""
    digest = hashlib.sha256()
    for path, content in sorted(local_files(file).items(), key=lambda item: item[0].name):
        # The file itself may go by any name; what it imports is imported by name.
        name = "" if path == Path(file).resolve() else path.name
        digest.update(f"{name} {hashlib.sha256(content).hexdigest()} ".encode())
    return digest.hexdigest()


def local_files(file: PathLike) -> dict[Path, bytes]:
    """Contents of a Python file and of the user's own files that it imports, at all levels."""
    found: dict[Path, bytes] = {}
    waiting = [Path(file).resolve()]
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found[path] = path.read_bytes()
        for name in _imported(found[path], path):
            module = sys.modules.get(name)
            origin = getattr(module, "__file__", None)
            beside = path.parent.joinpath(*name.split(".")).with_suffix(".py")
            for candidate in filter(None, (origin, beside)):
                candidate = Path(candidate).resolve()
                if candidate.suffix == ".py" and candidate.is_file() and _is_users(candidate):
                    waiting.append(candidate)
                    break
    return found


def _imported(content: bytes, path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(content, filename=path.name)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def _is_users(path: Path) -> bool:
    """Whether a file is neither of Python, nor of an installed package, nor of this one."""
    paths = sysconfig.get_paths()
    foreign = [Path(paths[name]).resolve() for name in ("stdlib", "platstdlib", "purelib")]
    foreign += [PACKAGE.resolve(), Path(sys.prefix).resolve() / "lib"]
    installed = {"site-packages", "dist-packages"} & set(path.parts)
    return not installed and not any(path.is_relative_to(place) for place in foreign)


_KNOWN: "weakref.WeakKeyDictionary[Any, tuple]" = weakref.WeakKeyDictionary()


def model_identity(model: Any) -> str:
    """A digest of a model: configuration, every weight to the last bit, dtypes, adapters.

    Adapters and quantised weights are tensors of the model like others, under names of their own.
    Two sums over each tensor's 64-bit words, one weighted by place, modulo 2^64: they are taken
    where the tensor lies, at the speed of its memory, and change if one bit does. Weights that are
    offloaded count by name and shape alone. What was computed is kept until a weight changes.

    Parameters
    ----------
    model : transformers.PreTrainedModel
    """
    tensors = sorted(model.state_dict(keep_vars=True).items())
    stamp = tuple((name, tensor.data_ptr(), tensor._version) for name, tensor in tensors)
    known = _KNOWN.get(model)
    if known is None or known[0] != stamp:
        digest = hashlib.sha256(model.config.to_json_string(use_diff=True).encode())
        digest.update(type(model).__qualname__.encode())
        for name, tensor in tensors:
            digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype} ".encode())
            digest.update(repr(_tensor_sums(tensor.detach())).encode())
        known = _KNOWN[model] = stamp, digest.hexdigest()
    return known[1]


_WORDS = 2**22
"""64-bit words that are summed together."""


def _tensor_sums(tensor: Any) -> tuple[int, int] | None:
    torch = require("torch")
    if tensor.device.type == "meta":
        return None
    flat = tensor.contiguous().reshape(-1).view(torch.uint8)
    rest = flat[len(flat) // 8 * 8 :].tolist()
    words = flat[: len(flat) // 8 * 8].view(torch.int64)
    plain = weighted = 0
    for start in range(0, len(words), _WORDS):
        part = words[start : start + _WORDS]
        place = torch.arange(start, start + len(part), device=part.device)
        plain += int(part.sum())
        weighted += int((part * (place * 0x9E3779B1 + 1)).sum())
    for index, byte in enumerate(rest):
        plain += byte
        weighted += byte * (index + 1)
    return plain % 2**64, weighted % 2**64

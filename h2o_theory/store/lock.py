"""One process at a time on an output: a second one is told so at once."""

import contextlib
import functools
import hashlib
import inspect
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, ParamSpec, TypeVar

from h2o_theory.annotations import PathLike
from h2o_theory.errors import OutputExists
from h2o_theory.store.atomic import os_errors_named

__all__ = ["holds_output", "lock_output", "try_lock"]

P = ParamSpec("P")
R = TypeVar("R")

_HELD: dict[str, list] = {}
_GUARD = threading.Lock()


@contextlib.contextmanager
def lock_output(out: PathLike, *, shared: bool = False) -> Iterator[None]:
    """Hold an output, a file or a folder, for the length of the block.

    The lock is the system's own (``flock``) and falls with the process, however it ends, so that
    none is ever stale. It lies among the temporary files of this machine and user: nothing is
    left beside the output, and processes of other machines are not seen. One process may take
    it several times.

    Parameters
    ----------
    out : path
        Need not exist yet.
    shared : bool
        Others that ask for a share may hold it at the same time, as shards of one sweep do.

    Raises
    ------
    OutputExists
        If another process holds it.
    """
    name = hashlib.sha256(os.fspath(Path(out).resolve()).encode()).hexdigest()[:32]
    with _GUARD:
        held = _HELD.get(name)
        if held is None:
            file = _open(name)
            if not try_lock(file, shared=shared):
                file.seek(0)
                holder = file.read(20).strip()
                file.close()
                raise OutputExists(
                    "another process is writing to the output",
                    where=out,
                    got=f"process {holder}" if holder else "",
                    hint="Wait until it has ended, or choose another place",
                )
            with contextlib.suppress(OSError):  # for a message alone: the disk may be full
                file.seek(0)
                file.truncate()
                file.write(str(os.getpid()))
                file.flush()
            held = _HELD[name] = [file, 0]
        held[1] += 1
    try:
        yield
    finally:
        with _GUARD:
            held[1] -= 1
            if held[1] == 0:
                del _HELD[name]
                held[0].close()


def holds_output(function: Callable[P, R]) -> Callable[P, R]:
    """A function that holds the output named by its argument ``out`` while it runs."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def held(*args: P.args, **kwargs: P.kwargs) -> R:
        with lock_output(signature.bind(*args, **kwargs).arguments["out"]):
            return function(*args, **kwargs)

    return held


def try_lock(file: IO, *, shared: bool = False) -> bool:
    """Take the system's lock of an open file, which falls when it is closed.

    Returns
    -------
    bool
        False if another process holds it. True as well where the system has no such locks.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        return True
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _open(name: str) -> IO:
    user = os.getuid() if hasattr(os, "getuid") else ""
    folder = Path(tempfile.gettempdir()) / f"h2o-theory-locks-{user}"
    with os_errors_named(folder, "Point TMPDIR at a folder that can be written"):
        folder.mkdir(exist_ok=True)
        return open(folder / name, "a+", encoding="ascii")

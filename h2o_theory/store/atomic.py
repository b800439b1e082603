"""Files and folders that are whole or absent, whatever happens to the process or the machine."""

import contextlib
import errno
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from h2o_theory.annotations import PathLike
from h2o_theory.errors import CannotWrite

__all__ = [
    "new_file",
    "new_folder",
    "os_errors_named",
    "remove_leftovers",
    "require_writable",
    "sync_folder",
    "write_bytes",
]

PARTIAL = re.compile(r"^\..*\.(\d+)\.partial$")
"""Names of what is being written, with the process that writes it; never read as results."""


@contextlib.contextmanager
def os_errors_named(where: PathLike, hint: str = "") -> Iterator[None]:
    """Turn an OSError of the block into CannotWrite that names ``where`` and says what to do."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            free = f"{shutil.disk_usage(_existing(Path(where))).free / 2**20:.0f} MiB free"
            raise CannotWrite(
                "the disk is full", where=where, got=f"{reason}, {free}", hint=hint or "Make room"
            ) from None
        raise CannotWrite(
            "the output must be writable", where=where, got=reason, hint=hint
        ) from None


@contextlib.contextmanager
def new_file(path: PathLike, hint: str = "") -> Iterator[Path]:
    """A temporary path to write to, flushed to the disk and renamed to ``path`` at the end.

    An earlier file stays until then, and stays if the block raises. The parent is made.

    Parameters
    ----------
    path : path
    hint : str
        What a user is to do after a failure.

    Raises
    ------
    CannotWrite
        If the disk is full or the place cannot be written.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> place = pathlib.Path(tempfile.mkdtemp()) / "table.csv"
    >>> with new_file(place) as temporary:
    ...     _ = temporary.write_text("a,b")
    >>> place.read_text()
    'a,b'
    """
    path = Path(path)
    temporary = _temporary(path)
    with os_errors_named(path, hint):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield temporary
            with open(temporary, "rb+") as file:
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        sync_folder(path.parent)


def write_bytes(path: PathLike, data: bytes, hint: str = "") -> None:
    """Write a file of these bytes atomically; raises CannotWrite as :func:`new_file` does."""
    with new_file(path, hint) as temporary, open(temporary, "wb") as file:
        file.write(data)


@contextlib.contextmanager
def new_folder(out: PathLike) -> Iterator[Path]:
    """A hidden folder to fill, renamed to ``out`` when the block ends without an error.

    A folder that is there goes last, or comes back if that fails. Folders that processes which
    ended left behind are removed.

    Raises
    ------
    CannotWrite
        If the disk is full or the place cannot be written.
    """
    out = Path(out)
    folder = _temporary(out)
    with os_errors_named(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(out.parent)
        folder.mkdir()
        try:
            yield folder
            _take_place(folder, out)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        sync_folder(out.parent)


def require_writable(out: PathLike, kind: str = "folder") -> None:
    """Find out before any work whether an output can be written, which may not exist yet.

    Some bytes are written and removed, as a full disk still makes empty files.

    Parameters
    ----------
    out : path
    kind : {"folder", "new folder", "file"}
        A folder to write into, one that takes its place as a whole at the end, or a file.

    Raises
    ------
    CannotWrite
    """
    out = Path(out)
    with os_errors_named(out, "Choose another place for the output"):
        place = out.absolute() if kind == "folder" else out.absolute().parent
        while not os.path.lexists(place):
            place = place.parent
        if kind == "file" and out.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())


def remove_leftovers(folder: PathLike) -> None:
    """Remove what processes that have ended left unfinished in a folder."""
    for path in Path(folder).glob(".*.partial"):
        found = PARTIAL.match(path.name)
        if found and not _runs(int(found[1])):
            shutil.rmtree(path, ignore_errors=True)
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


def sync_folder(folder: PathLike) -> None:
    """Make a rename in ``folder`` survive a power cut, where the system can.

    Not every file system can, and Windows cannot. A name lost in a power cut is no silent loss:
    whoever reads misses the file.
    """
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.partial")


def _take_place(folder: Path, out: Path) -> None:
    old = _temporary(out.with_name(f"{out.name}.old"))
    if out.exists():
        out.rename(old)
    try:
        folder.rename(out)
    except BaseException:
        if old.exists():
            old.rename(out)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it belongs to somebody else
        return True
    return True


def _existing(path: Path) -> Path:
    """The nearest folder above that is there."""
    path = path.absolute()
    while not path.is_dir() and path != path.parent:
        path = path.parent
    return path

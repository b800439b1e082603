"""Files that are whole or absent, whatever happens to the process or the machine."""

import contextlib
import errno
import os

from h2o_theory.errors import CannotWrite

__all__ = ["named_errors", "sync_folder", "write_durably"]

PARTIAL = ".partial"
"""Ending of a file that is being written; it is never read."""


def write_durably(path, data):
    """Write bytes beside ``path``, flush them to the disk, and rename into place."""
    partial = path.with_name(path.name + PARTIAL)
    try:
        with open(partial, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder):
    """Make a rename in ``folder`` survive a power cut, where the system can.

    Not every file system can, and Windows cannot. A name lost in a power cut is no silent loss:
    the manifest lists the file, so it is missed.
    """
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextlib.contextmanager
def named_errors(where, hint=""):
    """Turn an OSError of the block into CannotWrite, with ``where``; a full disk gets the hint."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise CannotWrite("the disk is full", where=where, got=reason, hint=hint) from None
        raise CannotWrite("cannot write the trace there", where=where, got=reason) from None

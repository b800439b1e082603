"""Finished cells on disk: one checked file each, written beside and renamed."""

import hashlib
import json
import os
import shutil
from pathlib import Path

from h2o_theory.errors import CannotWrite, CorruptCell

__all__ = ["CellStore"]


class CellStore:
    """The folder of a sweep: ``cells/ab/<key>.json`` for results, ``failed/`` for reasons."""

    def __init__(self, out):
        self.out = Path(out)

    def path(self, key):
        """Where the result of a cell lies."""
        return self.out / "cells" / key[:2] / f"{key}.json"

    def save(self, key, record):
        """Write the result of a cell; an earlier failure of it is forgotten.

        Raises
        ------
        CannotWrite
            If the disk is full or the folder cannot be written; finished cells stay.
        """
        self._write(self.path(key), key, record)
        self._failure(key).unlink(missing_ok=True)

    def load(self, key):
        """The result of a cell, or None if there is none.

        Raises
        ------
        CorruptCell
            If the file is not what :meth:`save` wrote.
        """
        return self._read(self.path(key), key)

    def save_failure(self, key, reason):
        """Remember why a cell failed; the next run tries it again."""
        self._write(self._failure(key), key, {"reason": reason})

    def load_failure(self, key):
        """Why a cell failed, or None if it did not."""
        found = self._read(self._failure(key), key)
        return None if found is None else found["reason"]

    def _failure(self, key):
        return self.out / "failed" / f"{key}.json"

    def _write(self, path, key, record):
        text = json.dumps({"key": key, "sha256": _checksum(key, record), "record": record})
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                beside.write_text(text, encoding="utf-8")
                os.replace(beside, path)
            finally:
                beside.unlink(missing_ok=True)
        except OSError as error:
            raise CannotWrite(
                "a cell cannot be written",
                where=path,
                got=error.strerror or error,
                expected=f"room for some kilobytes ({_free(self.out)})",
                hint="Make room and run the same sweep again: finished cells are kept",
            ) from None

    def _read(self, path, key):
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise self._corrupt(path, error) from None
        try:
            content = json.loads(text)
            record = content["record"]
            if content["key"] != key or content["sha256"] != _checksum(key, record):
                raise ValueError("the checksum does not match")
        except (ValueError, KeyError, TypeError) as error:
            raise self._corrupt(path, error) from None
        return record

    @staticmethod
    def _corrupt(path, error):
        return CorruptCell(
            "a cell file is truncated or altered",
            where=path,
            got=error,
            expected="the file as it was written",
            hint="Run the sweep again: it computes the cell anew",
        )


def _checksum(key, record):
    return hashlib.sha256(f"{key} {json.dumps(record)}".encode()).hexdigest()


def _free(folder):
    while not folder.exists():
        folder = folder.parent
    return f"{shutil.disk_usage(folder).free / 2**20:.0f} MiB free"

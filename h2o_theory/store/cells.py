"""Finished cells on disk: one file each, found by the identity of what it is a result of."""

import hashlib
import json
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from h2o_theory.annotations import PathLike
from h2o_theory.errors import CannotWrite, OutputExists
from h2o_theory.store.atomic import remove_leftovers, require_writable, write_bytes

__all__ = ["CellStore"]

_HINT = "Make room and run the same command again: finished cells are kept"


class CellStore:
    """The folder of a campaign: ``cells/ab/<key>.safetensors``, and ``failed/<key>.json``.

    A cell is a record (what JSON can hold) and arrays; its file is written atomically and carries
    its key and a checksum, so that a file that was cut, altered or moved is noticed. Such a cell
    counts as missing, is listed in ``damaged`` and computed anew.

    Parameters
    ----------
    folder : path
        Need not exist; it is made with the first cell.

    Attributes
    ----------
    folder : Path
    damaged : list of Path
        Files met by :meth:`load` that are not what :meth:`save` wrote.

    Raises
    ------
    OutputExists
        If the folder holds something else.
    CannotWrite
        If no file can be made there.

    Examples
    --------
    >>> import tempfile
    >>> store = CellStore(tempfile.mkdtemp())
    >>> store.save("ab12", {"loss": 2.5})
    >>> store.load("ab12")
    ({'loss': 2.5}, {})
    """

    def __init__(self, folder: PathLike):
        self.folder = Path(folder)
        self.damaged: list[Path] = []
        own = {"cells", "failed"}
        require_writable(self.folder)
        if self.folder.is_dir():
            names = {path.name for path in self.folder.iterdir()}
            if names and not names & own:
                raise OutputExists(
                    "the folder holds something else than such results",
                    where=self.folder,
                    hint="Choose another folder",
                )
        elif self.folder.exists():
            raise CannotWrite("the output must be a folder", where=self.folder, got="a file")
        for place in self.folder.glob("cells/*"):
            remove_leftovers(place)

    def path(self, key: str) -> Path:
        """Where the result of a cell lies."""
        return self.folder / "cells" / key[:2] / f"{key}.safetensors"

    def save(self, key: str, record: dict, arrays: dict[str, np.ndarray] | None = None) -> None:
        """Keep a finished cell, whole or not at all; an earlier failure of it is forgotten.

        Raises
        ------
        CannotWrite
            If the disk is full or the folder cannot be written; finished cells stay.
        """
        # safetensors writes the memory of an array, whatever its strides say.
        arrays = {name: np.ascontiguousarray(array) for name, array in (arrays or {}).items()}
        text = json.dumps(record)
        metadata = {"key": key, "record": text, "sha256": _checksum(key, text, arrays)}
        write_bytes(self.path(key), save(arrays, metadata=metadata), _HINT)
        self._failure(key).unlink(missing_ok=True)

    def load(self, key: str) -> tuple[dict, dict[str, np.ndarray]] | None:
        """``(record, arrays)`` of a finished cell; None if there is none or its file is damaged."""
        path = self.path(key)
        try:
            with safe_open(path, framework="numpy") as file:
                metadata = file.metadata() or {}
                arrays = {name: file.get_tensor(name) for name in file.keys()}
            text = metadata["record"]
            if metadata["key"] != key or metadata["sha256"] != _checksum(key, text, arrays):
                raise ValueError("the checksum does not match")
            return json.loads(text), arrays
        except FileNotFoundError:
            return None
        except (OSError, SafetensorError, KeyError, TypeError, ValueError):
            if path not in self.damaged:
                self.damaged.append(path)
            return None

    def save_failure(self, key: str, reason: str) -> None:
        """Remember why a cell failed; the next run tries it again."""
        write_bytes(self._failure(key), json.dumps({"reason": reason}).encode(), _HINT)

    def load_failure(self, key: str) -> str | None:
        """Why a cell failed, or None if it did not."""
        try:
            return str(json.loads(self._failure(key).read_text(encoding="utf-8"))["reason"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _failure(self, key: str) -> Path:
        return self.folder / "failed" / f"{key}.json"


def _checksum(key: str, text: str, arrays: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256(f"{key} {text}".encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()

"""Finished cells on disk: one file each, written beside and renamed, found by what they hold."""

import json
import os
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from h2o_theory.errors import CannotWrite, OutputExists

__all__ = ["CellStore"]


class CellStore:
    """The folder ``cells`` of a campaign: arrays and a JSON record in each file.

    A cell that failed is not kept, so that the next run tries it again.

    Parameters
    ----------
    folder : path
        Made if need be; an existing one must be that of a campaign.

    Raises
    ------
    OutputExists
        If the folder holds something else.
    CannotWrite
        If it cannot be made.
    """

    def __init__(self, folder):
        self.folder = Path(folder)
        self._cells = self.folder / "cells"
        try:
            if self.folder.exists() and not self._cells.is_dir() and any(self.folder.iterdir()):
                raise OutputExists(
                    "the folder holds something else than such results",
                    where=self.folder,
                    hint="Choose another folder",
                )
            self._cells.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CannotWrite("cannot write there", where=self.folder, got=error.strerror) from None

    def load(self, cell):
        """``(record, arrays)`` of a finished cell; None if there is none or its file is damaged."""
        try:
            with safe_open(self._path(cell), framework="numpy") as file:
                record = json.loads(file.metadata()["record"])
                return record, {name: file.get_tensor(name) for name in file.keys()}
        except (FileNotFoundError, SafetensorError, KeyError, TypeError, ValueError):
            return None

    def save(self, cell, record, arrays):
        """Keep a finished cell; it appears whole or not at all."""
        # safetensors writes the memory of an array, whatever its strides say.
        arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        beside = self._path(cell).with_suffix(f".{os.getpid()}.part")
        try:
            with open(beside, "wb") as file:
                file.write(save(arrays, metadata={"record": json.dumps(record)}))
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, self._path(cell))
        except OSError as error:
            raise CannotWrite(
                "a finished cell cannot be written", where=self._cells, got=error.strerror
            ) from None
        finally:
            beside.unlink(missing_ok=True)

    def _path(self, cell):
        return self._cells / f"{cell}.safetensors"

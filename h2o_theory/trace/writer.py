"""Writing a trace: segments into an unfinished folder beside the target, renamed at the end."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from h2o_theory.annotations import PathLike
from h2o_theory.errors import CannotWrite, OutputExists
from h2o_theory.store import os_errors_named, sync_folder, write_bytes
from h2o_theory.trace.manifest import ManifestWriter, end_line, segment_entry
from h2o_theory.trace.places import require_free, unfinished_folder
from h2o_theory.trace.segments import segment_bytes, sha256_of
from h2o_theory.trace.size import require_room
from h2o_theory.trace.spec import TraceSpec

__all__ = ["TraceWriter"]

RESUME = "Make room and record again with --resume (resume=True), or delete the folder"


class TraceWriter:
    """Collects segments of a trace and publishes them in one rename.

    Until :meth:`commit` returns there is nothing new at ``out``: segments grow in the folder
    ``<out>.unfinished`` beside it, whose ``spec.json`` has the status ``recording``. Each segment
    is written under another name, flushed to the disk and renamed before the manifest lists it.
    A process killed at any moment leaves a trace or such a folder, which opens as
    :class:`~h2o_theory.errors.UnfinishedTrace`.

    As a context manager it removes the folder, and parent folders it made, unless committed; a
    full disk keeps it, so that the recording can be resumed.

    Resuming repeats the recording from its first token. Each segment is compared with the one
    that is there: an equal one, by checksum of both the new bytes and the file, is kept and not
    written again; from the first that differs on, all are replaced. So the trace is exactly what
    an uninterrupted run would have written, whatever was recorded, and a resumed run that cannot
    reproduce its predecessor costs time and nothing else.

    Parameters
    ----------
    out : path
        The folder of the trace.
    plan : TraceSpec, optional
        What is about to be recorded. If its ``tokens`` and ``layers`` are known, a recording
        that would not fit on the disk is refused here.
    overwrite : bool
        Replace an existing trace at the moment of the commit, and an unfinished one now.
    resume : bool
        Go on with an unfinished recording if there is one.

    Attributes
    ----------
    kept : int
        Segments of an earlier run that were kept.

    Raises
    ------
    OutputExists
        If ``out`` exists and ``overwrite`` is false, it is inside another trace, or another
        process is recording there.
    UnfinishedTrace
        If an unfinished recording is there and neither ``overwrite`` nor ``resume`` is set.
    CannotWrite
        If the plan does not fit on the disk, or the parent folder cannot be written.
    """

    def __init__(
        self,
        out: PathLike,
        *,
        plan: TraceSpec | None = None,
        overwrite: bool = False,
        resume: bool = False,
    ) -> None:
        self.out, self.kept = Path(out), 0
        self._folder, self._overwrite = unfinished_folder(out), overwrite
        self._made, self._committed = [], False
        require_free(self.out, overwrite=overwrite, resume=resume)
        plan = plan or TraceSpec(tokens=None, layers=())
        if plan.tokens is not None:
            require_room(self.out, plan, present=_size(self._folder) if resume else 0)
        with os_errors_named(self.out):
            self._open(plan, resume)

    def _open(self, plan, resume):
        """Make or take over the unfinished folder; a fresh one that cannot be set up goes."""
        self._make_parents()
        if self._folder.is_dir() and not resume:
            ManifestWriter(self._folder).close()  # refuses while another process records there
            shutil.rmtree(self._folder)
        fresh = not self._folder.is_dir()
        self._folder.mkdir(exist_ok=True)
        self._manifest = ManifestWriter(self._folder)
        try:
            text = replace(plan, status="recording").to_json()
            write_bytes(self._folder / "spec.json", text.encode())
            self._manifest.discard_unlisted()
        except OSError:
            self._manifest.close()
            if fresh:
                self.abort()
            raise

    def _make_parents(self):
        for parent in reversed(self.out.parents):
            if not parent.exists():
                parent.mkdir()
                self._made.append(parent)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        if isinstance(error, CannotWrite):
            self._manifest.close()
        else:
            self.abort()

    def add_segment(
        self,
        tensors: Mapping[str, np.ndarray],
        *,
        start: int,
        stop: int,
        layers: Sequence[int],
        dtypes: Mapping[str, str] | None = None,
    ) -> None:
        """Append rows ``start .. stop`` of some layers.

        Parameters
        ----------
        tensors : dict of str to numpy array
            ``"{layer}.q"`` [q_heads, n, head_dim], ``.k`` [kv_heads, n, head_dim], ``.v``
            [kv_heads, n, value_dim], ``.lo`` and ``.hi`` int32 [n]; or ``"{layer}.p"``
            [q_heads, packed rows] for attention, with ``.v`` optional.
        start, stop : int
            The token range, ``n = stop - start``.
        layers : list of int
        dtypes : dict, optional
            Names of the storage dtypes that numpy lacks (``"bfloat16"``, given as uint16).

        Raises
        ------
        CannotWrite
            If the segment cannot be written.
        """
        data = segment_bytes(tensors, dtypes or {})
        entry = segment_entry(len(self._manifest.entries), data, layers, start, stop)
        path = self._folder / entry["file"]
        with os_errors_named(self._folder, hint=RESUME):
            if self._manifest.expects(entry) and sha256_of(path) == entry["sha256"]:
                self._manifest.keep()
                self.kept += 1
                return
            self._manifest.drop_expected()
            write_bytes(path, data)
            self._manifest.append(entry)

    def commit(self, spec: TraceSpec) -> Path:
        """Write ``spec.json`` and seal the manifest, then rename the folder to ``out``.

        Returns
        -------
        Path
            ``out``.
        """
        text = spec.to_json()
        with os_errors_named(self._folder, hint=RESUME):
            self._manifest.drop_expected()
            # In this order: until the spec says complete, the folder is plainly unfinished.
            self._manifest.append(end_line(self._manifest.entries, text))
            write_bytes(self._folder / "spec.json", text.encode())
            self._manifest.close()
        self._publish()
        return self.out

    def _publish(self):
        replaced = self.out.parent / f".{self.out.name}.replaced"
        shutil.rmtree(replaced, ignore_errors=True)
        if self._overwrite and self.out.exists():
            self.out.rename(replaced)
        try:
            self._folder.rename(self.out)
        except OSError as error:
            self.abort()
            raise OutputExists(
                "the output folder appeared while recording", where=self.out, got=error.strerror
            ) from None
        self._committed = True
        sync_folder(self.out.parent)
        shutil.rmtree(replaced, ignore_errors=True)

    def abort(self) -> None:
        """Remove the unfinished folder and the parents made for it; nothing after a commit."""
        if self._committed:
            return
        self._manifest.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        for parent in reversed(self._made):
            try:
                parent.rmdir()
            except OSError:  # someone else put something there
                break


def _size(folder):
    """Bytes of the files in a folder; 0 if there is none."""
    return sum(file.stat().st_size for file in folder.iterdir()) if folder.is_dir() else 0

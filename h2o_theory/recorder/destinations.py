"""Where the traces of a recording go: one folder, or one per sequence of a batch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from h2o_theory.annotations import PathLike
from h2o_theory.trace import TraceWriter, holds_sequences, require_room

if TYPE_CHECKING:
    from h2o_theory.recorder.buffer import BackgroundWriter
    from h2o_theory.trace.spec import TraceSpec

__all__ = ["Destinations", "sequence_folder"]


def sequence_folder(out: PathLike, index: int) -> Path:
    """The folder of one of several sequences: ``out/000000``, ``out/000001``, ..."""
    return Path(out) / f"{index:06d}"


class Destinations:
    """The :class:`~h2o_theory.trace.TraceWriter` of each sequence of a recording.

    Whether there is more than one becomes known with the first pass. Leaving the context removes
    what was not committed. Resuming a batch, a trace that is complete is made again and replaced
    by its equal.

    Parameters
    ----------
    out : path
    overwrite, resume, plan
        As for ``TraceWriter``.

    Raises
    ------
    OutputExists, UnfinishedTrace, BadArgument, CannotWrite
        As ``TraceWriter`` does, on construction.
    """

    def __init__(self, out: PathLike, **options: Any) -> None:
        self._out, self._options = Path(out), options
        self._stack, self._writers = contextlib.ExitStack(), []
        if not (options["resume"] and holds_sequences(self._out)):
            self._add_writer(self._out)

    def _add_writer(self, out, **changes):
        writer = TraceWriter(out, **{**self._options, **changes})
        self._writers.append(self._stack.enter_context(writer))

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        return self._stack.__exit__(*exception)

    @property
    def kept(self) -> int:
        """Segments of an earlier, unfinished recording that were kept."""
        return sum(writer.kept for writer in self._writers)

    def open(self, queue: BackgroundWriter, index: int, count: int) -> Callable[..., None]:
        """Where the segments of sequence ``index`` of ``count`` go: a callable for ``queue``."""
        if count == 1 and not self._writers:
            self._add_writer(self._out)
        if count > 1:
            if index == 0 and self._writers:
                self._writers.pop().abort()
            if index == 0:
                self._require_room(count)
            folder = sequence_folder(self._out, index)
            self._add_writer(folder, overwrite=self._options["resume"] and folder.exists())
        return partial(queue.add, self._writers[index])

    def _require_room(self, count):
        """Each writer looks at its own trace only; together they must fit too."""
        plan = self._options["plan"]
        if plan.tokens is not None:
            there = [file for file in self._out.rglob("*") if file.is_file()]
            require_room(self._out, [plan] * count, sum(file.stat().st_size for file in there))

    def commit(self, specs: Iterable[TraceSpec]) -> tuple[Path, ...]:
        """Give every trace its name; returns their folders, in order."""
        return tuple(writer.commit(spec) for writer, spec in zip(self._writers, specs, strict=True))

"""Whether a trace may be written to a place: asked before anything is run for it."""

from pathlib import Path

from h2o_theory.errors import OutputExists
from h2o_theory.store import os_errors_named
from h2o_theory.trace.ledger import Ledger
from h2o_theory.trace.manifest import MANIFEST
from h2o_theory.trace.unfinished import refusal, unfinished_folder

__all__ = ["holds_sequences", "require_free"]


def require_free(out, *, overwrite=False, resume=False):
    """Refuse a place that is taken; nothing is changed.

    Parameters
    ----------
    out : path
        The folder of the trace to come.
    overwrite : bool
        A trace that is there, or an unfinished one, may be replaced.
    resume : bool
        An unfinished recording may be gone on with.

    Raises
    ------
    OutputExists
        If something is there, or the place is inside another trace, or another process is
        recording there.
    UnfinishedTrace
        If an unfinished recording is there; says how far it got and how to go on.
    BadArgument
        If the place cannot be looked at.
    """
    out = Path(out)
    with os_errors_named(out):
        if any((parent / MANIFEST).is_file() for parent in out.absolute().parents):
            raise OutputExists(
                "the place is inside a trace, and a trace is never changed",
                where=out,
                hint="Choose another folder",
            )
        if out.exists() and not (overwrite and (out / MANIFEST).is_file()):
            raise _taken(out)
        unfinished = unfinished_folder(out)
        if unfinished.is_dir() and not (resume or overwrite):
            if (unfinished / MANIFEST).is_file():
                Ledger(unfinished).close()  # says so if it is being recorded right now
            raise refusal(unfinished)


def holds_sequences(out):
    """Whether a folder is that of several traces ``000000``, ``000001``, ..., finished or not."""
    out = Path(out)
    return out.is_dir() and not (out / MANIFEST).is_file() and any(out.glob(6 * "[0-9]" + "*"))


def _taken(out):
    if holds_sequences(out):
        return OutputExists(
            "the output folder holds several traces, which are not overwritten",
            where=out,
            hint="Go on with it by --resume (resume=True), choose another folder, or delete it",
        )
    if not (out / MANIFEST).is_file():
        return OutputExists(
            "the output exists and is not a trace", where=out, hint="Choose another folder"
        )
    return OutputExists(
        "the output exists",
        where=out,
        hint="Choose another folder, or replace the trace with --overwrite (overwrite=True)",
    )

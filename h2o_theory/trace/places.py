"""Where a trace grows, and whether it may be written there: asked before anything runs."""

from pathlib import Path

from h2o_theory.annotations import PathLike
from h2o_theory.errors import OutputExists, UnfinishedTrace
from h2o_theory.store import os_errors_named
from h2o_theory.trace.manifest import MANIFEST, ManifestWriter, listed
from h2o_theory.trace.schema import parse_json, read_bounded

__all__ = ["holds_sequences", "is_unfinished", "refusal", "require_free", "unfinished_folder"]

ENDING = ".unfinished"


def unfinished_folder(out: PathLike) -> Path:
    """Where a trace grows until it is complete: ``<out>.unfinished``, beside its place."""
    out = Path(out)
    return out.parent / (out.name + ENDING)


def is_unfinished(folder: Path) -> bool:
    """Whether a folder holds a recording that has not been completed."""
    status = _plan(folder)["status"]
    return status == "recording" or (folder.name.endswith(ENDING) and status != "complete")


def refusal(folder: Path) -> UnfinishedTrace:
    """The error for such a folder: how far the recording got, and how to go on."""
    if not is_unfinished(folder):
        return UnfinishedTrace(
            "the trace is complete but was not put in its place",
            where=folder,
            hint=f"Rename it to {folder.name.removesuffix(ENDING)}",
        )
    path, plan = folder / MANIFEST, _plan(folder)
    entries = [entry for entry, _ in listed(read_bounded(path))] if path.is_file() else []
    layers = plan["layers"] or sorted({layer for entry in entries for layer in entry["layers"]})
    reached = min((_reached(entries, layer) for layer in layers), default=0)
    return UnfinishedTrace(
        "this recording was not finished",
        where=folder,
        got=f"{len(entries)} segment{'s' * (len(entries) != 1)}; every layer up to token {reached}"
        + (f" of {plan['tokens']}" if plan["tokens"] else ""),
        hint="Record again with --resume (resume=True) to keep what is there, or with --overwrite "
        "(overwrite=True) to start over",
    )


def _reached(entries, layer):
    """Tokens of a layer from the first on without a gap."""
    reached = 0
    for entry in sorted(entries, key=lambda entry: entry["start"]):
        if layer in entry["layers"] and entry["start"] == reached:
            reached = entry["stop"]
    return reached


def _plan(folder):
    """Status, tokens and layers as ``spec.json`` gives them; nothing where it cannot be read."""
    try:
        raw = parse_json(read_bounded(folder / "spec.json"))
        layers = [layer["layer"] for layer in raw["layers"]]
        return {"status": raw["status"], "tokens": raw["tokens"], "layers": layers}
    except (OSError, ValueError, KeyError, TypeError):
        return {"status": None, "tokens": None, "layers": []}


def require_free(out: PathLike, *, overwrite: bool = False, resume: bool = False) -> None:
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
                ManifestWriter(unfinished).close()  # says so if it is being recorded right now
            raise refusal(unfinished)


def holds_sequences(out: PathLike) -> bool:
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

"""Recordings that were stopped before their end: recognised, never read as a trace."""

import json
from pathlib import Path

from h2o_theory.errors import UnfinishedTrace
from h2o_theory.trace.manifest import MANIFEST, listed

__all__ = ["is_unfinished", "refusal", "unfinished_folder"]

ENDING = ".unfinished"


def unfinished_folder(out):
    """Where a trace grows until it is complete: ``<out>.unfinished``, beside its place."""
    out = Path(out)
    return out.parent / (out.name + ENDING)


def is_unfinished(folder):
    """Whether a folder holds a recording that has not been completed."""
    status = _plan(folder)["status"]
    return status == "recording" or (folder.name.endswith(ENDING) and status != "complete")


def refusal(folder):
    """The error for such a folder: how far the recording got, and how to go on."""
    if not is_unfinished(folder):
        return UnfinishedTrace(
            "the trace is complete but was not put in its place",
            where=folder,
            hint=f"Rename it to {folder.name.removesuffix(ENDING)}",
        )
    path, plan = folder / MANIFEST, _plan(folder)
    entries = [entry for entry, _ in listed(path.read_bytes())] if path.is_file() else []
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
        raw = json.loads((folder / "spec.json").read_text(encoding="utf-8"))
        layers = [layer["layer"] for layer in raw["layers"]]
        return {"status": raw["status"], "tokens": raw["tokens"], "layers": layers}
    except (OSError, ValueError, KeyError, TypeError):
        return {"status": None, "tokens": None, "layers": []}

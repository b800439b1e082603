"""The manifest: one line for each segment that is on disk, and a last line that seals them."""

import hashlib
import json
from pathlib import Path

__all__ = ["MANIFEST", "end_line", "listed", "parse_manifest", "segment_entry", "to_line"]

MANIFEST = "manifest.jsonl"


def segment_entry(index, data, layers, start, stop):
    """What the manifest says about the segment with bytes ``data``, number ``index``."""
    return {
        "kind": "segment",
        "file": f"seg-{index:06d}.safetensors",
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "layers": [int(layer) for layer in layers],
        "start": int(start),
        "stop": int(stop),
    }


def to_line(entry):
    """One line of the manifest, as bytes."""
    return (json.dumps(entry, sort_keys=True) + "\n").encode()


def end_line(entries, spec_text):
    """The last line: it vouches for the lines before it and for ``spec.json``."""
    return {
        "kind": "end",
        "segments": len(entries),
        "segments_sha256": _digest(entries),
        "spec_sha256": hashlib.sha256(spec_text.encode()).hexdigest(),
    }


def parse_manifest(data):
    """Entries and last line of a finished manifest.

    Raises
    ------
    ValueError, KeyError, TypeError
        If a line is cut, altered, missing or of an unknown kind.
    """
    lines = [json.loads(line) for line in data.decode("utf-8").split("\n")[:-1]]
    if not lines or lines[-1]["kind"] != "end":
        raise ValueError("the closing line is missing")
    entries, end = [_checked(entry) for entry in lines[:-1]], lines[-1]
    if end["segments"] != len(entries):
        raise ValueError(f"{len(entries)} segments of {end['segments']}")
    if end["segments_sha256"] != _digest(entries) or not isinstance(end["spec_sha256"], str):
        raise ValueError("a line was altered")
    if data != b"".join(map(to_line, lines)):
        raise ValueError("a line is not as it was written")
    return entries, end


def listed(data):
    """The segments that an unfinished manifest lists: pairs (entry, offset of its line's end).

    Reading stops at the first line that is not a whole segment line: what was being appended.
    """
    found, offset = [], 0
    for line in data.splitlines(keepends=True):
        try:
            entry = _checked(json.loads(line))
        except (ValueError, KeyError, TypeError):
            break
        if not line.endswith(b"\n"):
            break
        offset += len(line)
        found.append((entry, offset))
    return found


def _checked(entry):
    if entry["kind"] != "segment":
        raise ValueError(f"a line of kind {entry['kind']}")
    entry["bytes"], entry["sha256"], entry["layers"], entry["start"], entry["stop"]
    if Path(entry["file"]).name != entry["file"]:
        raise ValueError(f"segment outside the folder: {entry['file']}")
    return entry


def _digest(entries):
    return hashlib.sha256(b"".join(map(to_line, entries))).hexdigest()

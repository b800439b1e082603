"""The manifest: one line for each segment on disk, and a last line that seals them."""

import hashlib
import json
import os
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from h2o_theory.errors import OutputExists
from h2o_theory.store.lock import try_lock
from h2o_theory.trace.schema import parse_json, require_schema

__all__ = [
    "MANIFEST",
    "ManifestWriter",
    "end_line",
    "listed",
    "parse_manifest",
    "segment_entry",
    "to_line",
]

MANIFEST = "manifest.jsonl"


def segment_entry(
    index: int, data: bytes, layers: Sequence[int], start: int, stop: int
) -> dict[str, Any]:
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


def to_line(entry: dict[str, Any]) -> bytes:
    """One line of the manifest, as bytes."""
    return (json.dumps(entry, sort_keys=True) + "\n").encode()


def end_line(entries: list[dict[str, Any]], spec_text: str) -> dict[str, Any]:
    """The last line: it vouches for the lines before it and for ``spec.json``."""
    return {
        "kind": "end",
        "segments": len(entries),
        "segments_sha256": _digest(entries),
        "spec_sha256": hashlib.sha256(spec_text.encode()).hexdigest(),
    }


def parse_manifest(data: bytes) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Entries and last line of a finished manifest.

    Raises
    ------
    ValueError, KeyError, TypeError
        If a line is cut, altered, missing or of an unknown kind.
    """
    lines = [parse_json(line) for line in data.decode("utf-8").split("\n")[:-1]]
    if not lines or not isinstance(lines[-1], dict) or lines[-1].get("kind") != "end":
        raise ValueError("the closing line is missing")
    entries, end = [_as_segment(entry) for entry in lines[:-1]], lines[-1]
    if end["segments"] != len(entries):
        raise ValueError(f"{len(entries)} segments of {end['segments']}")
    if end["segments_sha256"] != _digest(entries) or not isinstance(end["spec_sha256"], str):
        raise ValueError("a line was altered")
    if data != b"".join(map(to_line, lines)):
        raise ValueError("a line is not as it was written")
    return entries, end


def listed(data: bytes) -> list[tuple[dict[str, Any], int]]:
    """The segments that an unfinished manifest lists: pairs (entry, offset of its line's end).

    Reading stops at the first line that is not a whole segment line: what was being appended.
    """
    found, offset = [], 0
    for line in data.splitlines(keepends=True):
        try:
            entry = _as_segment(parse_json(line))
        except (ValueError, KeyError, TypeError):
            break
        if not line.endswith(b"\n"):
            break
        offset += len(line)
        found.append((entry, offset))
    return found


def _as_segment(entry):
    require_schema("segment", entry)
    if entry["start"] >= entry["stop"]:
        raise ValueError(f"a segment of tokens {entry['start']} to {entry['stop']}")
    return entry


def _digest(entries):
    return hashlib.sha256(b"".join(map(to_line, entries))).hexdigest()


class ManifestWriter:
    """Appends lines to ``manifest.jsonl``, each flushed to the disk before the next step.

    Opening takes a lock that the system drops when the process ends, however it ends. Lines that
    are already there are expected to come again, in their order.

    Attributes
    ----------
    entries : list of dict
        Segments written or kept so far.

    Raises
    ------
    OutputExists
        If another process holds the lock.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self.entries, self._end = folder, [], 0
        self._file = open(folder / MANIFEST, "a+b")
        if not try_lock(self._file):
            self._file.close()
            raise OutputExists(
                "another process is recording there",
                where=folder,
                hint="Wait for it, or choose another folder",
            )
        self._file.seek(0)
        self._expected = deque(listed(self._file.read()))

    def close(self) -> None:
        """Drop the lock; the file stays as it is."""
        self._file.close()

    def discard_unlisted(self) -> None:
        """Cut a half-appended line, and delete every file that no line lists."""
        self._cut(self._expected[-1][1] if self._expected else 0)
        known = {entry["file"] for entry, _ in self._expected} | {MANIFEST, "spec.json"}
        for file in self._folder.iterdir():
            if file.name not in known:
                file.unlink()

    def expects(self, entry: dict[str, Any]) -> bool:
        """Whether this very segment comes next among those that are already there."""
        return bool(self._expected) and self._expected[0][0] == entry

    def keep(self) -> None:
        """Take the expected segment as written."""
        entry, self._end = self._expected.popleft()
        self.entries.append(entry)

    def drop_expected(self) -> None:
        """Forget the segments that are still expected: first their lines, then their files."""
        if not self._expected:
            return
        self._cut(self._end)
        for entry, _ in self._expected:
            (self._folder / entry["file"]).unlink(missing_ok=True)
        self._expected.clear()

    def append(self, entry: dict[str, Any]) -> None:
        """Add one line, on disk when this returns."""
        line = to_line(entry)
        try:
            self._file.write(line)
            self._flush()
        except OSError:
            # What is still buffered would be written again on closing.
            self._file.close()
            raise
        self._end += len(line)
        if entry["kind"] == "segment":
            self.entries.append(entry)

    def _cut(self, end):
        self._file.truncate(end)
        self._flush()

    def _flush(self):
        self._file.flush()
        os.fsync(self._file.fileno())

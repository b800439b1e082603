"""The tensors of a trace: segments on disk, checked and mapped, or arrays in memory."""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from h2o_theory.annotations import PathLike
from h2o_theory.errors import CorruptTrace, TraceNotFound
from h2o_theory.trace.manifest import MANIFEST, parse_manifest
from h2o_theory.trace.places import is_unfinished, refusal, unfinished_folder
from h2o_theory.trace.rows import packed_range
from h2o_theory.trace.schema import read_bounded
from h2o_theory.trace.segments import DTYPE_NAMES, map_tensors, reading, sha256_of, to_float

__all__ = ["MemoryStore", "SegmentStore"]


class SegmentStore:
    """Segments of a trace folder, trusted only as far as the manifest vouches for them.

    Opening reads the manifest and compares file sizes; a segment's checksum is verified before
    its first value is handed out, so a long trace opens at once and is still never half-read.

    Raises
    ------
    TraceNotFound, UnfinishedTrace, CorruptTrace
    """

    def __init__(self, path: PathLike) -> None:
        self.path = Path(path)
        pending = self.path if self.path.is_dir() else unfinished_folder(self.path)
        if pending.is_dir() and (pending != self.path or is_unfinished(pending)):
            raise refusal(pending)
        if not self.path.is_dir():
            raise TraceNotFound(
                "no such trace",
                where=path,
                expected="a folder with spec.json and manifest.jsonl",
                hint="Record one with: h2o-theory record",
            )
        self.entries, end = self._read_manifest()
        self.spec_text = self._read_spec(end["spec_sha256"])
        for entry in self.entries:
            self._require_size(entry)
        self._views, self._segments = {}, {}

    def _corrupt(self, what, got, expected, where=None):
        return CorruptTrace(
            what,
            where=where or self.path,
            got=got,
            expected=expected,
            hint="Record the trace again or restore the files",
        )

    def _read_manifest(self):
        path = self.path / MANIFEST
        if not path.is_file():
            inside = sorted(child.parent.name for child in self.path.glob(f"*/{MANIFEST}"))
            raise TraceNotFound(
                "this folder is not a trace",
                where=self.path,
                got=f"{len(inside)} traces in it" if inside else "no manifest.jsonl",
                hint=f"Name one of them: {', '.join(inside[:4])}"
                if inside
                else "Name the folder that h2o-theory record wrote",
            )
        try:
            with reading(path):
                return parse_manifest(read_bounded(path))
        except (ValueError, KeyError, TypeError) as error:
            raise self._corrupt(
                "the manifest is cut off or altered", error, "one JSON line a segment", path
            ) from None

    def _read_spec(self, expected):
        path = self.path / "spec.json"
        if not path.is_file():
            raise self._corrupt("a file of the trace is missing", "no file", "spec.json", path)
        with reading(path):
            data = self._bounded(path)
        found = hashlib.sha256(data).hexdigest()
        if found != expected:
            raise self._corrupt("a file was altered", f"sha256 {found[:12]}", expected[:12], path)
        return data.decode("utf-8", "replace")

    def _bounded(self, path: Path) -> bytes:
        try:
            return read_bounded(path)
        except ValueError as error:
            raise self._corrupt("a file is not one of a trace", error, "", path) from None

    def _require_size(self, entry):
        path = self.path / entry["file"]
        if not path.is_file():
            raise self._corrupt("a segment is missing", "no file", entry["file"], path)
        size = path.stat().st_size
        if size != entry["bytes"]:
            raise self._corrupt(
                "a segment was truncated or extended", f"{size} bytes", entry["bytes"], path
            )

    def verify(self, entry: dict[str, Any]) -> None:
        """Compare a segment's bytes with the manifest's checksum; raises CorruptTrace."""
        path = self.path / entry["file"]
        with reading(path):
            found = sha256_of(path)
        if found != entry["sha256"]:
            raise self._corrupt(
                "a segment was altered", f"sha256 {found[:12]}", entry["sha256"][:12], path
            )

    def verify_all(self) -> int:
        """Verify every segment; returns how many there are."""
        for entry in self.entries:
            self.verify(entry)
        return len(self.entries)

    def _tensors(self, entry):
        if entry["file"] not in self._views:
            self.verify(entry)
            self._views[entry["file"]] = map_tensors(self.path / entry["file"])
        return self._views[entry["file"]]

    def segments(self, layer: int) -> list[dict[str, Any]]:
        """Manifest entries of a layer in token order, without a gap or an overlap between them."""
        if layer not in self._segments:
            self._segments[layer] = self._ordered(layer)
        return self._segments[layer]

    def _ordered(self, layer):
        entries = [entry for entry in self.entries if layer in entry["layers"]]
        entries.sort(key=lambda entry: entry["start"])
        reached = 0
        for entry in entries:
            if entry["start"] != reached:
                raise self._corrupt(
                    f"layer {layer} has a gap or an overlap", f"token {entry['start']}", reached
                )
            reached = entry["stop"]
        if not entries:
            raise self._corrupt("a layer has no segment", f"layer {layer}", "one or more")
        return entries

    def require(self, layers: Sequence[int], tokens: int) -> None:
        """Raise CorruptTrace unless the segments hold every layer from token 0 to ``tokens``."""
        for layer in layers:
            reached = self.segments(layer)[-1]["stop"]
            if reached != tokens:
                raise self._corrupt(f"layer {layer} ends early or late", reached, tokens)

    def parts(self) -> Iterator[tuple[str, Sequence[int], int, int, dict[str, Any]]]:
        """Segments as (file, layers, start, stop, {tensor: (shape, dtype)}), headers only."""
        for entry in self.entries:
            views = self._tensors(entry).items()
            found = {name: (view.shape, DTYPE_NAMES[dtype]) for name, (view, dtype) in views}
            yield entry["file"], entry["layers"], entry["start"], entry["stop"], found

    def names(self, layer: int) -> set[str]:
        """The tensor kinds (``q``, ``k``, ``v``, ``p``, ``lo``, ``hi``) of a layer."""
        views = self._tensors(self.segments(layer)[0])
        return {kind for of, _, kind in (name.partition(".") for name in views) if of == str(layer)}

    def read(self, layer: int, kind: str, heads: slice | None, start: int, stop: int) -> np.ndarray:
        """Tokens ``start .. stop`` of ``heads``, joined across segments; floats as numpy has them.

        A single segment of a dtype numpy knows is handed out as a mapped view, not a copy.
        """
        entries = self.segments(layer)
        touched = [entry for entry in entries if entry["start"] < stop and start < entry["stop"]]
        pieces = []
        # No rows at all are an empty piece of the first segment, which knows shape and dtype.
        for entry in touched or entries[:1]:
            view, dtype = self._view(entry, f"{layer}.{kind}")
            begin, end = (min(max(t, entry["start"]), entry["stop"]) for t in (start, stop))
            base = entry["start"]
            if kind == "p":
                (base, begin), (_, end) = packed_range(base, begin), packed_range(0, end)
            begin, end = begin - base, end - base
            piece = view[begin:end] if heads is None else view[heads, begin:end]
            pieces.append(to_float(piece, dtype))
        if len(pieces) == 1:
            return pieces[0]
        return np.concatenate(pieces, axis=0 if heads is None else 1)

    def _view(self, entry, name):
        try:
            return self._tensors(entry)[name]
        except KeyError:
            raise self._corrupt(
                "a tensor is missing", name, "as the spec declares", self.path / entry["file"]
            ) from None

    def content_hash(self) -> str:
        """SHA-256 over the segments' checksums, which change with any recorded value."""
        return hashlib.sha256(
            "".join(entry["sha256"] for entry in self.entries).encode()
        ).hexdigest()


class MemoryStore:
    """Tensors held in memory, named as in a segment, for traces made from arrays."""

    def __init__(self, tensors: dict[str, np.ndarray], layers: Sequence[int], tokens: int) -> None:
        self._tensors, self._layers, self._tokens = tensors, layers, tokens

    def names(self, layer: int) -> set[str]:
        """The tensor kinds (``q``, ``k``, ``v``, ``p``, ``lo``, ``hi``) of a layer."""
        names = (name.partition(".") for name in self._tensors)
        return {kind for of, _, kind in names if of == str(layer)}

    def read(self, layer: int, kind: str, heads: slice | None, start: int, stop: int) -> np.ndarray:
        """Tokens ``start .. stop`` of ``heads`` (a slice, or None for a tensor without heads)."""
        tensor = self._tensors[f"{layer}.{kind}"]
        if kind == "p":
            start, stop = packed_range(start, stop)
        return tensor[start:stop] if heads is None else tensor[heads, start:stop]

    def parts(self) -> Iterator[tuple[str, Sequence[int], int, int, dict[str, Any]]]:
        """One part: everything, see :meth:`SegmentStore.parts`."""
        found = {name: (array.shape, array.dtype.name) for name, array in self._tensors.items()}
        yield "memory", self._layers, 0, self._tokens, found

    def verify_all(self) -> int:
        """There are no files to verify."""
        return 0

    def content_hash(self) -> str:
        """SHA-256 over names, shapes and bytes."""
        digest = hashlib.sha256()
        for name in sorted(self._tensors):
            array = np.ascontiguousarray(self._tensors[name])
            digest.update(f"{name}{array.shape}{array.dtype}".encode())
            digest.update(array.tobytes())
        return digest.hexdigest()

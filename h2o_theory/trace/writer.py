"""Writing a trace: segments into a hidden folder beside the target, renamed as the last step."""

import json
import os
import shutil
import tempfile
from pathlib import Path

from h2o_theory.errors import BadArgument, OutputExists
from h2o_theory.trace.segments import sha256_of, write_tensors

__all__ = ["TraceWriter"]


class TraceWriter:
    """Collects segments of a trace and publishes them in one rename.

    Until :meth:`commit` returns there is nothing at ``out``: the segments grow in a folder
    ``.<name>.partial-*`` beside it. As a context manager it removes that folder unless
    committed.

    Parameters
    ----------
    out : path
        The folder of the trace.
    overwrite : bool
        Replace an existing trace at the moment of the commit.

    Raises
    ------
    OutputExists
        If ``out`` exists and ``overwrite`` is false.
    BadArgument
        If the parent folder cannot be written.
    """

    def __init__(self, out, *, overwrite=False):
        self.out = Path(out)
        self._overwrite = overwrite
        self._entries = []
        if self.out.exists() and not (overwrite and (self.out / "manifest.jsonl").is_file()):
            raise OutputExists(
                "the output folder exists and is not a trace" if overwrite else "the output exists",
                where=self.out,
                hint="Choose another folder" + ("" if overwrite else ", or allow overwriting"),
            )
        try:
            self.out.parent.mkdir(parents=True, exist_ok=True)
            prefix = f".{self.out.name}.partial-"
            self._folder = Path(tempfile.mkdtemp(prefix=prefix, dir=self.out.parent))
            self._folder.chmod(0o777 & ~_umask())
        except OSError as error:
            raise BadArgument(
                "cannot write the trace there", where=self.out, got=error.strerror
            ) from None

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.abort()

    def add_segment(self, tensors, *, start, stop, layers, dtypes=None):
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
        """
        name = f"seg-{len(self._entries):06d}.safetensors"
        path = self._folder / name
        write_tensors(path, tensors, dtypes or {})
        _sync(path)
        self._entries.append(
            {
                "kind": "segment",
                "file": name,
                "bytes": path.stat().st_size,
                "sha256": sha256_of(path),
                "layers": [int(layer) for layer in layers],
                "start": int(start),
                "stop": int(stop),
            }
        )

    def commit(self, spec):
        """Write ``spec.json`` and the manifest, then rename the folder to ``out``; returns it."""
        spec_path = self._folder / "spec.json"
        spec_path.write_text(spec.to_json(), encoding="utf-8")
        end = {
            "kind": "end",
            "segments": len(self._entries),
            "spec_sha256": sha256_of(spec_path),
        }
        manifest = self._folder / "manifest.jsonl"
        lines = [json.dumps(entry, sort_keys=True) for entry in [*self._entries, end]]
        manifest.write_text("\n".join(lines) + "\n", encoding="utf-8")
        for path in (spec_path, manifest):
            _sync(path)
        replaced = self._folder.with_name(self._folder.name + ".replaced")
        if self._overwrite and self.out.exists():
            self.out.rename(replaced)
        try:
            self._folder.rename(self.out)
        except OSError as error:
            self.abort()
            raise OutputExists(
                "the output folder appeared while recording", where=self.out, got=error.strerror
            ) from None
        shutil.rmtree(replaced, ignore_errors=True)
        return self.out

    def abort(self):
        """Remove the unpublished folder; does nothing after a commit."""
        shutil.rmtree(self._folder, ignore_errors=True)


def _sync(path):
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask

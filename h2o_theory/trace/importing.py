"""Attention matrices in files, turned into traces without holding more than one layer."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from h2o_theory.annotations import PathLike, Progress
from h2o_theory.errors import BadArgument
from h2o_theory.trace.foreign import kv_heads_by_layer, per_layer, row_blocks, rows_spec
from h2o_theory.trace.rows import ROW_SUM_TOLERANCE, largest_row_error, pack_rows
from h2o_theory.trace.segments import to_float
from h2o_theory.trace.sources import open_source
from h2o_theory.trace.writer import TraceWriter

__all__ = ["ImportReport", "import_attention"]


@dataclass(frozen=True)
class ImportReport:
    """What :func:`import_attention` wrote.

    Attributes
    ----------
    paths : tuple of Path
        One trace per sequence.
    layers : tuple of int
    tokens : int
    dtype : str
    worst_row_sum_error : float
        Largest distance of a row's sum from one (with sinks: its excess over one).
    sinks : bool
    ignored : tuple of str
        Arrays of the source that are no attention.
    """

    paths: tuple[Path, ...]
    layers: tuple[int, ...]
    tokens: int
    dtype: str
    worst_row_sum_error: float
    sinks: bool
    ignored: tuple[str, ...]

    def __str__(self):
        kept = "kept as they are" + ("" if self.sinks else ", rescaled to sum to one when read")
        text = (
            f"imported {len(self.paths)} x {self.tokens} tokens in {len(self.layers)} layers; "
            f"sums of rows in {self.dtype} are off by at most {self.worst_row_sum_error:.1e} "
            f"(accepted: {ROW_SUM_TOLERANCE[self.dtype]:g}); rows {kept}"
        )
        return text + (f"; ignored: {', '.join(self.ignored)}" if self.ignored else "")


def import_attention(
    source: PathLike,
    out: PathLike,
    *,
    kv_heads: int | Sequence[int] | None = None,
    group: int | Sequence[int] | None = None,
    name: str | None = None,
    tokens: Any = None,
    sinks: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> ImportReport:
    """Turn attention matrices from a file into a trace, or several sequences into one each.

    Rows are checked (finite, causal, not negative, summing to one within
    :data:`~h2o_theory.trace.rows.ROW_SUM_TOLERANCE` of their dtype) and stored bit for bit
    as they are; a reader rescales each row to sum to one in float64. There are no queries, keys
    or values in such a trace, so nothing that needs them, such as the output error.

    Parameters
    ----------
    source : path
        See :func:`~h2o_theory.trace.sources.open_source`.
    out : path
        Folder of the trace; for B > 1 sequences, of the traces ``000000``, ``000001``, ...
    kv_heads : int or list of int, optional
        Number of kv_heads that consecutive query heads are grouped into, for all layers or for
        each; as many as query heads by default.
    group : int or list of int, optional
        The same, stated as query heads per kv_head.
    name : str, optional
        What the trace calls the model; the source's file name by default.
    tokens : list of int, list of str or array, optional
        Token ids or strings, T of them; for several sequences a list of lists, or [B, T].
    sinks : bool
        The model has attention sinks (gpt-oss), whose share the matrices leave out: rows may sum
        to less than one, and are not rescaled.
    overwrite : bool
        Replace existing traces.
    progress : callable (done, total, label), optional

    Returns
    -------
    ImportReport

    Raises
    ------
    InvalidAttention
        For a file that cannot be read, or the first bad layer, head and row.
    BadArgument
        For heads or tokens that do not fit the matrices.
    OutputExists, UnfinishedTrace, CannotWrite
        As :class:`~h2o_theory.trace.TraceWriter` does. On any error nothing is left.

    Notes
    -----
    O(L B H T^2) time. ``.npy`` and safetensors files are mapped; of an ``.npz`` file one layer is
    in memory.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from h2o_theory import import_attention, open_trace
    >>> rows = np.tril(np.ones((2, 4, 3, 3))) / [[1], [2], [3]]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(folder + "/rows.npy", rows)
    ...     report = import_attention(folder + "/rows.npy", folder + "/rows.trace", kv_heads=2)
    ...     open_trace(report.paths[0]).layer(1).group
    2
    """
    found = open_source(source)
    counts = kv_heads_by_layer(list(found.q_heads), _kv_heads(found, kv_heads, group))
    text = _texts(tokens, found)
    model = {"id": name or Path(source).stem, "source": Path(source).name}
    out = Path(out)
    several = found.sequences > 1
    paths = [out / f"{b:06d}" for b in range(found.sequences)] if several else [out]
    specs = [
        rows_spec(
            found.tokens,
            found.dtype,
            found.layers,
            found.q_heads,
            counts,
            sinks=sinks,
            model=model,
            text={"name": Path(source).name} | ({"sequence": b} if several else {}),
            **text[b],
        )
        for b in range(found.sequences)
    ]
    worst = 0.0
    with contextlib.ExitStack() as stack:
        writers = [
            stack.enter_context(TraceWriter(path, plan=spec, overwrite=overwrite))
            for path, spec in zip(paths, specs, strict=True)
        ]
        for done, (layer, array) in enumerate(found.arrays(), start=1):
            for sequence, writer in zip(array, writers, strict=True):
                worst = max(worst, _add_layer(writer, layer, sequence, found.dtype, sinks))
            if progress:
                progress(done, len(found.layers), "layers imported")
        for writer, spec in zip(writers, specs, strict=True):
            writer.commit(spec)
    return ImportReport(
        tuple(paths), found.layers, found.tokens, found.dtype, worst, sinks, found.ignored
    )


def _add_layer(writer, layer, array, dtype, sinks):
    """Check, pack and write one layer [H, T, T] of one sequence; returns the worst row sum."""
    worst = 0.0
    for start, rows in row_blocks(array):
        numbers = to_float(rows, "BF16") if dtype == "bfloat16" else rows
        worst = max(worst, largest_row_error(numbers, start, layer=layer, dtype=dtype, sinks=sinks))
        name = f"{layer}.p"
        writer.add_segment(
            {name: pack_rows(rows, start)},
            start=start,
            stop=start + rows.shape[1],
            layers=[layer],
            dtypes={name: dtype},
        )
    return worst


def _kv_heads(found, kv_heads, group):
    """The number of kv_heads as given, or from the group."""
    if group is None:
        return kv_heads
    if kv_heads is not None:
        raise BadArgument("kv_heads and group say the same: give one of them")
    groups = per_layer(group, len(found.q_heads), "group")
    if any(size < 1 or heads % size for heads, size in zip(found.q_heads, groups, strict=True)):
        raise BadArgument(
            "group must divide the query heads of each layer",
            got=f"{groups} for {list(found.q_heads)} query heads",
        )
    return [heads // size for heads, size in zip(found.q_heads, groups, strict=True)]


def _texts(tokens, found):
    """``token_ids`` or ``token_strings`` of each sequence."""
    if tokens is None:
        return [{}] * found.sequences
    tokens = tokens.tolist() if hasattr(tokens, "tolist") else tokens
    several = found.sequences > 1 and isinstance(tokens, (list, tuple))
    lists = tokens if several else [tokens]
    fits = len(lists) == found.sequences and all(
        isinstance(part, (list, tuple)) and len(part) == found.tokens for part in lists
    )
    kinds = {type(token) for part in lists if fits for token in part}
    if not fits or kinds not in ({int}, {str}):
        raise BadArgument(
            f"tokens must be {found.tokens} ids, or as many strings"
            + (f", for each of {found.sequences} sequences" if found.sequences > 1 else ""),
        )
    key = "token_ids" if kinds == {int} else "token_strings"
    return [{key: tuple(part)} for part in lists]

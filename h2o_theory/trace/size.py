"""How large a trace will be, known before it is recorded, and whether it fits on the disk."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from h2o_theory.annotations import PathLike
from h2o_theory.errors import BadArgument, CannotWrite
from h2o_theory.trace.spec import TraceSpec

__all__ = ["DISK_MARGIN", "header_allowance", "packed_bytes", "predict_bytes", "require_room"]

ITEM_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}

DISK_MARGIN = 64 << 20
"""Bytes that a recording leaves free, for everything else that writes to the disk."""


def predict_bytes(spec: TraceSpec) -> int:
    r"""Bytes of all tensors of a trace, exact, from its spec alone.

    .. math:: \sum_{\text{layers}} T \left( b \, (H_q d + H_{kv} d + H_{kv} d_v) + 8 \right)
              \quad\text{or}\quad
              \sum_{\text{layers}} b \left( H_q \tfrac{T (T + 1)}{2} + T H_{kv} d_v \right)

    for queries, keys and values (with two int32 per row for its visible interval), or packed
    rows; b is the size of a number.

    Parameters
    ----------
    spec : TraceSpec
        With ``tokens`` and ``layers``.

    Raises
    ------
    BadArgument
        If the spec names no length or a dtype that a trace cannot hold.
    """
    if spec.tokens is None or spec.dtype not in ITEM_BYTES:
        raise BadArgument(
            f"spec must state a length and one of the dtypes {', '.join(ITEM_BYTES)}",
            got=f"{spec.tokens} tokens in {spec.dtype}",
        )
    tokens, item, total = spec.tokens, ITEM_BYTES[spec.dtype], 0
    for layer in spec.layers:
        total += item * tokens * layer.kv_heads * layer.value_dim
        if spec.content == "qkv":
            total += item * tokens * (layer.q_heads + layer.kv_heads) * layer.head_dim + 8 * tokens
    return total if spec.content == "qkv" else total + packed_bytes(spec)


def packed_bytes(spec: TraceSpec) -> int:
    """Bytes that the same rows take as packed lower triangles, in the trace's dtype."""
    triangle = spec.tokens * (spec.tokens + 1) // 2
    return ITEM_BYTES[spec.dtype] * triangle * sum(layer.q_heads for layer in spec.layers)


def header_allowance(spec: TraceSpec) -> int:
    """Upper bound on what files hold besides tensors: headers, manifest, token ids and strings.

    64 KiB, 2 KiB per layer, 40 bytes per token, and one hundredth of the tensors.
    """
    return (64 << 10) + (2 << 10) * len(spec.layers) + 40 * spec.tokens + predict_bytes(spec) // 100


def require_room(path: PathLike, specs: TraceSpec | Sequence[TraceSpec], present: int = 0) -> None:
    """Refuse recordings that would not fit on the disk of ``path`` together.

    Parameters
    ----------
    path : path
        The folder of the trace or traces; it need not exist.
    specs : TraceSpec or list of TraceSpec
        What is to be recorded.
    present : int
        Bytes of it that are already on the disk.

    Raises
    ------
    CannotWrite
        If the free space less :data:`DISK_MARGIN` is smaller than what would be written.
    """
    place = Path(path).absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    specs = [specs] if isinstance(specs, TraceSpec) else specs
    planned = sum(predict_bytes(spec) + header_allowance(spec) for spec in specs)
    needed = max(planned - present, 0)
    if needed > free - DISK_MARGIN:
        raise CannotWrite(
            "the recording does not fit on the disk",
            where=path,
            got=f"{needed / 1e6:.1f} MB to write, {free / 1e6:.1f} MB free",
            expected=f"at least {DISK_MARGIN / 1e6:.1f} MB left afterwards",
            hint="Record fewer tokens, --layers or --kv-heads, leave out V with --store qk "
            "(store='qk'), or store in float16",
        )

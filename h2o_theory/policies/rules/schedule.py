"""A schedule that somebody else has decided, read from a file."""

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from h2o_theory.errors import BadArgument, BadBudget
from h2o_theory.policies.base import Context
from h2o_theory.policies.known import KnownSchedule
from h2o_theory.policies.registry import register

__all__ = ["Schedule"]


@register
@dataclass(frozen=True)
class Schedule(KnownSchedule):
    r"""Keep what a file says: ``schedule:file=PATH``.

    .. math:: S_t = \{ j \le t \le e_j \}

    The file is an ``.npz`` or ``.safetensors`` file with one integer array [T] for each kv_head,
    named ``layer.kv_head`` such as ``"3.0"``: the step e_j at which each token is evicted, T if
    it never is. :func:`h2o_theory.schedules` returns such arrays. No scored row may
    see more than ``budget`` entries.

    Nothing is known of how the schedule was made, so it counts as clairvoyant.

    Parameters
    ----------
    file : str
    """

    name: ClassVar[str] = "schedule"
    kind: ClassVar[str] = "clairvoyant"
    source: ClassVar[str] = "a file"

    file: str = ""

    def require(self, context: Context) -> None:
        """Raise BadBudget or BadArgument unless the file has a schedule for that context."""
        super().require(context)
        self.schedule(context, None)

    def schedule(self, context: Context, optima: object) -> np.ndarray:
        """The array of the context's layer and kv_head.

        Raises
        ------
        BadArgument
            If the file cannot be read, lacks that kv_head, or does not hold T steps, none before
            the token's own.
        BadBudget
            If a scored row sees more entries than the budget.
        """
        if not self.file:
            raise BadArgument(
                "file must name a saved schedule",
                where=self.name,
                expected="schedule:file=PATH, .npz or .safetensors",
            )
        key, tokens = f"{context.layer}.{context.kv_head}", context.tokens
        found = _read(self.file, _age(self.file)).get(key)
        where = f"{self.name}:file={self.file}, {key}"
        if found is None:
            raise BadArgument(f"the file must hold an array {key!r}", where=where)
        if found.shape != (tokens,) or found.dtype.kind not in "iu":
            raise BadArgument(
                f"a schedule must be an array of {tokens} integers, one for each token",
                where=where,
                got=f"{found.dtype} {list(found.shape)}",
            )
        steps, arrival = found.astype(np.int64), np.arange(tokens)
        if (steps < arrival).any():
            early = int(np.flatnonzero(steps < arrival)[0])
            raise BadArgument(
                "no token may be evicted before it arrives",
                where=where,
                got=f"step {steps[early]} for token {early}",
            )
        gone = np.bincount(np.minimum(steps, tokens) + 1, minlength=tokens + 2)[: tokens + 1]
        size = (arrival + 1 - np.cumsum(gone)[:tokens])[context.prefill :]
        if size.max(initial=0) > context.budget:
            row = context.prefill + int(np.argmax(size > context.budget))
            raise BadBudget(
                f"a scored row must see at most {context.budget} entries, the budget",
                where=where,
                got=f"{size[row - context.prefill]} in row {row}",
            )
        return np.minimum(steps, tokens)


def _age(path):
    """What changes with the file: a schedule written anew is read anew."""
    try:
        stat = Path(path).stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size


@functools.lru_cache(maxsize=4)
def _read(path, age):
    try:
        if str(path).endswith(".safetensors"):
            from safetensors.numpy import load_file

            return load_file(path)
        with np.load(path, allow_pickle=False) as archive:
            return dict(archive)
    except Exception as error:  # either library raises what it likes at a damaged file
        raise BadArgument(
            "file must be an .npz or .safetensors file that can be read",
            where=f"schedule:file={path}",
            got=f"{type(error).__name__}: {error}",
        ) from None

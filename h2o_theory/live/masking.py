"""Masks inside the model: all keys are kept, each query sees those that a pattern names."""

import numpy as np

from h2o_theory.engine.rows import Block
from h2o_theory.errors import BadArgument
from h2o_theory.live.chooser import ScheduleChooser
from h2o_theory.masks.run import MaskRun

__all__ = ["HiddenKeys", "MaskChooser"]


class MaskChooser(ScheduleChooser):
    """Visibility by a mask of :mod:`h2o_theory.masks` at a budget; nothing is ever evicted.

    The attention of a row over all keys decides, as the mask's own definition says, and is
    computed for that reason. For a mask that looks at queries and keys those of the tokens that
    have arrived are kept, 8 T d bytes each; the others are zero and, masks being causal, not used.

    Parameters
    ----------
    mask : Mask
    budget : int
    tokens : int
    prefill : int
        Rows before it see everything.

    Raises
    ------
    BadBudget
        If the budget has no place for the row's own key.
    """

    needs_rows = True

    def __init__(self, mask, budget, tokens, prefill=0):
        super().__init__(np.full(tokens, tokens, dtype=np.int64))
        self._mask, self._tokens, self._tensors = mask, tokens, {}
        self._keys, self._seen = MaskRun(mask, budget, tokens, prefill), None

    def arrive(self, start, queries, keys, values, scaling):
        """Keep the queries and keys if the mask looks at them."""
        if self._mask.needs != "qk":
            return
        new = {"queries": queries, "keys": keys}
        if not self._tensors:
            self._tensors = {
                name: np.zeros((*part.shape[:-2], self._tokens, part.shape[-1]))
                for name, part in new.items()
            } | {"scaling": scaling}
        for name, part in new.items():
            stop = start + part.shape[-2]
            self._tensors[name][..., start:stop, :] = part.double().cpu().numpy()

    def advance(self, rows, start, sink_share=None):
        """Choose the keys of the rows ``start .. start + B``."""
        stop = start + rows.shape[1]
        full = np.where(np.arange(rows.shape[2]) < stop, rows, 0.0)
        sinks = np.zeros(rows.shape[:2]) if sink_share is None else sink_share
        self._seen = self._keys.visible(
            Block(start, full, full.mean(axis=0), sinks), **self._tensors
        )

    def visible(self, positions, start, stop):
        """As the mask chose; raises BadArgument if it was not shown the row yet."""
        if self._seen is None:
            raise BadArgument(
                "a mask decides by the row itself, which with slots depends on what it shows",
                where=self._mask.name,
                hint="Use positions='original'",
            )
        return self._seen[:, positions]


class HiddenKeys(ScheduleChooser):
    """Visibility of everything but some keys, which no query but their own sees.

    Parameters
    ----------
    hidden : bool array [T]
    """

    def __init__(self, hidden):
        tokens = len(hidden)
        super().__init__(np.where(hidden, np.arange(tokens), tokens))

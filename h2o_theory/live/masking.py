"""Masks inside the model: all keys are kept, each query sees those that a pattern names."""

import numpy as np

from h2o_theory.errors import BadArgument
from h2o_theory.live.chooser import ScheduleChooser
from h2o_theory.masks.replay import visible_keys

__all__ = ["HiddenKeys", "MaskChooser"]


class MaskChooser(ScheduleChooser):
    """Visibility by a mask of :mod:`h2o_theory.masks` at a budget; nothing is ever evicted.

    The attention of a row over all keys decides, as the mask's own definition says, and is
    computed for that reason.

    Parameters
    ----------
    mask : Mask
    budget : int
    tokens : int

    Raises
    ------
    BadArgument
        For a mask that looks at queries and keys.
    """

    needs_rows = True

    def __init__(self, mask, budget, tokens):
        if mask.needs == "qk":
            raise BadArgument(
                "a mask that looks at queries and keys is replayed on traces only", where=mask.name
            )
        super().__init__(np.full(tokens, tokens, dtype=np.int64))
        self._mask, self._budget, self._totals = mask, budget, np.zeros(tokens)
        self._seen = None

    def advance(self, rows, start, sink_share=None):
        """Choose the keys of the rows ``start .. start + B``."""
        stop = start + rows.shape[1]
        full = np.where(np.arange(rows.shape[2]) < stop, rows, 0.0)
        mass = full.sum(axis=-1) + (0.0 if sink_share is None else sink_share)
        mean = (full / mass[:, :, None]).mean(axis=0)
        self._seen = visible_keys(self._mask, self._budget, mean, start, self._totals, {})

    def visible(self, positions, start, stop):
        """As the mask chose."""
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

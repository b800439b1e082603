"""Sparse attention patterns that choose their keys anew for every row: masks, not caches.

A key that one row leaves out may return for the next, so all keys must be kept: a mask saves
computing, not memory. :func:`replay_masks` measures them at the budgets of the caches, apart.
"""

from h2o_theory.masks.base import Mask, View
from h2o_theory.masks.registry import available_masks, make_mask, parse_masks
from h2o_theory.masks.replay import MASK_COLUMNS, replay_masks

__all__ = [
    "MASK_COLUMNS",
    "Mask",
    "View",
    "available_masks",
    "make_mask",
    "parse_masks",
    "replay_masks",
]

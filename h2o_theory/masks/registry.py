"""Names to masks."""

from h2o_theory.masks.base import Mask
from h2o_theory.masks.double_sparsity import DoubleSparsity
from h2o_theory.masks.fixed import Fixed
from h2o_theory.masks.h2o_hf import H2OHf
from h2o_theory.masks.hip import HiP
from h2o_theory.masks.quest import Quest
from h2o_theory.masks.strided import Strided
from h2o_theory.masks.topk import TopK
from h2o_theory.policies.parse import make_named, parse_named

__all__ = ["available_masks", "make_mask", "parse_masks"]

_MASKS = (DoubleSparsity, Fixed, H2OHf, HiP, Quest, Strided, TopK)


def available_masks():
    """All shipped masks, ``{name: class}``, sorted by name."""
    return {cls.name: cls for cls in sorted(_MASKS, key=lambda cls: cls.name)}


def make_mask(text):
    """A mask from ``"name"`` or ``"name:parameter=value,..."``; raises UnknownName, BadArgument."""
    return make_named(text, "mask", available_masks())


def parse_masks(masks):
    """Masks from a comma-separated string, or a list of strings and :class:`Mask` objects."""
    return parse_named(masks, Mask, available_masks())

"""Names to transforms."""

from h2o_theory.policies.parse import make_named, parse_named
from h2o_theory.transforms.base import Transform
from h2o_theory.transforms.exact import Exact
from h2o_theory.transforms.kivi import KIVI
from h2o_theory.transforms.less import LESS
from h2o_theory.transforms.think import ThinK

__all__ = ["available_transforms", "make_transform", "parse_transforms"]

_TRANSFORMS = (Exact, KIVI, LESS, ThinK)


def available_transforms():
    """All shipped transforms, ``{name: class}``."""
    return {cls.name: cls for cls in _TRANSFORMS}


def make_transform(text):
    """A transform from ``"name:parameter=value,..."``; raises UnknownName, BadArgument."""
    return make_named(text, "transform", available_transforms())


def parse_transforms(transforms):
    """Transforms from a comma-separated string, or a list of strings and :class:`Transform`."""
    return parse_named(transforms, Transform, available_transforms())

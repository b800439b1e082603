"""Names to transforms."""

from h2o_theory.errors import UnknownTransform
from h2o_theory.policies.parse import make_named, split_names
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
    """A transform from ``"name:parameter=value,..."``; raises UnknownTransform, BadArgument."""
    return make_named(text, available_transforms(), UnknownTransform)


def parse_transforms(transforms):
    """Transforms from a comma-separated string, or a list of strings and :class:`Transform`."""
    if isinstance(transforms, str):
        transforms = split_names(transforms)
    elif isinstance(transforms, Transform):
        transforms = [transforms]
    made = [make_transform(item) if isinstance(item, str) else item for item in transforms]
    wrong = [item for item in made if not isinstance(item, Transform)]
    if wrong or not made:
        raise UnknownTransform(
            "this is not a transform" if wrong else "no transform was given",
            where="transforms",
            got=repr(wrong[0]) if wrong else "",
            expected=", ".join(available_transforms()),
        )
    return made

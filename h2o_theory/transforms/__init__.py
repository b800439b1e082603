"""Keys and values in fewer bits, under any policy: output error at equal bytes."""

from h2o_theory.transforms.base import FULL_BITS, Stored, Transform
from h2o_theory.transforms.less import LESS
from h2o_theory.transforms.quantise import quantise
from h2o_theory.transforms.registry import (
    available_transforms,
    make_transform,
    parse_transforms,
)
from h2o_theory.transforms.replay import TRANSFORM_COLUMNS, replay_transforms

__all__ = [
    "FULL_BITS",
    "LESS",
    "TRANSFORM_COLUMNS",
    "Stored",
    "Transform",
    "available_transforms",
    "make_transform",
    "parse_transforms",
    "quantise",
    "replay_transforms",
]

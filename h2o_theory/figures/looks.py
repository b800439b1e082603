"""A fixed look for each policy, so that it is recognised in every figure and in grey print.

Colour alone never carries the identity: each policy also has its own marker and dash. Hues start
from the Okabe-Ito and Tol palettes, at a middle lightness that reads on a light and a dark page.
"""

import hashlib
from dataclasses import dataclass, replace

__all__ = ["INK", "LOOKS", "Look", "policy_look"]

INK = "#1b1f24"

_SOLID, _DASHED, _DOTTED = (0, ()), (0, (5, 2)), (0, (1.2, 1.8))
_DASHDOT, _LONG, _DOUBLE = (0, (5, 1.6, 1.2, 1.6)), (0, (9, 2.5)), (0, (5, 1.4, 1, 1.4, 1, 1.4))


@dataclass(frozen=True)
class Look:
    """Colour, marker and dash of one series.

    Attributes
    ----------
    colour : str
        Hexadecimal RGB.
    marker : str
        A matplotlib marker.
    dash : tuple
        A matplotlib line style, ``(offset, on-off sequence in points)``.
    hollow : bool
        True when the marker is drawn unfilled: the second, fourth, ... variant of a policy.
    width : float
        Line width in points.
    """

    colour: str
    marker: str
    dash: tuple
    hollow: bool = False
    width: float = 1.3


LOOKS = {
    "optimum": Look(INK, "*", _SOLID, width=1.8),
    "full": Look("#6b7280", "_", _DOTTED),
    "h2o": Look("#d55e00", "o", _SOLID, width=2.0),
    "heavy": Look("#e69f00", "s", _DASHED),
    "greedy": Look("#009e73", "^", _SOLID),
    "tova": Look("#cc79a7", "D", _DASHDOT),
    "lru": Look("#9a8f2d", "P", _LONG),
    "lfu": Look("#a6714e", "X", _DOUBLE),
    "recent": Look("#56a9dc", "v", _DASHED),
    "sink": Look("#2478b8", ">", _SOLID),
    "random": Look("#8b919b", "d", _DOTTED),
    "belady": Look("#8667c9", "h", _DASHDOT),
    "belady_mass": Look("#36a3a0", "p", _LONG),
    "belady_rate": Look("#5b53b8", "H", _SOLID),
    "oracle_static": Look("#7f6ad0", "8", _DOUBLE),
    "h2o_real_drop": Look("#e0783c", "o", _DASHED),
    "h2o_flexgen": Look("#c4471b", "s", _DASHDOT),
    "h2o_lm_eval": Look("#b8620a", "^", _DOUBLE),
    "h2o_lm_eval_llama": Look("#a05a8c", "D", _DOTTED),
    "algorithm1": Look("#cf9b34", "<", _DOTTED),
    "algorithm2": Look("#b3892b", ">", _DOTTED),
    "first": Look("#6fa8c9", "<", _LONG),
    "fifo": Look("#3f8fd2", "1", _DOTTED),
    "lru_k": Look("#8a9a3b", "P", _DASHDOT),
    "lrfu": Look("#b57f5a", "X", _SOLID),
    "scissorhands": Look("#4d9a5a", "v", _DASHDOT),
    "scissorhands_code": Look("#6aa84f", "v", _DOTTED),
    "keyformer": Look("#c05a9a", "*", _DASHED),
    "snapkv": Look("#d1495b", "d", _SOLID),
    "buzz": Look("#b58a00", "h", _LONG),
    "spatten": Look("#2a9d8f", "s", _DOUBLE),
    "vatp": Look("#d9607a", "p", _DASHED),
    "key_norm": Look("#5f7fbf", "2", _DASHED),
    "key_diff": Look("#7b9acc", "3", _DASHDOT),
    "expected_attention": Look("#9b72c4", "4", _LONG),
    "coverage": Look("#2f9e6e", "8", _DASHED),
}

_SPARE_COLOURS = ("#c8557e", "#5b8c3a", "#4f86e0", "#b0602f", "#7f8f4f", "#9d5fb5", "#3e9c8a")
_SPARE_MARKERS = ("<", "8", "H", "^", "s", "D", "v")
_DASHES = (_SOLID, _DASHED, _DASHDOT, _LONG, _DOUBLE, _DOTTED)


def policy_look(policy, variant=0):
    """The look of a policy; the same name always gets the same look, known or not.

    Parameters
    ----------
    policy : str
        The policy's name. A name this package does not ship draws its look from the SHA-256 of
        the name, never from Python's salted ``hash``.
    variant : int
        0 for the first set of parameters of this policy in a table, 1 for the second, and so on:
        a variant keeps the colour and takes another dash and, alternately, a hollow marker.

    Returns
    -------
    Look
    """
    look = LOOKS.get(policy) or _spare_look(policy)
    if variant == 0:
        return look
    start = _DASHES.index(look.dash)
    dash = _DASHES[(start + variant) % len(_DASHES)]
    return replace(look, dash=dash, hollow=variant % 2 == 1, width=1.3)


def _spare_look(policy):
    digest = hashlib.sha256(policy.encode()).digest()
    colour, marker, dash = (
        choices[byte % len(choices)]
        for choices, byte in zip((_SPARE_COLOURS, _SPARE_MARKERS, _DASHES), digest, strict=False)
    )
    return Look(colour, marker, dash)

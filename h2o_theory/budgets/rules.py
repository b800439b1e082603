"""Budget rules: how a total is divided over layers and kv_heads, as a policy's companion.

Each rule is a frozen object that, called with a trace and a prefill, returns the budgets
``{(layer, kv_head): tokens}`` for ``replay(trace, policies, [rule])``. They sum to the average
budget times the number of kv_heads of the trace, exactly. A rule says what it ``needs``: ``rows``
of the trace, or ``kv_heads`` alone, so that it serves a running model too
(:class:`KvHeads`).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from h2o_theory.annotations import Head
from h2o_theory.budgets.text import parse_budget
from h2o_theory.errors import BadArgument, BadBudget

__all__ = ["RULES", "AdaKV", "KvHeads", "PyramidKV", "apportion"]


@dataclass(frozen=True)
class KvHeads:
    """The part of a trace that a model's configuration tells, by the names that a trace has.

    A budget rule with ``needs = "kv_heads"`` takes one in place of a trace.

    Attributes
    ----------
    tokens : int
        Length T of the sequence.
    layers : tuple of int
    count : int
        kv_heads of each layer.
    """

    tokens: int
    layers: tuple[int, ...]
    count: int

    def kv_heads(self, layer: int) -> tuple[int, ...]:
        """The kv_heads of a layer, ascending."""
        return tuple(range(self.count))


def apportion(shares: list, total: int, least: int, most: int) -> list[int]:
    r"""Whole numbers between ``least`` and ``most`` that sum to ``total``, close to the shares.

    Shares are scaled to the total and clipped, the rest is given to those not clipped, until
    nothing changes; then fractions are rounded by largest remainder, the first ones among equals.

    Parameters
    ----------
    shares : list of Fraction or int
        Not negative.
    total, least, most : int
        With ``n * least <= total <= n * most``.

    Returns
    -------
    list of int

    Examples
    --------
    >>> apportion([5, 3, 1], 10, 1, 10)
    [6, 3, 1]
    """
    free, fixed = set(range(len(shares))), {}
    while free:
        rest = total - sum(fixed.values())
        weight = sum(shares[i] for i in free)
        ideal = {
            i: Fraction(rest) * shares[i] / weight if weight else Fraction(rest, len(free))
            for i in free
        }
        low = {i for i in free if ideal[i] < least}
        high = {i for i in free if ideal[i] > most}
        if not low and not high:
            break
        # Clip the side with the larger overflow only: the other one may come right by itself.
        lacking = sum(least - ideal[i] for i in low)
        exceeding = sum(ideal[i] - most for i in high)
        clipped = low if lacking >= exceeding else high
        fixed |= dict.fromkeys(clipped, least if clipped is low else most)
        free -= clipped
    found = [fixed[i] if i in fixed else int(ideal[i]) for i in range(len(shares))]
    by_remainder = sorted(free, key=lambda i: (found[i] - ideal[i], i))
    for i in by_remainder[: total - sum(found)]:
        found[i] += 1
    return found


@dataclass(frozen=True)
class PyramidKV:
    r"""Budgets that fall from the first layer to the last, the same for all heads of a layer.

    .. math:: k_l = w + h_l, \qquad h_l = h_0 - l \, \frac{h_0 - h_{L-1}}{L - 1}, \qquad
              h_{L-1} = \frac{k - w}{\beta}, \quad h_0 = 2 (k - w) - h_{L-1}

    over the layers of the trace or model in their order, with w the entries of the observation
    window and the query's own. Lower layers attend broadly and need more.

    Source: arXiv 2406.02069 (window 8, beta 20). Departures: the code truncates the step between
    layers, so that its budgets exceed the total; here they sum to it exactly, and no budget is
    above T or below 1. With one layer it is the uniform budget.

    Parameters
    ----------
    budget : str or int
        The average budget k.
    window : int
        Shrinks to half of a small budget, as in ``snapkv``.
    beta : float
        Above 1.
    """

    budget: str | int
    window: int = 8
    beta: float = 20.0
    needs = "kv_heads"

    def __post_init__(self) -> None:
        parse_budget(self.budget)
        if self.window < 0 or self.beta <= 1:
            raise BadArgument(
                "window must be at least 0 and beta above 1",
                where="PyramidKV",
                got=f"window={self.window}, beta={self.beta}",
            )

    @property
    def __name__(self) -> str:
        return f"pyramid({self.budget})"

    def __call__(self, trace: Any, prefill: int = 0) -> dict[Head, int]:
        """The budgets, ``{(layer, kv_head): tokens}``, for a Trace or KvHeads; O(layers)."""
        k, layers = parse_budget(self.budget).resolve(trace.tokens), trace.layers
        kept = min(self.window, (k - 1) // 2) + 1
        last = (k - kept) / Fraction(str(self.beta))
        first = 2 * (k - kept) - last
        steps = max(len(layers) - 1, 1)
        shares = {
            (layer, head): kept + first - (first - last) * index / steps
            for index, layer in enumerate(layers)
            for head in trace.kv_heads(layer)
        }
        found = apportion(list(shares.values()), k * len(shares), 1, trace.tokens)
        return dict(zip(shares, found, strict=True))


@dataclass(frozen=True)
class AdaKV:
    r"""Budgets of the kv_heads of a layer by how many of the layer's best scores are theirs.

    With v^h the pooled scores of ``snapkv`` at the end of the prompt and b = k - w,

    .. math:: c_h = \Big| \Big\{ j : v^h(j) \in \mathrm{top}_{H b} \bigcup_{h'} v^{h'} \Big\} \Big|,
              \qquad k_h = w + (1 - \alpha) c_h + \alpha b

    The top of the pooled scores minimises a bound on the layer's loss; a share alpha of an even
    budget is left to every head.

    Source: arXiv 2407.11550 (window 32, maximum over 7, alpha 0.2). Departures: the code rounds
    each head's budget, so that the sum may miss; here it is the total exactly. Scores are the mean
    over the group of a kv_head.

    Parameters
    ----------
    budget : str or int
        The average budget k.
    window : int
        Last prompt rows that score, and entries that every head keeps; shrinks to half of a small
        budget.
    kernel : int
        Odd; maximum over so many neighbours.
    alpha : float
    """

    budget: str | int
    window: int = 32
    kernel: int = 7
    alpha: float = 0.2
    needs = "rows"

    def __post_init__(self) -> None:
        parse_budget(self.budget)
        if self.window < 1 or self.kernel < 1 or self.kernel % 2 == 0 or not 0 <= self.alpha <= 1:
            raise BadArgument(
                "window must be at least 1, kernel odd, and alpha from 0 to 1",
                where="AdaKV",
                got=f"window={self.window}, kernel={self.kernel}, alpha={self.alpha}",
            )

    @property
    def __name__(self) -> str:
        return f"ada({self.budget})"

    def __call__(self, trace: Any, prefill: int) -> dict[Head, int]:
        """The budgets, ``{(layer, kv_head): tokens}``; reads the last prompt rows of every head.

        Raises
        ------
        BadBudget
            Without a prompt longer than the window: the rule looks at nothing else.
        """
        k = parse_budget(self.budget).resolve(trace.tokens)
        window = max(min(self.window, (k - 1) // 2), 1)
        if prefill <= window:
            raise BadBudget(
                "the budget rule needs a prompt longer than its window",
                where=self.__name__,
                got=f"prefill={prefill}",
                expected=f"prefill above {window}",
            )
        budgets = {}
        for layer in trace.layers:
            heads = trace.kv_heads(layer)
            scores = np.stack([self._scores(trace, layer, h, prefill, window) for h in heads])
            kept, total = min(window, (k - 1) // 2) + 1, k * len(heads)
            best = np.argsort(-scores.ravel(), kind="stable")[: len(heads) * (k - kept)]
            won = np.bincount(best // scores.shape[1], minlength=len(heads)).tolist()
            alpha = Fraction(str(self.alpha))
            shares = [kept + (1 - alpha) * count + alpha * (k - kept) for count in won]
            found = apportion(shares, total, 1, trace.tokens)
            budgets |= {(layer, head): b for head, b in zip(heads, found, strict=True)}
        return budgets

    def _scores(self, trace: Any, layer: int, head: int, prefill: int, window: int) -> np.ndarray:
        rows = trace.rows(layer, head, prefill - window, prefill).mean(axis=0)
        sums = rows.sum(axis=0)[: prefill - window]
        padded = np.pad(sums, self.kernel // 2, constant_values=-np.inf)
        return np.lib.stride_tricks.sliding_window_view(padded, self.kernel).max(axis=1)


RULES = {"pyramid": PyramidKV, "ada": AdaKV}
"""Budget rules by name, as in ``pyramid:20%``."""

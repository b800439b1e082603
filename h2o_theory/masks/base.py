"""What a mask is: a rule that names, for each row, the keys it sees."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from h2o_theory.errors import BadBudget
from h2o_theory.policies.checks import require_share

__all__ = ["Mask", "View", "keep_largest", "require_pages"]


@dataclass(frozen=True, eq=False)
class View:
    """What a mask may look at while it decides a block of rows of one kv_head.

    Attributes
    ----------
    start : int
        The first row of the block.
    rows : numpy.ndarray [G, B, T]
        Attention over all keys; zero above the diagonal.
    mean : numpy.ndarray [B, T]
        Over the group.
    sink_share : numpy.ndarray [G, B]
        What a sink without a key takes of each row.
    budget : int
        Keys the pattern may show each row, its own included.
    queries : numpy.ndarray [G, T, d] or None
    keys : numpy.ndarray [T, d] or None
        After rotary embedding; None unless the mask needs them. Those of position j are known
        from row j on.
    scaling : float
        Factor of the logits.
    """

    start: int
    rows: np.ndarray
    mean: np.ndarray
    sink_share: np.ndarray
    budget: int
    queries: np.ndarray | None = None
    keys: np.ndarray | None = None
    scaling: float = 1.0

    @property
    def tokens(self):
        """T."""
        return self.mean.shape[1]

    @property
    def row(self):
        """Row numbers t of the block, [B, 1]."""
        return np.arange(self.start, self.start + len(self.mean))[:, None]

    @property
    def column(self):
        """Key positions j, [1, T]."""
        return np.arange(self.tokens)[None, :]

    @property
    def own_queries(self):
        """The queries of the block's rows, [G, B, d]."""
        return self.queries[:, self.start : self.start + len(self.mean)]

    @property
    def causal(self):
        """Which keys exist at each row, bool [B, T]."""
        return self.column <= self.row


@dataclass(frozen=True)
class Mask:
    r"""Base of all masks: a frozen dataclass whose fields are the parameters.

    :meth:`pattern` gives for each row t the keys it sees, at most ``view.budget``, its own always
    among them. It is a pure function of its view; a mask that carries something from row to row
    starts an object with a :meth:`pattern` of its own for each run, see :meth:`begin`.

    With ``heavy`` = a share of the budget, the pattern gets the rest, and the heavy hitters of the
    rows before t join it: the keys outside the pattern with most

    .. math:: s_{t-1}(j) = \sum_{j \le t' < t} \bar A[t', j],

    the newer among equals.

    Parameters
    ----------
    heavy : float
        Share of the budget for heavy hitters, rounded down; 0 is the bare pattern.
    """

    name: ClassVar[str] = ""
    needs: ClassVar[str] = "positions"
    """``positions``, ``rows`` or ``qk``: what the rule looks at."""
    source: ClassVar[str] = ""

    heavy: float = 0.0

    def __post_init__(self):
        require_share(self, "heavy")

    def begin(self, budget, tokens, prefill):
        """What has :meth:`pattern` for one kv_head, asked once for every block, in order.

        The mask itself, unless it carries something from row to row.

        Parameters
        ----------
        budget : int
            As in every :class:`View` of the run.
        tokens, prefill : int
            T, and how many rows see every key whatever the pattern says.
        """
        return self

    def pattern(self, view):
        """The keys that each row of the block sees, bool [B, T]."""
        raise NotImplementedError


def keep_largest(scores, allowed, count):
    """The ``count`` largest allowed scores of each row, bool [B, T]; the newer among equals.

    Fewer where fewer are allowed. O(B T log T).
    """
    kept = np.zeros(scores.shape, dtype=bool)
    if count > 0:
        # A stable ascending sort leaves equals in order of position, the newest last.
        order = np.argsort(np.where(allowed, scores, -np.inf), axis=1, kind="stable")
        np.put_along_axis(kept, order[:, -count:], True, axis=1)
    return kept & allowed


def require_pages(mask, name, budget):
    """How many whole pages a budget pays for, parameter ``name`` each; raises BadBudget if none."""
    page = getattr(mask, name)
    if page > budget:
        raise BadBudget(
            f"the budget is smaller than one {name}",
            where=f"{mask.name}:{name}",
            got=f"{name}={page} with {budget} keys for the pattern",
            expected=f"{name} of at most the budget",
        )
    return budget // page

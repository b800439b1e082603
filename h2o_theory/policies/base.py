"""What a policy is: a rule that scores the visible entries; the engine does everything else."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from hashlib import sha256
from typing import Any, ClassVar

import numpy as np

from h2o_theory.errors import BadArgument
from h2o_theory.policies.checks import GROUP_REDUCTIONS, ROWS, require_common, require_one_of
from h2o_theory.policies.kernels import NoSettings, observe_nothing, rate_nothing
from h2o_theory.policies.parts import Parts, resolve_parts
from h2o_theory.policies.tensors import TENSORS, Tensors

__all__ = ["GROUP_REDUCTIONS", "ROWS", "CompiledPolicy", "Context", "Policy"]

_DECLARATIONS = {
    "kind": ("online", "clairvoyant", "reference"),
    "rows": ROWS,
    "group": GROUP_REDUCTIONS,
    "scope": ("kv_head", "layer", "model"),
    "positions": ("original", "slot"),
}
_NEEDS = ("positions", "rows", *TENSORS)


@dataclass(frozen=True)
class Context:
    """What one replay of one kv_head tells a policy before it starts.

    Attributes
    ----------
    budget, tokens, prefill : int
        k, T and the number of unscored prompt rows.
    layer, kv_head, seed : int
        They determine the random stream, so that no two heads draw the same numbers.
    tensors : Tensors or None
        Queries, keys and values of the kv_head, as far as the policy's ``needs`` names them.
    """

    budget: int
    tokens: int
    prefill: int = 0
    layer: int = 0
    kv_head: int = 0
    seed: int = 0
    tensors: Tensors | None = field(default=None, compare=False, repr=False)


class Policy:
    """Base of every policy, with a default for everything that others ask of one.

    Derive from :class:`~h2o_theory.PlainPolicy` (methods in Python),
    :class:`~h2o_theory.policies.CompiledPolicy` (compiled functions) or
    :class:`~h2o_theory.policies.KnownSchedule` (nothing left to decide).

    Attributes
    ----------
    name, source : str
        ``source`` is the paper or code that a shipped policy follows.
    kind : {"online", "clairvoyant", "reference"}
        Whether it sees up to step t or the whole trace, or is no cache at all.
    needs : str
        What the rule looks at: ``positions``, or any of ``rows queries unrotated keys values``.
    rows : {"renormalised", "raw"}
        Rows over what the cache holds, or the recorded full rows.
    group : {"mean", "sum", "max", "first"}
        Reduction of the row over the query heads that share a kv_head.
    scope : {"kv_head", "layer", "model"}
        Who shares a retained set: nobody, all heads of a layer, or all heads of the model. A wider
        scope sees the rows of all those heads as one group.
    positions : {"original", "slot"}
        Whether positions are those of the text or are counted within the cache.
    nested : bool
        Whether priorities come from full rows alone, so that one pass serves all budgets.
    needs_future : bool
        Whether it is given the mean rows of the whole trace before it starts.
    needs_optimum : bool
        Whether its schedule is the exact optimum's, which then has to be computed.
    follows_budget : bool
        Whether what it keeps depends on the budget; False runs once, at T.
    """

    name: ClassVar[str] = ""
    source: ClassVar[str] = ""
    kind = "online"
    needs = "rows"
    rows = "renormalised"
    group = "mean"
    scope = "kv_head"
    positions = "original"
    nested = False
    needs_optimum = False
    follows_budget = True

    @property
    def needs_future(self) -> bool:
        """Whether it is given the mean rows of the whole trace before it starts."""
        return self.kind == "clairvoyant"

    def parts(self, budget: int) -> Parts:
        """How it divides a budget; all of it is held by score unless overridden."""
        return Parts(0, budget, 0)

    def schedule(self, context: Context, optima: Any) -> np.ndarray | None:
        """``evicted_at`` int64 [T] if it is known beforehand, else None.

        ``optima`` has the offline optimum of the head as ``optima.schedule(prefill, budget)``; it
        is None for policies that do not need it.
        """
        return None

    def require(self, context: Context) -> None:
        """Raise BadBudget or BadArgument unless the policy can run in that context."""
        resolve_parts(self, context.budget)

    def require_declared(self) -> None:
        """Raise BadArgument unless the class declares what it may declare."""
        for name, options in _DECLARATIONS.items():
            require_one_of(self, name, options)
        for word in self.needs.split():
            if word not in _NEEDS:
                raise BadArgument(
                    f"needs must name any of {' '.join(_NEEDS)}", where=self.name, got=repr(word)
                )

    def parameters(self) -> dict[str, Any]:
        """Every parameter with its value, in order of declaration.

        Examples
        --------
        >>> from h2o_theory.policies import make_policy
        >>> make_policy("sink:n_sink=2").parameters()
        {'n_sink': 2, 'positions': 'original'}
        """
        own = fields(self) if is_dataclass(self) else ()
        return {item.name: getattr(self, item.name) for item in own}

    def defaults(self) -> Mapping[str, Any]:
        """The defaults of those parameters that have one."""
        own = fields(self) if is_dataclass(self) else ()
        return {item.name: item.default for item in own}

    @property
    def asked(self) -> str:
        """Name and the parameters that differ from their defaults, as one would ask for them.

        Examples
        --------
        >>> from h2o_theory.policies import make_policy
        >>> make_policy("h2o:rows=raw,recent=0.25,n_sink=0").asked
        'h2o:recent=0.25,rows=raw'
        """
        usual = self.defaults()
        changed = [
            f"{name}={_text(value)}"
            for name, value in self.parameters().items()
            if name not in usual or _text(usual[name]) != _text(value)
        ]
        return f"{self.name}:{','.join(changed)}" if changed else self.name

    def describe(self, budget: int) -> str:
        """The resolved parameters as text: parts first, then the rest in order of declaration."""
        parts = self.parts(budget)
        items = [f"{name}={getattr(parts, name)}" for name in ("n_sink", "n_heavy", "n_recent")]
        skip = {"n_sink", "n_heavy", "n_recent", "recent"}
        items += [f"{n}={value}" for n, value in self.parameters().items() if n not in skip]
        return " ".join(items)


def _text(value):
    """A parameter's value as it stands in ``name=value``; an array by its digest."""
    if isinstance(value, np.ndarray):
        digest = sha256(f"{value.dtype}{value.shape}".encode() + value.tobytes()).hexdigest()
        return f"array-{digest[:8]}"
    return str(value)


@dataclass(frozen=True)
class CompiledPolicy(Policy):
    r"""Base of policies with compiled functions, as all that ship are: frozen parameters.

    At every step the engine appends the newcomer with score 0, forms the visible row, calls
    ``observe``, and, while the cache is full, calls ``rate`` and evicts

    .. math:: u_t = \arg\min_{j \in S_t \setminus P_t} \text{score}(j),

    the oldest among equals, where P_t holds the sinks and the recent window. Both functions are
    compiled, see a :class:`~h2o_theory.policies.kernels.Cache` of n entries, and write its scores.

    ``observe(t, n, cache, row, settings)``
        Row t restricted to S_t is ``row[:n]``, reduced over the group: entry i is token
        ``cache.position[i]``.
    ``rate(t, n, cache, future, settings)``
        Bring ``cache.score[:n]`` up to date for the choice of a victim. ``future`` is row t of
        :meth:`table`; it is empty for online policies.

    Subclasses are frozen dataclasses whose fields are the parameters, with defaults. A parameter
    ``recent``, ``n_sink``, ``n_heavy``, ``n_recent``, ``window``, ``rows`` or ``group`` is checked
    here.
    """

    observe: ClassVar = observe_nothing
    rate: ClassVar = rate_nothing

    def __post_init__(self) -> None:
        """Check the parameters that policies have in common."""
        require_common(self)

    @property
    def nested(self) -> bool:
        """Whether priorities come from full rows alone, so that one pass serves all budgets."""
        return self.kind == "clairvoyant"

    @property
    def kernels(self) -> tuple[Callable, Callable]:
        """The compiled pair (observe, rate) of these parameters."""
        return type(self).observe, type(self).rate

    def settings(self, context: Context) -> NoSettings:
        """What the compiled functions are handed: a NamedTuple of numbers and arrays.

        Its class is read off the annotation of the result.
        """
        return NoSettings()

    def sizes(self, context: Context) -> tuple[int, int]:
        """How many numbers are kept with each entry (beside features) and for the head."""
        return 0, 0

    def features(self, context: Context) -> np.ndarray:
        """What the rule needs to know of ``context.tensors``, token by token: float64 [T, m].

        The engine copies row t to the first m places of the newcomer's ``cache.entry`` when token
        t arrives. An online policy computes row t from tokens up to t alone.
        """
        return np.zeros((context.tokens, 0))

    def table(self, mean_rows: np.ndarray) -> np.ndarray:
        """Clairvoyant policies: float64 [T, T], row t available to ``rate`` at step t."""
        return np.zeros((0, 0))


def without_parts(parameters):
    """What :meth:`Policy.describe` says, less the parts of a budget."""
    return re.sub(r"n_\w+=\d+ ?", "", parameters)

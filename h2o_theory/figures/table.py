"""What figures and report need to know of a result table: its columns and its setting."""

from dataclasses import dataclass

import pandas as pd

from h2o_theory.errors import BadArgument
from h2o_theory.policies.base import without_parts

__all__ = [
    "HEAD",
    "REQUIRED",
    "TEXT",
    "Setting",
    "check_results",
    "count",
    "every",
    "is_policy",
    "one_budget_each",
    "spread",
]

HEAD = ["trace_id", "layer", "kv_head"]
"""The columns that name one kv_head of one sequence: the unit every distribution is over."""

REQUIRED = (
    "trace", "trace_id", "model", "tokens", "layer", "kv_head", "policy", "parameters", "budget",
    "budget_tokens", "prefill", "level", "n_rows", "retained_mass", "full_mass", "optimum_mass",
    "topk_mass",
    "approximation_ratio", "lost_mass_ratio", "output_error", "kl", "sparsity_causal",
    "sparsity_square",
)  # fmt: skip

TEXT = ("trace", "trace_id", "model", "policy", "parameters", "budget", "level")
"""The columns that are text, even where the text looks like a number or a missing value."""

_ONE_VALUE = ("model", "tokens", "prefill", "level")


def check_results(results):
    """Refuse a table that cannot be described as one experiment.

    Raises
    ------
    BadArgument
        `results` is no DataFrame, has no row, lacks required columns (all are named), has text
        where numbers belong, or mixes several models, lengths, prefills or levels, whose means
        would have no meaning.
    """
    if not isinstance(results, pd.DataFrame):
        raise BadArgument(
            "results must be a pandas DataFrame", where="results", got=type(results).__name__
        )
    missing = [name for name in REQUIRED if name not in results.columns]
    if missing:
        raise BadArgument(
            "the result table lacks columns",
            where="results",
            got="no " + ", ".join(missing),
            expected="the columns written by h2o_theory.replay",
        )
    if results.empty:
        raise BadArgument("the result table has no row", where="results", hint="Replay a policy")
    words = [
        name
        for name in REQUIRED
        if name not in TEXT and not pd.api.types.is_numeric_dtype(results[name])
    ]
    if words:
        raise BadArgument(
            "columns of the result table are not numbers",
            where=", ".join(words),
            got=", ".join(str(results[name].dtype) for name in words),
            expected="numbers",
        )
    for name in _ONE_VALUE:
        values = sorted(map(str, results[name].unique()))
        if len(values) > 1:
            raise BadArgument(
                f"the result table mixes several values of {name}",
                where=name,
                got=", ".join(values),
                expected="one value",
                hint="Split the table and treat each part on its own",
            )


def one_budget_each(results):
    """The table with one number of tokens for every budget asked for.

    Where heads have budgets of their own (a matrix), each row gets their mean, rounded, and loses
    the resolved parts from its parameters: what is summarised is then one budget, not as many as
    there are different heads.
    """
    by_budget = results.groupby("budget")["budget_tokens"]
    varied = by_budget.transform("nunique") > 1
    if not varied.any():
        return results
    out = results.copy()
    out["budget_tokens"] = by_budget.transform("mean").round().astype(int)
    shorter = out["parameters"].map(without_parts)
    out["parameters"] = out["parameters"].where(~varied, shorter)
    return out


@dataclass(frozen=True)
class Setting:
    """What a whole result table has in common, in the words that captions use.

    Attributes
    ----------
    model, level : str
    traces : tuple of str
        Names of the traces, in order of appearance.
    tokens, prefill : int
        Length T of each sequence; rows the policies saw before their first eviction.
    heads, layers : int
        Number of kv_heads replayed, over all layers and traces; number of layers among them.
    budgets : dict of int to str
        Budget in tokens -> budget as asked, ascending; the uncut budget of `full` is left out
        unless another policy has it too.
    """

    model: str
    level: str
    traces: tuple
    tokens: int
    prefill: int
    heads: int
    layers: int
    budgets: dict

    @classmethod
    def of(cls, results):
        """Read the setting of a table that passed `check_results`. O(rows)."""
        first = results.iloc[0]
        asked = results[is_policy(results)].groupby("budget_tokens")["budget"].first()
        return cls(
            model=str(first["model"]),
            level=str(first["level"]),
            traces=tuple(results["trace"].astype(str).unique()),
            tokens=int(first["tokens"]),
            prefill=int(first["prefill"]),
            heads=len(results[HEAD].drop_duplicates()),
            layers=results["layer"].nunique(),
            budgets={int(k): str(text) for k, text in asked.sort_index().items()},
        )

    def share(self, budget_tokens, digits=3):
        """A budget as a percentage of T, as text: '10 %' or '4.88 %'."""
        return f"{100 * budget_tokens / self.tokens:.{digits}g} %"

    def budget(self, budget_tokens):
        """A budget in tokens and as a share of T, as text: 'k = 51 tokens (10 % of T)'."""
        return f"k = {budget_tokens} tokens ({self.share(budget_tokens)} of T)"

    def sentence(self):
        """Model, trace, length, prefill, level and number of heads, as one caption line."""
        many = len(self.traces) > 1
        traces = f"{len(self.traces)} traces" if many else f"trace {self.traces[0]}"
        start = f"prefill of {self.prefill} rows" if self.prefill else "streaming (no prefill)"
        return (
            f"{self.model} · {traces} · T = {self.tokens} tokens · {start} · {self.level}-loop · "
            f"{count(self.heads, 'kv_head')} in {count(self.layers, 'layer')}"
        )


def is_policy(results):
    """Boolean mask of the rows that are policies, not the uncut reference `full`."""
    return results["policy"] != "full"


def count(number, noun):
    """'1 layer', '2 layers'."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def spread(items, most):
    """At most `most` of the items, evenly spaced, first and last included, order kept."""
    items = list(items)
    if len(items) <= most:
        return items
    if most == 1:
        return [items[len(items) // 2]]
    return [items[round(i * (len(items) - 1) / (most - 1))] for i in range(most)]


def every(items, most):
    """Every n-th item, n the smallest that leaves at most `most`: evenly stepped axis labels."""
    items = list(items)
    return items[:: -(-len(items) // most)]

"""For each row of the register, a fault in the thing it checks under which its verdict must change.

A check that passes whatever it is given says nothing. :data:`MUTATIONS` lists faults; applied, each
must lead its check to another verdict than the one on record, or to a remedy that fails.
:data:`WITHOUT` names the rows for which none is listed, and why.
"""

import contextlib
import functools
import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd

from paper_checks.algorithms import intended
from paper_checks.finding import CheckFinding
from paper_checks.register import Statement, run_check

__all__ = ["MUTATIONS", "WITHOUT", "Mutation", "run_mutated"]


@dataclass(frozen=True)
class Mutation:
    """A fault: ``name`` of a module of this package is replaced by ``make(what it was)``.

    Attributes
    ----------
    id : str
        The statement whose verdict must change.
    place : str
        ``module:name`` or ``module:Class.name``.
    make : callable
        Takes what is there, returns what takes its place.
    says : str
        What the fault is.
    """

    id: str
    place: str
    make: Callable[[Any], Any]
    says: str


def run_mutated(statement: Statement, mutation: Mutation) -> CheckFinding:
    """Run the check of a row with the fault in place."""
    with _in_place(mutation):
        return run_check(statement)


@contextlib.contextmanager
def _in_place(mutation: Mutation) -> Iterator[None]:
    module, _, path = mutation.place.partition(":")
    owner: Any = importlib.import_module(f"paper_checks.{module}")
    checked = importlib.import_module(f"paper_checks.{module}")
    *outer, name = path.split(".")
    for part in outer:
        owner = getattr(owner, part)
    _forget(checked)
    try:
        with mock.patch.object(owner, name, mutation.make(getattr(owner, name))):
            yield
    finally:
        _forget(checked)


def _forget(module: Any) -> None:
    """Clear what the module's own functions keep, so that no fault is kept or overlooked."""
    for found in vars(module).values():
        if getattr(found, "__module__", "") == module.__name__ and hasattr(found, "cache_clear"):
            found.cache_clear()


def _constant(value: Any) -> Callable[[Any], Any]:
    return lambda was: value


def _returning(value: Any) -> Callable[[Any], Any]:
    return lambda was: lambda *given, **named: value


def _scaled(factor: float) -> Callable[[Any], Any]:
    return lambda was: lambda *given, **named: factor * was(*given, **named)


def _steep(was: Any) -> Any:
    """exp(2 Ax), or the softmax of it, in place of exp(Ax)."""

    def changed(self: Any, x: Any) -> Any:
        return was(self, 2 * x)

    return changed


def _even_rows(was: Any) -> Any:
    """The recording with every row attending evenly to all its keys."""

    def changed() -> Any:
        trace = was()
        size = trace.tokens
        even = np.tril(np.ones((size, size))) / np.arange(1, size + 1)[:, None]
        return SimpleNamespace(tokens=size, rows=lambda layer, head: even[None])

    return changed


def _received_by_company(was: Any) -> Any:
    """Attention of a position that follows the co-occurrence count of its word, not how often the
    word stands there."""

    def changed() -> Any:
        words = importlib.import_module("paper_checks.e_words")
        trace = words.committed_trace()
        found = words.words_of(words.token_bytes(trace))
        table = words.centralities(words.cooccurrence_graph(found))
        degree = table[table.columns[1]].to_numpy(dtype=float)
        received = np.ones(trace.tokens)
        inside = found.positions()
        often = np.bincount(found.kind, minlength=len(found.kinds))
        received[inside] = degree[found.kind] / often[found.kind]
        return received

    return changed


def _against_itself(was: Any) -> Any:
    return lambda function, *given, **named: was(_falling(), *given, **named)


def _falling() -> Any:
    from h2o_theory.submodular import set_function

    return set_function(lambda members: -float(len(members)), 5)


def _losses(losses: dict[str, float]) -> Callable[[Any], Any]:
    """Measured losses replaced by these, with intervals of 0.01 to each side."""

    def finding(first: str, second: str | None = None) -> dict[str, float]:
        value = losses[first] - (losses[second] if second else 0.0)
        return {"value": value, "low": value - 0.01, "high": value + 0.01}

    table = pd.DataFrame({"arm": ["full cache", *losses], "perplexity": 1.0})
    found = SimpleNamespace(finding=finding, table=lambda: table)
    return lambda was: lambda: found


MUTATIONS = (
    Mutation(
        "def-2.1", "a_setting:_sequences",
        lambda was: lambda n, k, newcomer_only: was(n, k, False),
        "the remedy lets any one entry be added",
    ),
    Mutation(
        "def-2.2", "a_setting:masked_row",
        lambda was: lambda *given, subtract: was(*given, subtract=True),
        "the printed row subtracts the indicator",
    ),
    Mutation(
        "alg-1", "a_setting:algorithm_1", _constant(functools.partial(intended, rows="last")),
        "the printed algorithm normalises over the newcomer too",
    ),
    Mutation(
        "alg-2", "a_setting:algorithm_2", _constant(functools.partial(intended, rows="late")),
        "the printed algorithm uses the newcomer's key",
    ),
    Mutation(
        "remark-D.14", "a_setting:modular", lambda was: lambda w: np.minimum(was(w) ** 2, 4),
        "the sum is squared before h",
    ),
    Mutation(
        "def-4.3", "a_setting:_victims",
        lambda was: lambda values: {v for v in range(4)} - was(values),
        "the rule keeps what it should evict",
    ),
    Mutation(
        "def-D.1", "b_submodularity:lattice_holds",
        lambda was: lambda functions: was(functions) & (functions[:, 0] == 0),
        "one of the three conditions asks for f(empty) = 0 as well",
    ),
    Mutation(
        "def-D.2", "b_submodularity:modular", lambda was: lambda w: was(w) ** 2,
        "the linear functions are squared",
    ),
    Mutation(
        "def-D.3", "b_submodularity:is_submodular",
        lambda was: lambda functions: np.zeros(len(functions), dtype=bool),
        "no function is submodular",
    ),
    Mutation(
        "def-D.4", "b_submodularity:_diminishing_above",
        lambda was: lambda functions, z: was(functions, z) & (functions[:, 0] == 0),
        "the dynamic condition asks for f(empty) = 0 as well",
    ),
    Mutation(
        "lemma-3.1",
        "b_greedy:is_monotone",
        lambda was: lambda functions: np.ones(len(functions), dtype=bool),
        "the remedy does not ask for monotone functions",
    ),
    Mutation(
        "thm-D.17", "b_greedy:SHARE", _constant(0.69), "0.69 in place of 1 - 1/e",
    ),
    Mutation(
        "cor-D.18", "b_greedy:LOSS", _constant(1.2), "1.2 in place of 2 - 1/e",
    ),
    Mutation(
        "lemma-D.19", "b_greedy:forgetful_instance", _returning(None),
        "every exact swap reaches (1 - 1/e) of the best",
    ),
    Mutation(
        "def-D.20", "b_submodularity:swap_run", lambda was: lambda values, k: was(values, k + 1),
        "the cache holds one entry too many",
    ),
    Mutation(
        "remark-D.21", "b_submodularity:_shifted",
        lambda was: lambda functions, masks: functions[:, masks] - functions[:, masks[::-1]],
        "what is subtracted differs from set to set",
    ),
    Mutation(
        "def-D.23", "c_conditions:refute", _against_itself, "a function that falls",
    ),
    Mutation(
        "def-D.25", "c_conditions:measured", lambda was: lambda name: was("accumulated"),
        "the attention of one row is accumulated",
    ),
    Mutation(
        "def-D.27", "c_guarantee:_opt",
        lambda was: lambda w, i, k: sum(sorted(w[: i - 1], reverse=True)[:k]),
        "Y may not hold the newcomer",
    ),
    Mutation(
        "def-D.28", "c_conditions:step_fails",
        lambda was: lambda rule, condition: was(rule=rule, condition="used"),
        "condition 2 is defined as it is used",
    ),
    Mutation(
        "lemma-D.29", "c_lemmas:step_fails",
        lambda was: lambda **named: was(**named | {"condition": "defined"}),
        "the remedy takes condition 2 as defined",
    ),
    Mutation(
        "lemma-D.30", "c_lemmas:_approximate_step",
        lambda was: lambda two_sided, losses: was(two_sided=False, losses=losses),
        "the remedy bounds f~ from one side only",
    ),
    Mutation(
        "lemma-D.31", "c_guarantee:repaired_bound", _scaled(1.01),
        "the repaired bound is 1 % larger",
    ),
    Mutation(
        "thm-4.4", "c_guarantee:_closeness", _returning(0.0),
        "the approximate repair loses nothing (eps0 = 0)",
    ),
    Mutation(
        "def-D.35", "regression:Objective.f",
        lambda was: lambda self, x: was(self, x) * 1.001, "f does not sum to one",
    ),
    Mutation(
        "claim-D.42", "regression:Objective.l_sparse",
        lambda was: lambda self, x: (self.u(x) ** 2).sum() ** 0.5, "the 2-norm",
    ),
    Mutation("lemma-D.44.1", "regression:Objective.u", _steep, "u = exp(2 A x)"),
    Mutation("lemma-D.44.2", "regression:Objective.u", _steep, "u = exp(2 A x)"),
    Mutation("lemma-D.44.3", "regression:Objective.u", _steep, "u = exp(2 A x)"),
    Mutation("lemma-D.44.4", "regression:Objective.f", _steep, "f is the softmax of 2 A x"),
    Mutation(
        "lemma-D.44.5", "d_calculus:_mended_gradient",
        lambda was: lambda o, x: o.matrix.T @ (o.f(x) * (o.f(x) - o.target)),
        "the repair leaves the first term out",
    ),
    Mutation("lemma-D.45", "regression:Objective.u", _steep, "u = exp(2 A x)"),
    Mutation("lemma-D.46", "regression:Objective.u", _steep, "u = exp(2 A x)"),
    Mutation(
        "lemma-D.47.1", "d_hessian:hessian_middle", lambda was: lambda o, x: was(o, x) - 50,
        "B(x) is shifted down",
    ),
    Mutation(
        "lemma-D.47.2", "d_hessian:bounded",
        lambda was: lambda rng, radius: was(rng, 2 * radius), "|A| and |x| reach 2 R",
    ),
    Mutation(
        "lemma-D.48", "d_hessian:bounded",
        lambda was: lambda rng, radius: was(rng, 8 * radius), "|A| and |x| reach 8 R",
    ),
    Mutation(
        "lemma-D.48.u", "d_hessian:bounded",
        lambda was: lambda rng, radius: was(rng, 3 * radius), "|A| and |x| reach 3 R",
    ),
    Mutation(
        "alg-4", "regression:Objective.gradient",
        lambda was: lambda o, x: was(o, x)
        - 2 * o.matrix.T @ (o.f(x) * ((o.f(x) - o.target) - (o.f(x) - o.target) @ o.f(x))),
        "the gradient of the regression is flipped",
    ),
    Mutation(
        "thm-D.49", "d_newton:_weights",
        lambda was: lambda *given: [10 * weight for weight in was(*given)],
        "steps of a tenth",
    ),
    Mutation(
        "obs-sparsity", "e_attention:count_sparse",
        lambda was: lambda rows, start: was(rows, start, 0.2),
        "a threshold of 20 % of the row's maximum",
    ),
    Mutation(
        "obs-20x", "e_attention:optimum_at",
        lambda was: lambda fixed, budget: SimpleNamespace(value=int(0.97 * fixed.sum())),
        "a schedule that retains 97 %",
    ),
    Mutation(
        "obs-early-bias", "e_attention:committed_trace", _even_rows,
        "every row attends evenly: exposure alone",
    ),
    Mutation(
        "obs-cooccurrence", "e_words:_received", _received_by_company,
        "attention that does follow co-occurrence, frequency apart",
    ),
    Mutation(
        "obs-spatten", "e_cache:_difference", _scaled(-1.0), "the two sides change places",
    ),
    Mutation(
        "obs-belady", "e_paging:_most_hits", lambda was: lambda *given: was(*given) + 1,
        "a better rule exists",
    ),
    Mutation(
        "obs-memory", "e_arithmetic:SHAPES", lambda was: {"opt-30b": was["opt-66b"]},
        "the cache of a larger model",
    ),
    Mutation(
        "obs-throughput", "e_arithmetic:ratios", lambda was: lambda over: was("batch"),
        "no cell says what is stated but one",
    ),
    Mutation(
        "obs-throughput", "e_arithmetic:best_design", _constant(lambda: (1, 3, 5, 6)),
        "the model is fitted on runs of H2O alone",
    ),
    Mutation(
        "obs-h2o-20", "e_output:arms_at_budget", _losses({"h2o": 0.05, "recent": 0.2}),
        "recency alone does not collapse",
    ),
    Mutation(
        "obs-ablation", "e_output:arms_at_budget",
        _losses({"h2o": 0.05, "heavy": 0.3, "recent": 0.6}),
        "heavy hitters alone beat recency alone, and both together lose little",
    ),
    Mutation(
        "obs-average", "e_output:arms_at_budget", _losses({"h2o": 0.05, "h2o:score=mean": 0.2}),
        "averaging costs more than summing",
    ),
)  # fmt: skip

WITHOUT = {
    "def-D.33": "an instance, with nothing to replace",
    "claim-D.34": "sets are enumerated in place",
    "obs-power-law": "a true power law passes the test in three of four samples only",
    "obs-removal": "needs the running model",
    "obs-local-global": "needs the running model",
    "obs-streaming": "needs the running model",
    "obs-quant": "needs the running model",
    "obs-sparse-transformer": "needs the running model",
    "obs-topk": "needs the running model",
    "obs-shots": "nothing is run",
    "obs-mlp": "nothing is run",
    "obs-diversity": "nothing is run",
}
"""Rows whose verdict no mutation has been seen to change, and why."""

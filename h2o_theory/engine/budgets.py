"""Budgets resolved for every kv_head: the same for all, a matrix, or a rule that makes one."""

import csv
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from h2o_theory.engine.allocate import AdaKV, PyramidKV
from h2o_theory.engine.kv_heads import KvHeads
from h2o_theory.errors import BadBudget
from h2o_theory.policies import parse_budgets

__all__ = ["BudgetMatrix", "read_budget_matrix", "resolve_budgets"]

_RULES = {"pyramid": PyramidKV, "ada": AdaKV}
"""Budget rules by name, as in ``pyramid:20%``."""


@dataclass(frozen=True)
class BudgetMatrix:
    """A budget for each kv_head of each layer.

    Attributes
    ----------
    text : str
        What it is called in the column ``budget`` of the results.
    entries : dict
        ``{(layer, kv_head): budget}``, or ``{layer: budget}`` for all heads of a layer; budgets as
        everywhere, ``64`` or ``"10%"``.
    """

    text: str
    entries: dict

    @classmethod
    def from_array(cls, array, text="matrix", layers=None):
        """From ``[layers, kv_heads]`` tokens; row i is layer i, or ``layers[i]`` if given."""
        array = np.asarray(array)
        if array.ndim != 2 or array.size == 0:
            raise BadBudget(
                "a budget matrix needs a row for each layer and a column for each kv_head",
                where=text,
                got=f"shape {list(array.shape)}",
                expected="[layers, kv_heads]",
            )
        layers = range(len(array)) if layers is None else tuple(layers)
        if len(layers) != len(array):
            raise BadBudget(
                "a budget matrix has another number of layers",
                where=text,
                got=f"{len(array)} rows",
                expected=f"{len(layers)}, one for each layer",
            )
        return cls(
            text,
            {
                (int(layer), head): budget
                for layer, row in zip(layers, array.tolist(), strict=True)
                for head, budget in enumerate(row)
            },
        )

    def resolve(self, tokens, layer, kv_head):
        """The budget of a kv_head in tokens; raises BadBudget if the matrix has none for it."""
        entry = self.entries.get((layer, kv_head), self.entries.get(layer))
        if entry is None:
            raise BadBudget(
                "the budget matrix has no entry for a kv_head",
                where=self.text,
                got=f"layer {layer}, kv_head {kv_head}",
                expected="an entry for each kv_head that is replayed",
                hint="Choose layers and kv_heads, or add the entry",
            )
        (budget,) = parse_budgets([entry])
        return budget.resolve(tokens)


def read_budget_matrix(path):
    """A :class:`BudgetMatrix` from a file, called by the file's name.

    ``.json``: a list of rows ``[[k, k, ...], ...]`` by layer, or an object ``{"layer": k}`` or
    ``{"layer": [k, k, ...]}``. ``.csv``: columns ``layer``, ``kv_head``, ``budget``; an empty
    kv_head stands for all heads of the layer.

    Raises
    ------
    BadBudget
        If the file is missing or is not one of these.
    """
    path = Path(path)
    readers = {".json": _entries_of_json, ".csv": _entries_of_csv}
    try:
        if path.suffix not in readers:
            raise ValueError(f"the ending {path.suffix or 'none'} is neither .json nor .csv")
        entries = readers[path.suffix](path.read_text(encoding="utf-8"))
        if not entries:
            raise ValueError("it has no entry")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadBudget(
            "a budget matrix cannot be read",
            where=path,
            got=getattr(error, "strerror", None) or error,
            expected="JSON rows by layer, or CSV with the columns layer, kv_head, budget",
        ) from None
    matrix = BudgetMatrix(path.name, entries)
    parse_budgets(list(entries.values()))
    return matrix


def _entries_of_json(text):
    content = json.loads(text)
    rows = enumerate(content) if isinstance(content, list) else content.items()
    entries = {}
    for layer, row in rows:
        if isinstance(row, list):
            entries |= {(int(layer), head): budget for head, budget in enumerate(row)}
        else:
            entries[int(layer)] = row
    return entries


def _entries_of_csv(text):
    entries = {}
    for line in csv.DictReader(text.splitlines()):
        layer = int(line["layer"])
        head = (line.get("kv_head") or "").strip()
        entries[(layer, int(head)) if head else layer] = line["budget"]
    return entries


def resolve_budgets(trace, budgets, heads, prefill):
    """Every budget asked for, in tokens on every kv_head.

    Parameters
    ----------
    trace : Trace or KvHeads
    budgets : budget, dict, array [layers, kv_heads], BudgetMatrix, callable, or a list of these
        Text is ``"64"``, ``"10%"``, or the name of a rule with its average budget,
        ``"pyramid:10%"`` or ``"ada:10%"``. A dict is the ``entries`` of a matrix; a callable is a
        rule ``rule(trace, prefill)`` that returns either. Of KvHeads one is asked only if its
        attribute ``needs`` says ``"kv_heads"``.
    heads : list of (layer, kv_head)
    prefill : int

    Returns
    -------
    list of (str, dict)
        The budget as asked for and ``{(layer, kv_head): tokens}``.

    Raises
    ------
    BadBudget
        For anything that cannot be read, is below one token or above T, or lacks a kv_head; for a
        rule that reads rows where there are none; for different budgets of one name.
    """
    found = []
    for budget in _as_list(budgets):
        matrix = _as_matrix(budget, trace, prefill)
        if matrix is None:
            (plain,) = parse_budgets([budget])
            tokens = plain.resolve(trace.tokens)
            found.append((plain.text, dict.fromkeys(heads, tokens)))
        else:
            resolved = {head: matrix.resolve(trace.tokens, *head) for head in heads}
            found.append((matrix.text, resolved))
    _refuse_namesakes(found)
    return found


def _refuse_namesakes(resolved):
    """Raise BadBudget for different budgets of one name: no table could tell them apart."""
    first = {}
    for text, tokens in resolved:
        if first.setdefault(text, tokens) != tokens:
            raise BadBudget(
                "two different budgets go by one name",
                where=text,
                hint="Give each its own: BudgetMatrix(name, entries), or a file of another name",
            )


def _as_list(budgets):
    if isinstance(budgets, str):
        budgets = [part for part in budgets.split(",") if part.strip()]
    elif isinstance(budgets, dict) or not hasattr(budgets, "__iter__"):
        budgets = [budgets]
    elif isinstance(budgets, np.ndarray) and budgets.ndim == 2:
        budgets = [budgets]
    budgets = list(budgets)
    if not budgets:
        parse_budgets(budgets)
    return budgets


def _as_matrix(budget, trace, prefill):
    """The matrix that ``budget`` is or makes; None if it is one number for all heads."""
    if isinstance(budget, str) and budget.partition(":")[0] in _RULES:
        name, _, average = budget.partition(":")
        budget = _RULES[name](average)
    if isinstance(budget, BudgetMatrix):
        return budget
    if isinstance(budget, dict):
        return BudgetMatrix("matrix", budget)
    if isinstance(budget, np.ndarray):
        return BudgetMatrix.from_array(budget, layers=trace.layers)
    if callable(budget):
        name = getattr(budget, "__name__", type(budget).__name__)
        if isinstance(trace, KvHeads) and getattr(budget, "needs", "rows") != "kv_heads":
            raise BadBudget(
                "the budget rule reads recorded rows, and a model that is yet to run has none",
                where=name,
                hint="Call it on a trace of the model, rule(trace, prefill), and give the budgets "
                "it returns",
            )
        matrix = budget(trace, prefill)
        if isinstance(matrix, dict):
            matrix = BudgetMatrix(name, matrix)
        if not isinstance(matrix, BudgetMatrix):
            raise BadBudget(
                "a budget rule returned no matrix",
                where=name,
                got=type(matrix).__name__,
                expected="a BudgetMatrix or a dict {(layer, kv_head): budget}",
            )
        return matrix
    return None

"""A budget for each kv_head of each layer, from Python or from a file."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from h2o_theory.annotations import Head, PathLike
from h2o_theory.budgets.text import parse_budget, parse_budgets
from h2o_theory.errors import BadBudget

__all__ = ["BudgetMatrix", "read_budget_matrix"]


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

    Examples
    --------
    >>> matrix = BudgetMatrix("falling", {0: "50%", (1, 0): 10, (1, 1): 20})
    >>> matrix.resolve(100, layer=0, kv_head=1), matrix.resolve(100, layer=1, kv_head=1)
    (50, 20)
    """

    text: str
    entries: Mapping[Head | int, int | str]

    @classmethod
    def from_array(
        cls, array: np.ndarray, text: str = "matrix", layers: Iterable[int] | None = None
    ) -> BudgetMatrix:
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

    def resolve(self, tokens: int, layer: int, kv_head: int) -> int:
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
        return parse_budget(entry).resolve(tokens)


def read_budget_matrix(path: PathLike) -> BudgetMatrix:
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
        if path.suffix.lower() not in readers:
            raise ValueError(f"the ending {path.suffix or 'none'} is neither .json nor .csv")
        entries = readers[path.suffix.lower()](path.read_text(encoding="utf-8-sig"))
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


def _entries_of_json(text: str) -> dict:
    content = json.loads(text)
    rows = enumerate(content) if isinstance(content, list) else content.items()
    entries = {}
    for layer, row in rows:
        if isinstance(row, list):
            entries |= {(int(layer), head): budget for head, budget in enumerate(row)}
        else:
            entries[int(layer)] = row
    return entries


def _entries_of_csv(text: str) -> dict:
    entries = {}
    for line in csv.DictReader(text.splitlines()):
        layer = int(line["layer"])
        head = (line.get("kv_head") or "").strip()
        entries[(layer, int(head)) if head else layer] = line["budget"]
    return entries

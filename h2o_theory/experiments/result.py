"""What an experiment hands back: a table, findings with intervals, and where they come from."""

import json
import math
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from h2o_theory.errors import BadArgument
from h2o_theory.store import versions, write_bytes

__all__ = ["ExperimentResult", "load_result", "save_result"]


@dataclass(frozen=True)
class ExperimentResult:
    """The outcome of one experiment.

    Attributes
    ----------
    name, question : str
    answer : str
        A sentence made from the findings.
    findings : dict of str to dict
        Each with ``value``, its 95 % interval ``low``, ``high``, ``n`` and ``unit``.
    table : pandas.DataFrame
        All arms.
    setting : dict
        Model, text, tokens, windows and what else decides the numbers.
    extra : dict of str to pandas.DataFrame
        Further tables.
    """

    name: str
    question: str
    answer: str
    findings: dict
    table: pd.DataFrame
    setting: dict
    extra: dict = field(default_factory=dict)

    @classmethod
    def of(cls, study, name, question, answer, findings, table, *, extra=None, **setting):
        """A result with the setting of a study."""
        setting = {
            **study.model.provenance(),
            "text": study.text,
            "tokens": study.tokens,
            "windows": len(study.windows),
            "versions": versions(),
            "loop": "closed",
            **setting,
        }
        return cls(name, question, answer, findings, table, setting, extra or {})


def save_result(result, folder):
    """Write ``NAME.json`` atomically; returns its path."""
    folder = Path(folder)
    plain = vars(result) | {
        "table": result.table.to_dict("records"),
        "extra": {name: table.to_dict("records") for name, table in result.extra.items()},
    }
    path = folder / f"{result.name}.json"
    write_bytes(path, (json.dumps(_finite(plain), indent=1) + "\n").encode())
    return path


def load_result(path):
    """Read what :func:`save_result` wrote; raises BadArgument for anything else."""
    try:
        plain = json.loads(Path(path).read_text())
        tables = {name: pd.DataFrame(rows) for name, rows in plain["extra"].items()}
        return ExperimentResult(**plain | {"table": pd.DataFrame(plain["table"]), "extra": tables})
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise BadArgument("this is not an experiment's result", where=path, got=error) from None


def _finite(value):
    """Numbers as JSON has them, rounded to six digits: infinite ends of an interval become null."""
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value

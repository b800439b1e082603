"""What a sweep is to do: a grid, from a TOML file, a dict or Python objects."""

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path

from h2o_theory.budgets import read_budget_matrix
from h2o_theory.errors import BadArgument
from h2o_theory.policies import make_policy

__all__ = ["SweepSpec", "read_spec"]


@dataclass(frozen=True)
class SweepSpec:
    """The grid traces x heads x policies x budgets x prefill x seeds.

    Attributes
    ----------
    traces : list of path or Trace
    policies : list of str or policy
        As in :func:`h2o_theory.replay`, one each.
    budgets : list
        As in :func:`h2o_theory.replay`; text that ends in .json or .csv is a budget matrix.
    prefill, seeds : list of int
    layers, kv_heads : list of int or None
        All by default.
    optimum : bool
        Whether to divide by the exact optimum.
    loop : str
        ``open``: a sweep replays recorded rows.
    """

    traces: list
    policies: list
    budgets: list
    prefill: tuple = (0,)
    seeds: tuple = (0,)
    layers: list | None = None
    kv_heads: list | None = None
    optimum: bool = True
    loop: str = "open"

    def __post_init__(self):
        for name in ("traces", "policies", "budgets", "prefill", "seeds"):
            self._require_list(name, getattr(self, name))
        for name in ("layers", "kv_heads"):
            if getattr(self, name) is not None:
                self._require_list(name, getattr(self, name))
        for name in ("prefill", "seeds", "layers", "kv_heads"):
            for value in getattr(self, name) or ():
                if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                    raise _bad(name, repr(value), "whole numbers of at least 0")
        if not isinstance(self.optimum, bool):
            raise _bad("optimum", repr(self.optimum), "true or false")
        if self.loop != "open":
            self._require_open_loop()

    @staticmethod
    def _require_list(name, value):
        if isinstance(value, str) or not hasattr(value, "__len__") or len(value) == 0:
            raise _bad(name, repr(value), "a list with at least one entry")

    def _require_open_loop(self):
        if self.loop != "closed":
            raise _bad("loop", repr(self.loop), "open")
        for given in self.policies:
            policy = make_policy(given) if isinstance(given, str) else given
            if policy.kind == "clairvoyant":
                raise BadArgument(
                    "a clairvoyant policy cannot run closed-loop: the rows it reads depend on "
                    "what it evicts",
                    where="loop",
                    got=f"{policy.name} with loop = closed",
                    expected="loop = open",
                )
        raise BadArgument(
            "a sweep replays recorded rows",
            where="loop",
            got="closed",
            expected="open",
            hint="Run policies inside the model with: h2o-theory live",
        )


def read_spec(path):
    """A :class:`SweepSpec` from a TOML file; paths in it count from the file's folder.

    ::

        traces = ["notes.trace"]
        policies = ["h2o", "h2o:rows=raw", "lru", "mine.py:Newest"]
        budgets = ["5%", "10%", 64, "by_head.json"]
        prefill = [0, 128]      # default: [0]
        seeds = [0, 1]          # default: [0]
        layers = [0, 5]         # default: all, as kv_heads
        optimum = false         # default: true

    Raises
    ------
    BadArgument
        If the file is missing, is no TOML, has an unknown key or lacks one, or a value is wrong.
    """
    path = Path(path)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadArgument(
            "the spec cannot be read",
            where=path,
            got=getattr(error, "strerror", None) or error,
            expected="a TOML file with traces, policies and budgets",
        ) from None
    known = [item.name for item in fields(SweepSpec)]
    unknown = sorted(set(content) - set(known))
    if unknown:
        raise BadArgument(
            "the spec has an unknown key",
            where=path,
            got=", ".join(unknown),
            expected=", ".join(known),
        )
    missing = [name for name in ("traces", "policies", "budgets") if name not in content]
    if missing:
        raise BadArgument("the spec lacks a key", where=path, expected=", ".join(missing))
    spec = SweepSpec(**content)
    for name, values in (("traces", spec.traces), ("policies", spec.policies)):
        if not all(isinstance(value, str) for value in values):
            raise _bad(name, values, "text")
    folder = path.parent.resolve()
    return SweepSpec(
        **content
        | {
            "traces": [str(folder / trace) for trace in spec.traces],
            "policies": [_in_folder(folder, policy) for policy in spec.policies],
            "budgets": [_budget(folder, budget) for budget in spec.budgets],
        }
    )


def _in_folder(folder, policy):
    """``file.py:Class`` with the file looked for beside the spec."""
    file, colon, rest = policy.partition(":")
    return f"{folder / file}{colon}{rest}" if file.endswith(".py") else policy


def _budget(folder, budget):
    if isinstance(budget, str) and Path(budget).suffix in (".json", ".csv"):
        return read_budget_matrix(folder / budget)
    return budget


def _bad(name, got, expected):
    return BadArgument("the spec has a bad value", where=name, got=got, expected=expected)

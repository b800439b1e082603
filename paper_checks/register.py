"""The register: one row per statement, and how to run its check."""

import importlib
import importlib.resources
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from h2o_theory.errors import BadArgument, MissingDependency
from paper_checks.finding import CheckFinding

__all__ = ["Statement", "load_register", "run_check", "select"]


@dataclass(frozen=True)
class Statement:
    """A row of the register.

    Attributes
    ----------
    id : str
        The paper's numbering, or ``obs-...`` for an empirical claim.
    also : tuple of str
        Other numbers under which the paper has the same statement.
    place, kind : str
        Where it stands; definition, algorithm, lemma, theorem, remark or claim.
    statement : str
        In our words.
    reading : str
        How it was read where the text allows more than one way.
    assumption, repaired : str
        What has to be added, or the statement that holds in its place.
    method : str
        How the check decides.
    verdict : str
        On record.
    command : str
        What would decide it, where it is out of reach here.
    check : str
        ``module:function`` in this package.
    slow : bool
        Left out of the quick run.
    """

    id: str
    place: str
    kind: str
    statement: str
    method: str
    verdict: str
    check: str
    also: tuple[str, ...] = ()
    reading: str = ""
    assumption: str = ""
    repaired: str = ""
    command: str = ""
    slow: bool = False

    def agrees(self, finding: CheckFinding) -> bool:
        """Whether a finding is what the register says, and the remedy it names passed."""
        return finding.verdict == self.verdict and finding.remedy_holds is not False


def load_register() -> tuple[Statement, ...]:
    """All rows in the paper's order: tuple of :class:`Statement`."""
    text = importlib.resources.files(__package__).joinpath("register.toml").read_text("utf-8")
    rows = tomllib.loads(text)["statement"]
    return tuple(Statement(**row | {"also": tuple(row.get("also", ()))}) for row in rows)


def select(statements: Iterable[Statement], ids: Sequence[str]) -> tuple[Statement, ...]:
    """The rows with these ids (or other numbers of the same statement); all without ids.

    Raises
    ------
    BadArgument
        For an id that is not in the register.
    """
    if not ids:
        return tuple(statements)
    known = {name: row for row in statements for name in (row.id, *row.also)}
    unknown = [name for name in ids if name not in known]
    if unknown:
        raise BadArgument(
            "no statement has this id",
            where="check",
            got=", ".join(unknown),
            expected="one of " + ", ".join(row.id for row in statements),
        )
    return tuple(dict.fromkeys(known[name] for name in ids))


def run_check(statement: Statement) -> CheckFinding:
    """Run the check of a row and return its :class:`CheckFinding`.

    Raises
    ------
    MissingDependency
        The check needs a package that is not installed.
    """
    module, _, name = statement.check.partition(":")
    try:
        function = getattr(importlib.import_module(f"{__package__}.{module}"), name)
        return function()
    except ImportError as error:
        raise MissingDependency(
            "a check needs a package that is not installed",
            where=statement.id,
            got=error.name,
            hint='Install with pip install "h2o-theory[record,dev]".',
        ) from error

"""A statement beside what its check observed, and the count of verdicts."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from paper_checks.finding import FAILS, VERDICTS, CheckFinding, plain
from paper_checks.register import Statement

__all__ = ["Outcome", "summary"]


@dataclass(frozen=True)
class Outcome:
    """A row of the register and the finding of its check.

    Attributes
    ----------
    statement : Statement
    finding : CheckFinding or None
        None if the check could not run.
    reason : str
        Why it could not.
    """

    statement: Statement
    finding: CheckFinding | None
    reason: str = ""

    @property
    def verdict(self) -> str:
        """The verdict observed, or that there is none."""
        return self.finding.verdict if self.finding else "not run"

    @property
    def agrees(self) -> bool:
        """Whether the check ran and found what the register says."""
        return self.finding is not None and self.statement.agrees(self.finding)

    @property
    def drifted(self) -> bool:
        """Whether the check ran and found something else."""
        return self.finding is not None and not self.agrees

    @property
    def difference(self) -> str:
        """In what an outcome that does not agree departs from the register."""
        if self.finding is None:
            return self.reason
        if self.finding.verdict != self.statement.verdict:
            return f"recorded: {self.statement.verdict}"
        return "the remedy on record fails the same test"

    def lines(self) -> list[tuple[str, Any]]:
        """Name and value of everything worth showing, in order, without empty entries."""
        row, found = self.statement, self.finding
        entries = [
            ("id", " = ".join((row.id, *row.also))),
            ("place", f"{row.place} ({row.kind})"),
            ("statement", row.statement),
            ("reading", row.reading),
            ("verdict", self.verdict),
            ("assumption", row.assumption),
            ("repaired", row.repaired),
            ("method", row.method),
        ]
        if found:
            entries += [("result", found.summary), ("evidence from", found.effort)]
            if found.counterexample:
                entries.append(("counterexample", plain(found.counterexample)))
            if found.remedy_holds is not None:
                passed = "passes" if found.remedy_holds else "FAILS"
                entries.append(("the same test", f"{passed} with the assumption or repair"))
            entries += [(name, plain(value)) for name, value in found.numbers.items()]
        entries += [("command", row.command), ("check", row.check)]
        if not self.agrees:
            entries.append(("differs", self.difference))
        return [(name, value) for name, value in entries if value not in ("", None)]

    def as_dict(self) -> dict[str, Any]:
        """Everything, with plain types."""
        return {
            **asdict(self.statement),
            "observed": self.verdict,
            "agrees": self.agrees,
            "finding": plain(asdict(self.finding)) if self.finding else None,
            "reason": self.reason,
        }


def summary(outcomes: Sequence[Outcome]) -> str:
    """One line: how many statements have which verdict, and how many are repaired."""
    counts = Counter(outcome.verdict for outcome in outcomes)
    parts = [f"{name}: {counts[name]}" for name in (*VERDICTS, "not run") if counts[name]]
    line = f"Of {len(outcomes)} statements, {'; '.join(parts)}."
    failing = [outcome for outcome in outcomes if outcome.verdict == FAILS]
    repaired = sum(outcome.finding.remedy_holds is True for outcome in failing)
    if failing:
        line += (
            f" For {repaired} of the {len(failing)} that fail as stated, each with a "
            "counterexample, a repaired statement passes the same test."
        )
    drifted = sum(outcome.drifted for outcome in outcomes)
    return f"{line} Different from the register: {drifted}." if drifted else line

"""What a check returns: a verdict from a fixed vocabulary, and the evidence for it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "ASSUMING",
    "FAILS",
    "HOLDS",
    "INCONSISTENT",
    "NOT_REPRODUCED",
    "OUT_OF_REACH",
    "REPRODUCED",
    "VACUOUS",
    "VERDICTS",
    "CheckFinding",
    "judge",
    "plain",
]

HOLDS = "holds"
ASSUMING = "holds with added assumption"
VACUOUS = "holds vacuously"
FAILS = "fails as stated"
INCONSISTENT = "inconsistent"
REPRODUCED = "reproduced at reduced scale"
NOT_REPRODUCED = "not reproduced"
OUT_OF_REACH = "out of reach here"

VERDICTS = (
    HOLDS,
    ASSUMING,
    VACUOUS,
    FAILS,
    INCONSISTENT,
    REPRODUCED,
    NOT_REPRODUCED,
    OUT_OF_REACH,
)


@dataclass(frozen=True)
class CheckFinding:
    """The outcome of one check.

    Attributes
    ----------
    verdict : str
        One of ``VERDICTS``, computed by the check.
    summary : str
        The result in a sentence or two, with its numbers.
    effort : str
        What was searched or measured: how many instances, of what kind, or which recording.
    numbers : mapping
        Further figures, by name.
    counterexample : mapping or None
        Where a statement fails as printed: an instance, in full, to verify by hand.
    remedy_holds : bool or None
        Whether the repaired statement, or the one with the added assumption, passed the same
        test; None where there is none to test.
    """

    verdict: str
    summary: str
    effort: str
    numbers: Mapping = field(default_factory=dict)
    counterexample: Mapping | None = None
    remedy_holds: bool | None = None

    def __post_init__(self) -> None:
        assert self.verdict in VERDICTS, self.verdict


def judge(
    counterexample: Mapping | None, remedy_counterexample: Mapping | None, *, remedied: str = FAILS
) -> tuple[str, bool | None]:
    """Verdict of a search: ``(verdict, remedy_holds)``.

    Without a counterexample the statement holds. With one it fails as stated, or holds with an
    added assumption (``remedied``); whether the remedy survived the same search is said beside it.
    """
    if counterexample is None:
        return HOLDS, None
    return remedied, remedy_counterexample is None


def plain(value: Any) -> Any:
    """A number, text, list or mapping without numpy types, for printing and JSON."""
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value.item() if hasattr(value, "item") and not hasattr(value, "__len__") else value

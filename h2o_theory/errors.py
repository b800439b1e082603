"""Named errors: which argument is wrong, what it must be, what it was, and what to do.

All of them derive from :class:`H2OTheoryError`, so a caller can catch one class; the command
line prints them on one line and exits with code 2.
"""

import difflib
from collections.abc import Iterable, Mapping
from typing import Self

__all__ = [
    "BadArgument",
    "BadBudget",
    "CannotRead",
    "CannotWrite",
    "ContractBroken",
    "CorruptTrace",
    "H2OTheoryError",
    "InvalidAttention",
    "MissingDependency",
    "ModelNotFound",
    "NotEnoughData",
    "OutOfRange",
    "OutputExists",
    "RecordingRefused",
    "TaskError",
    "TextError",
    "TraceNotFound",
    "UnfinishedTrace",
    "UnknownName",
    "UnsupportedModel",
]


class H2OTheoryError(Exception):
    """Base class of every error this package raises on purpose.

    The message reads ``[where: ]what[, got X][; expected Y][. hint]``.

    Parameters
    ----------
    what : str
        A sentence about the argument that says what it must be, or what happened.
    where : object, optional
        The file, layer or step concerned, where the sentence does not name it.
    got : object, optional
        What was found.
    expected : object, optional
        What would have been accepted, where the sentence does not say so.
    hint : str, optional
        The next step for the user, as an imperative sentence.

    Examples
    --------
    >>> print(BadArgument("chunk must be at least 1", got=0))
    chunk must be at least 1, got 0
    """

    def __init__(
        self,
        what: str,
        *,
        where: object = "",
        got: object = "",
        expected: object = "",
        hint: str = "",
    ) -> None:
        self.what, self.where, self.hint = what, str(where), hint
        self.got, self.expected = str(got), str(expected)
        text = f"{self.where}: {what}" if self.where else what
        if self.got:
            text += f", got {self.got}"
        if self.expected:
            text += f"; expected {self.expected}"
        if hint:
            text += f". {hint}"
        super().__init__(" ".join(text.split()))


class BadArgument(H2OTheoryError, ValueError):
    """An argument or option has a value that cannot be used."""


class BadBudget(BadArgument):
    """A budget cannot be read, is below one token or above the length of the trace."""


class OutOfRange(BadArgument):
    """A layer, kv_head or row does not exist in the trace or model."""


class UnknownName(BadArgument):
    """There is no policy, mask, transform or task of that name."""

    @classmethod
    def of(
        cls,
        kind: str,
        name: str,
        known: Iterable[str],
        *,
        elsewhere: Mapping[str, str] | None = None,
    ) -> Self:
        """The error for a name that is none, with what was probably meant said first.

        Parameters
        ----------
        kind : str
            What it should have named, such as ``"policy"``.
        name : str
        known : iterable of str
            The names that exist.
        elsewhere : dict of str to str, optional
            Names that other software uses, lower case, with what they are called here.

        Examples
        --------
        >>> print(UnknownName.of("policy", "h20", ["h2o", "tova"]))
        there is no policy 'h20'. Did you mean h2o? There are: h2o, tova
        """
        known, same = list(known), (elsewhere or {}).get(name.lower())
        near = [same] if same else difflib.get_close_matches(name.lower(), known, cutoff=0.5)
        meant = f"Did you mean {' or '.join(near)}? " if near else ""
        return cls(f"there is no {kind} {name!r}", hint=f"{meant}There are: {', '.join(known)}")


class InvalidAttention(BadArgument):
    """An attention matrix is not causal, not finite, negative, or its rows do not sum to one."""


class TextError(BadArgument):
    """The text to record is missing, empty, undecodable or too short."""


class TaskError(BadArgument):
    """A task has no choices, its data cannot be reached, or its documents do not fit."""


class NotEnoughData(BadArgument):
    """There is too little data for a statistic: too few values, or all the same."""


class OutputExists(BadArgument):
    """The place to write to is already taken; nothing was overwritten."""


class CannotRead(H2OTheoryError):
    """A file is there and the machine cannot read it now: memory, rights, open files, disk."""


class CannotWrite(H2OTheoryError):
    """The disk is full or the place cannot be written; what was finished before is kept."""


class TraceNotFound(H2OTheoryError):
    """There is no trace at that path."""


class ContractBroken(H2OTheoryError, AssertionError):
    """A policy does what no policy may do."""


class CorruptTrace(H2OTheoryError):
    """A trace is truncated, altered, incomplete or inconsistent; nothing was read from it."""


class UnfinishedTrace(H2OTheoryError):
    """A recording was stopped before its end: no trace yet, but it can be resumed or replaced."""


class ModelNotFound(H2OTheoryError):
    """A model name or path leads to no model."""


class MissingDependency(H2OTheoryError):
    """An optional package is needed for this and is not installed."""


class UnsupportedModel(H2OTheoryError):
    """The attention of this model cannot be intercepted faithfully."""


class RecordingRefused(H2OTheoryError):
    """What was captured does not reproduce what the model computed; no trace was written."""

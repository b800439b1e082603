"""Named errors: what is wrong, where, what was got, what was expected and what to do.

All of them derive from :class:`H2OTheoryError`, so a caller can catch one class; the command
line prints them on one line and exits with code 2.
"""

__all__ = [
    "BadArgument",
    "BadBudget",
    "CannotWrite",
    "ContractBroken",
    "CorruptCell",
    "CorruptTrace",
    "DiskFull",
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
    "UnknownMask",
    "UnknownPolicy",
    "UnknownTask",
    "UnknownTransform",
    "UnsupportedModel",
]


class H2OTheoryError(Exception):
    """Base class of every error this package raises on purpose.

    Parameters
    ----------
    what : str
        The fault in a few words.
    where : str, optional
        The file, argument, layer or step concerned.
    got, expected : object, optional
        What was found and what would have been accepted.
    hint : str, optional
        The next step for the user, as an imperative sentence.
    """

    def __init__(self, what, *, where="", got="", expected="", hint=""):
        self.what, self.where, self.hint = what, str(where), hint
        self.got, self.expected = str(got), str(expected)
        text = what
        if self.where:
            text += f" [{self.where}]"
        details = []
        if self.got:
            details.append(f"got {self.got}")
        if self.expected:
            details.append(f"expected {self.expected}")
        if details:
            text += ": " + "; ".join(details)
        if hint:
            text += f". {hint}"
        super().__init__(" ".join(text.split()))


class BadArgument(H2OTheoryError, ValueError):
    """An argument or option has a value that cannot be used."""


class BadBudget(BadArgument):
    """A budget cannot be read, is below one token or above the length of the trace."""


class OutOfRange(BadArgument):
    """A layer, kv_head or row does not exist in the trace or model."""


class UnknownMask(BadArgument):
    """There is no mask of that name."""


class UnknownPolicy(BadArgument):
    """No policy of that name is registered."""


class InvalidAttention(BadArgument):
    """An attention matrix is not causal, not finite, negative, or its rows do not sum to one."""


class TextError(BadArgument):
    """The text to record is missing, empty, undecodable or too short."""


class UnknownTask(BadArgument):
    """There is no task of that name, or it is a group of tasks."""


class TaskError(BadArgument):
    """A task has no choices, its data cannot be reached, or its documents do not fit."""


class UnknownTransform(BadArgument):
    """There is no transform of that name."""


class NotEnoughData(BadArgument):
    """There is too little data for a statistic: too few values, or all the same."""


class OutputExists(BadArgument):
    """The place to write to is already taken; nothing was overwritten."""


class CannotWrite(H2OTheoryError):
    """The disk is full or the place cannot be written; what was finished before is kept."""


class CorruptCell(H2OTheoryError):
    """The file of a sweep's cell is truncated or altered; nothing was read from it."""


class TraceNotFound(H2OTheoryError):
    """There is no trace at that path."""


class ContractBroken(H2OTheoryError, AssertionError):
    """A policy does what no policy may do."""


class CorruptTrace(H2OTheoryError):
    """A trace is truncated, altered, incomplete or inconsistent; nothing was read from it."""


class UnfinishedTrace(H2OTheoryError):
    """A recording was stopped before its end: no trace yet, but it can be resumed or replaced."""


class DiskFull(H2OTheoryError):
    """What is to be written does not fit on the disk."""


class ModelNotFound(H2OTheoryError):
    """A model name or path leads to no model."""


class MissingDependency(H2OTheoryError):
    """An optional package is needed for this and is not installed."""


class UnsupportedModel(H2OTheoryError):
    """The attention of this model cannot be intercepted faithfully."""


class RecordingRefused(H2OTheoryError):
    """What was captured does not reproduce what the model computed; no trace was written."""

"""Time limits: the one place of this package that looks at a clock."""

from time import monotonic

from h2o_theory.errors import BadArgument

__all__ = ["Deadline"]


class Deadline:
    """The moment after which no further step is begun.

    Parameters
    ----------
    seconds : float or None
        From now; None is never.

    Raises
    ------
    BadArgument
        Not a number of at least 0.
    """

    def __init__(self, seconds: float | None) -> None:
        number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
        if seconds is not None and (not number or not seconds >= 0):
            raise BadArgument(
                "time_limit must be seconds of at least 0, or None", got=repr(seconds)
            )
        self._end = float("inf") if seconds is None else monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds left, at least 0."""
        return max(self._end - monotonic(), 0.0)

    @property
    def passed(self) -> bool:
        """Whether no time is left."""
        return self.left == 0.0

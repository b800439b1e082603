"""Numbers found, each with an interval, and what could not be found for lack of data."""

import math

import pandas as pd

from h2o_theory.errors import NotEnoughData
from h2o_theory.statistics import Interval

__all__ = ["Measurements"]


class Measurements:
    """Collects measures under (topic, measure, scope), and reasons where there is none.

    A measure is an estimate with a 95 % interval; an exact number has an interval of width 0.
    """

    def __init__(self):
        self._found, self._missing = {}, []

    def note(self, topic, measure, scope, interval, *, unit, n, over):
        """Enter a number; anything not finite is refused as a fault of the caller.

        Parameters
        ----------
        topic, measure, scope : str
        interval : Interval or float
            A float is an exact number.
        unit : str
        n : int
            How many things the number is over.
        over : str
            What they are, and what the interval resamples.
        """
        if not isinstance(interval, Interval):
            interval = Interval(*[float(interval)] * 3)
        if not all(math.isfinite(end) for end in interval):
            raise ValueError(f"{topic}, {measure}, {scope}: {interval}")
        self._found[topic, measure, scope] = (interval, unit, int(n), over)

    def attempt(self, topic, item, function):
        """Call ``function()``; if there is not enough data, enter why and return None."""
        try:
            return function()
        except NotEnoughData as error:
            self.lack(topic, item, str(error))
            return None

    def enter(self, topic, measure, scope, function, *, unit, n, over):
        """Note what ``function()`` returns, or that there is not enough data for it."""
        interval = self.attempt(topic, f"{measure}, {scope}", function)
        if interval is not None:
            self.note(topic, measure, scope, interval, unit=unit, n=n, over=over)

    def lack(self, topic, item, reason):
        """Enter that something could not be found."""
        self._missing.append({"topic": topic, "item": item, "reason": reason})

    def get(self, topic, measure, scope):
        """The :class:`~h2o_theory.statistics.Interval` noted, or None."""
        found = self._found.get((topic, measure, scope))
        return None if found is None else found[0]

    def found(self):
        """All numbers as a table without gaps."""
        return pd.DataFrame(
            [
                [*key, interval.value, interval.low, interval.high, unit, n, over]
                for key, (interval, unit, n, over) in self._found.items()
            ],
            columns=[
                "topic", "measure", "scope", "value", "low", "high", "unit", "n", "over",
            ],
        )  # fmt: skip

    def missing(self):
        """What could not be found: topic, item, reason."""
        return pd.DataFrame(self._missing, columns=["topic", "item", "reason"])

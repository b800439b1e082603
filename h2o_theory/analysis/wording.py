"""Numbers with their intervals, as text."""

__all__ = ["percent", "plain_number"]


def percent(interval):
    """A share as '12.3 % [11.0, 13.9]'."""
    return f"{100 * interval.value:.1f} % [{100 * interval.low:.1f}, {100 * interval.high:.1f}]"


def plain_number(interval, digits=2):
    """A number as '0.12 [0.11, 0.14]'."""
    value, low, high = (f"{end:.{digits}f}" for end in interval)
    return f"{value} [{low}, {high}]"

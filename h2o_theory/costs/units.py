"""Units of the cost model: bytes, seconds, FLOP; numbers in words."""

__all__ = ["GB", "GIB", "TERA", "bytes_in_words", "seconds_in_words"]

GB = 1e9
GIB = 2.0**30
TERA = 1e12


def bytes_in_words(size: float) -> str:
    """Bytes in GiB or MiB, to three digits.

    >>> bytes_in_words(3 * 2**30), bytes_in_words(2**19)
    ('3.00 GiB', '0.500 MiB')
    """
    unit, name = (GIB, "GiB") if size >= 2**30 else (2**20, "MiB")
    return f"{size / unit:#.3g} {name}"


def seconds_in_words(seconds: float) -> str:
    """Seconds, milliseconds or hours, to three digits.

    >>> seconds_in_words(0.0464), seconds_in_words(99.5), seconds_in_words(10800)
    ('46.4 ms', '99.5 s', '3.00 h')
    """
    for unit, name in ((3600.0, "h"), (1.0, "s"), (1e-3, "ms")):
        if seconds >= (3600.0 if name == "h" else unit):
            return f"{seconds / unit:#.3g} {name}"
    return f"{seconds * 1e6:#.3g} us"

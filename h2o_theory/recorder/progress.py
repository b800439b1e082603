"""How far a recording is, as its progress callback is told."""

__all__ = ["step"]


def step(pass_lengths, reached, expected):
    """What to tell after a layer has reported.

    Parameters
    ----------
    pass_lengths : list of int
        Tokens of each pass so far.
    reached : collection of int
        Tokens that each recorded layer has reported.
    expected : int or None
        Tokens there will be, where that is known.

    Returns
    -------
    tuple (done, total, label) or None
        Layers of a pass over several tokens; for single-token passes the tokens from the first
        of them on, once all layers have reported, and None until then.
    """
    stop, rows = sum(pass_lengths), pass_lengths[-1]
    done = sum(at == stop for at in reached)
    if rows > 1:
        return done, len(reached), f"tokens {stop - rows} to {stop - 1}, layers"
    if done < len(reached):
        return None
    before = sum(pass_lengths[: pass_lengths.index(1)])
    total = stop if expected is None else max(stop, expected)
    return stop - before, total - before, "tokens one at a time"

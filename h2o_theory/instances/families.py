"""Made-up attention: rows of known character for tests, examples and benchmarks.

Every generator takes the length T and a numpy Generator and returns float64 rows [T, T], lower
triangular, each summing to one: the softmax of logits that describe the character. The same
Generator state gives the same rows. Adversarial rows are in :mod:`h2o_theory.instances.hard`.
"""

import numpy as np

from h2o_theory.annotations import FloatArray
from h2o_theory.errors import BadArgument
from h2o_theory.optimum.arguments import require_at_least

__all__ = [
    "drifting_rows",
    "heavy_hitter_rows",
    "local_rows",
    "needle_rows",
    "require_generator",
    "tied_rows",
]

_SINKS = 4
_SINK_BONUS = 3.0


def heavy_hitter_rows(
    tokens: int, rng: np.random.Generator, *, spread: float = 2.5, recency: float = 0.2
) -> FloatArray:
    """A few tokens matter all the time: ``logit[t, j] = noise + spread * s_j - recency log(lag)``.

    Parameters
    ----------
    tokens : int
        T, at least 1.
    rng : numpy.random.Generator
    spread : float
        Standard deviation of the lasting importance s_j, against noise of 1.
    recency : float
        Decay with ``log(1 + lag)``; the first four tokens get a bonus, as sinks do.
    """
    logits = _noise(tokens, rng)
    logits += spread * rng.normal(size=len(logits)) - recency * _log_lag(len(logits))
    logits[:, :_SINKS] += _SINK_BONUS
    return _softmax(logits)


def local_rows(tokens: int, rng: np.random.Generator, *, recency: float = 2.0) -> FloatArray:
    """Attention stays near: ``logit[t, j] = noise - recency * log(1 + lag)``.

    Parameters
    ----------
    tokens, rng
        As in :func:`heavy_hitter_rows`.
    recency : float

    Examples
    --------
    >>> local_rows(4, np.random.default_rng(0)).sum(axis=1).round(6)
    array([1., 1., 1., 1.])
    """
    logits = _noise(tokens, rng)
    return _softmax(logits - recency * _log_lag(len(logits)))


def drifting_rows(
    tokens: int, rng: np.random.Generator, *, topics: int = 8, stay: int = 64, match: float = 3.0
) -> FloatArray:
    """What matters changes: tokens have topics, and queries ask for one topic for a while.

    Parameters
    ----------
    tokens, rng
        As in :func:`heavy_hitter_rows`.
    topics : int
        Number of topics, at least 1.
    stay : int
        Rows until the topic of the queries is drawn anew, at least 1.
    match : float
        Bonus of the logit of a token of the topic asked for.
    """
    logits = _noise(tokens, rng)
    size = len(logits)
    topics = require_at_least(topics, 1, "topics")
    stay = require_at_least(stay, 1, "stay")
    of_token = rng.integers(0, topics, size)
    asked = np.repeat(rng.integers(0, topics, size // stay + 1), stay)[:size]
    logits += match * (of_token == asked[:, None]) + rng.normal(size=size) - 0.3 * _log_lag(size)
    return _softmax(logits)


def needle_rows(
    tokens: int,
    rng: np.random.Generator,
    *,
    bursts: int | None = None,
    length: int = 8,
    strength: float = 6.0,
) -> FloatArray:
    """Old tokens are wanted out of the blue: short bursts of attention on one random older key.

    Parameters
    ----------
    tokens, rng
        As in :func:`heavy_hitter_rows`.
    bursts : int, optional
        How many, at least 0; T // 8 by default.
    length : int
        Rows of a burst, at least 1.
    strength : float
        Bonus of the logit.
    """
    logits = _noise(tokens, rng)
    size = len(logits)
    logits -= 0.5 * _log_lag(size)
    bursts = size // 8 if bursts is None else require_at_least(bursts, 0, "bursts")
    length = require_at_least(length, 1, "length")
    for _ in range(bursts if size > 1 else 0):
        key = rng.integers(0, size - 1)
        row = rng.integers(key + 1, size)
        logits[row : row + length, key] += strength
    return _softmax(logits)


def tied_rows(tokens: int, rng: np.random.Generator) -> FloatArray:
    """Rows that give 1/4 to each of four random keys, all else nothing: ties everywhere, exactly.

    Rows that see fewer than four keys use the largest power of two they can.

    Parameters
    ----------
    tokens, rng
        As in :func:`heavy_hitter_rows`.
    """
    rows = np.zeros_like(_noise(tokens, rng))
    for t in range(len(rows)):
        parts = 1 if t == 0 else 2 if t < 3 else 4
        rows[t, rng.permutation(t + 1)[:parts]] = 1 / parts
    return rows


def _noise(tokens: int, rng: np.random.Generator) -> FloatArray:
    """Standard normal logits [T, T]; refuses a length below 1 and what is no Generator."""
    tokens = require_at_least(tokens, 1, "tokens")
    require_generator(rng)
    return rng.normal(size=(tokens, tokens))


def require_generator(rng: np.random.Generator) -> None:
    """Refuse what is no numpy Generator: legacy seeds and states are not repeatable enough."""
    if not isinstance(rng, np.random.Generator):
        raise BadArgument(
            "rng must be a numpy Generator",
            got=type(rng).__name__,
            hint="Use numpy.random.default_rng(seed).",
        )


def _log_lag(tokens: int) -> FloatArray:
    """``log(1 + t - j)`` [T, T], 0 above the diagonal."""
    lag = np.subtract.outer(np.arange(tokens), np.arange(tokens))
    return np.log1p(np.maximum(lag, 0))


def _softmax(logits: FloatArray) -> FloatArray:
    """Causal softmax of each row."""
    logits = np.where(np.tril(np.ones(logits.shape, dtype=bool)), logits, -np.inf)
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)

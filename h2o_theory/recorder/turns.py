"""What ``generate`` feeds to sequences of a batch that have ended: padding, and no part of a trace.

Only ``generate`` itself knows. Which token ends a sequence and which one pads it may come from its
arguments, from a generation config or from the model; a stopping criterion may end a sequence at
any token; and a sequence that ended in one turn goes on in the next. So the decision is taken from
the object that takes it, the list of stopping criteria of each call of ``generate``. In a loop of
the user's own nothing is guessed: a token that the mask shows is a token of its sequence.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from h2o_theory.dependencies import require
from h2o_theory.errors import RecordingRefused

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from h2o_theory.recorder.session import Session

__all__ = ["Turns", "watching_turns"]

STEPWISE = ("greedy_search", "sample")
"""Ways to generate that feed each sequence one token after the other and never take one back."""

_sessions: weakref.WeakKeyDictionary[Any, Session] = weakref.WeakKeyDictionary()
"""Model -> the session that records it."""

_lock = threading.Lock()


class Turns:
    """Follows one turn of generation after the other.

    A sequence is fed its last token after the step that ends it, and padding from then on; so the
    sequences that are fed padding are those that had ended *before* the latest step.
    """

    def __init__(self) -> None:
        self._assistant: Any = None
        self._custom: Any = None
        self.end()

    def begin(self, assistant: Any, custom: Any) -> None:
        """``generate`` was called, with an assistant model or a loop of the user's own or none."""
        self._assistant, self._custom = assistant, custom
        self.end()

    def end(self) -> None:
        """No sequence has ended, or all of them."""
        self._chosen = self._padded = self._ended = None

    def follows(self, generation_config: Any) -> bool:
        """Whether the turn goes by transformers' own loop; refuse one that takes tokens back.

        Raises
        ------
        RecordingRefused
            For beam search, assisted decoding and the like.
        """
        mode = generation_config.get_generation_mode(self._assistant)
        if self._custom is None and mode.value not in STEPWISE:
            raise RecordingRefused(
                f"generation by {mode.value.replace('_', ' ')} takes back tokens that the model "
                "has attended to",
                hint="Generate by greedy search or sampling, or record the finished sequence in "
                "one forward pass",
            )
        return self._custom is None

    def choose(self, chosen: np.ndarray, ended: np.ndarray) -> None:
        """Note a step: the tokens [batch] to be fed next, and which sequences now have ended."""
        if ended.all():
            self.end()
            return
        self._padded = np.zeros_like(ended) if self._ended is None else self._ended
        self._ended, self._chosen = self._padded | ended, chosen

    def padded(self, ids: np.ndarray) -> np.ndarray:
        """Which sequences of a pass over the tokens [batch, n] are fed padding: bool [batch]."""
        if self._chosen is None or ids.shape[1] != 1 or not np.array_equal(ids[:, 0], self._chosen):
            self.end()  # not a step of this turn, whatever became of it
            return np.zeros(len(ids), dtype=bool)
        return self._padded


@contextlib.contextmanager
def watching_turns(model: PreTrainedModel, session: Session) -> Iterator[None]:
    """Tell a session of each step of ``generate``; refuse ways to generate that take steps back.

    Patched at the class and routed by the model: a copy of a model made meanwhile would keep a
    method that was replaced on the model itself.
    """
    mixin = require("transformers").GenerationMixin
    with _lock:
        if not _sessions:
            _patch(mixin)
        _sessions[model] = session
    try:
        yield
    finally:
        with _lock:
            _sessions.pop(model, None)
            if not _sessions:
                _unpatch(mixin)


def _patch(mixin: Any) -> None:
    generate, criteria_of = mixin.generate, mixin._get_stopping_criteria
    watched = _watched_list()

    @functools.wraps(generate)
    def watched_generate(self: Any, *args: Any, **options: Any) -> Any:
        session = _sessions.get(self)
        if session is not None:
            session.begin_turn(options.get("assistant_model"), options.get("custom_generate"))
        return generate(self, *args, **options)

    @functools.wraps(criteria_of)
    def watched_criteria(self: Any, generation_config: Any, *args: Any, **options: Any) -> Any:
        """Called once by each ``generate``, with its resolved settings, before its first pass."""
        criteria = criteria_of(self, generation_config, *args, **options)
        session = _sessions.get(self)
        if session is None or not session.follows(generation_config):
            return criteria
        # As generate has it: without a criterion on a token it pads nothing and goes on choosing.
        pads = any(hasattr(criterion, "eos_token_id") for criterion in criteria)
        return watched(criteria, session.turns) if pads else criteria

    mixin.generate, mixin._get_stopping_criteria = watched_generate, watched_criteria


def _unpatch(mixin: Any) -> None:
    for name in ("generate", "_get_stopping_criteria"):
        setattr(mixin, name, getattr(mixin, name).__wrapped__)


def _watched_list() -> Any:
    class WatchedCriteria(require("transformers").StoppingCriteriaList):
        """The stopping criteria of one turn, which tell what they decide."""

        def __init__(self, criteria: Any, turns: Turns) -> None:
            super().__init__(criteria)
            self._turns = turns

        def __call__(self, input_ids: Any, scores: Any, **options: Any) -> Any:
            ended = super().__call__(input_ids, scores, **options)
            self._turns.choose(input_ids[:, -1].cpu().numpy(), ended.cpu().numpy().astype(bool))
            return ended

    return WatchedCriteria

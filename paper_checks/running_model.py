"""The running model that claims about output quality are checked in: one text, two windows."""

import functools
import importlib.resources
import tempfile

from h2o_theory.experiments.study import Study, policy_arm
from h2o_theory.experiments.texts import language_reference
from h2o_theory.recorder import load_model
from h2o_theory.recorder.reading import encode

__all__ = [
    "ALL_WINDOWS",
    "BUDGET",
    "LONG",
    "LONGER",
    "MASK_WINDOWS",
    "TOKENS",
    "arms_at_budget",
    "described",
    "long_study",
    "longer_study",
    "said",
    "study",
]

MODEL, TEXT, TOKENS, WINDOWS = "smollm2-135m", "long_text.txt", 512, 1
ALL_WINDOWS = 4
"""As many as the text has: for the claims that the whole paper rests on."""
MASK_WINDOWS = 2
LONG, LONGER = 1024, 4096
"""Lengths of the single window for long input: of the text, and of Python's language reference."""
BUDGET = "20%"


@functools.cache
def _loaded():
    """The model, the ids of the text, and a folder for finished cells that goes at the end."""
    model = load_model(MODEL)
    text = importlib.resources.files("h2o_theory.data").joinpath(TEXT).read_text("utf-8")
    return model, encode(model.tokenizer, text, None, TEXT), tempfile.TemporaryDirectory()


@functools.cache
def study(tokens=TOKENS, windows=WINDOWS):
    """The study on the first windows of the text."""
    model, ids, folder = _loaded()
    return Study(model, ids, folder.name, tokens=tokens, windows=windows, text=TEXT)


def long_study():
    """The study on one long window."""
    return study(LONG, 1)


def longer_study():
    """The study on one longer window, of the longest text that every machine has."""
    model, _, folder = _loaded()
    name, text = language_reference()
    ids = encode(model.tokenizer, text, LONGER, name)
    return Study(model, ids, folder.name, tokens=LONGER, windows=1, text=name)


def described(windows=WINDOWS, tokens=TOKENS):
    """Which model and text a figure comes from, for the ``effort`` of a finding."""
    return (
        f"closed loop: {MODEL} in float32, {TEXT}, {windows} window(s) of T = {tokens}, "
        f"n = {windows * (tokens - 1)} predicted tokens; 95 % intervals over 32 stretches of text"
    )


@functools.cache
def arms_at_budget():
    """Every plain policy that a claim needs, at the budget: a Comparison with the full cache."""
    policies = ("h2o", "recent", "heavy", "h2o:score=mean")
    named = [policy_arm(policy, BUDGET, TOKENS, label=policy) for policy in policies]
    return study(TOKENS, ALL_WINDOWS).compare(named)


def said(finding, digits=3):
    """``+0.061 [0.040, 0.080]`` of a finding with value, low and high."""
    value, low, high = (finding[name] for name in ("value", "low", "high"))
    return f"{value:+.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"

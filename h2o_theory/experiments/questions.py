"""A multiple-choice question, and what the model makes of each of its answers under eviction."""

from dataclasses import dataclass

import numpy as np

from h2o_theory.errors import BadArgument
from h2o_theory.live.loop import closed_loop
from h2o_theory.live.stream import piece_of, stream_logits
from h2o_theory.store import policy_identity

__all__ = ["Question", "answer_scores", "encode_question", "question_length"]


@dataclass(frozen=True)
class Question:
    """A question as the model reads it.

    Attributes
    ----------
    pairs : tuple of (str, str)
        For each answer what is read before it, and the answer with the space before it. In most
        tasks the first is the same for all.
    lengths : tuple of int
        Characters of each answer.
    right : int
        Index of the right answer.
    """

    pairs: tuple
    lengths: tuple
    right: int


def encode_question(tokenizer, question: Question) -> list[tuple[list[int], int]]:
    """For each answer the ids of question and answer, and how many of them are the question's.

    Raises
    ------
    BadArgument
        If the question or an answer has no token.
    """
    found = []
    for before, answer in question.pairs:
        # A space at the end of the question belongs to the first token of the answer.
        cut = len(before.rstrip())
        ids = tokenizer(before + answer)["input_ids"]
        known = len(tokenizer(before[:cut])["input_ids"]) if cut else 0
        if not 0 < known < len(ids):
            raise BadArgument(
                "a question or an answer has no token",
                where=repr(before[-40:]),
                got=f"{known} tokens of the question, {len(ids)} with the answer",
            )
        found.append((ids, known))
    return found


def question_length(answers: list[tuple[list[int], int]]) -> int:
    """T of a question: what is read with its longest answer, whose last token is not."""
    return max(len(ids) - 1 for ids, _ in answers)


def answer_scores(study, policy, budgets, encoded) -> list[np.ndarray]:
    """Sum of the log-probabilities of each answer, a float64 array for each question; kept on disk.

    Parameters
    ----------
    study : Study
    policy : Policy
    budgets : list of int
        Entries of each question.
    encoded : list
        What :func:`encode_question` gives for each.
    """

    def compute():
        sums = np.full((len(encoded), max(map(len, encoded))), np.nan)
        for row, answers, k in zip(sums, encoded, budgets, strict=True):
            row[: len(answers)] = _score(study.model.model, policy, k, answers)
        return {}, {"sums": sums}

    _, arrays = study.kept(
        compute, kind="choice", policy=policy_identity(policy), budget=budgets, answers=encoded
    )
    return [row[: len(answers)] for row, answers in zip(arrays["sums"], encoded, strict=True)]


def _score(model, policy, budget, answers):
    """The sum for each answer of a question."""
    import torch

    predictions, sums, tokens = {}, [], question_length(answers)
    for ids, known in answers:
        read = tuple(ids[:-1]), known
        if read not in predictions:
            predictions[read] = _predictions(model, policy, budget, tokens, *read)
        right = torch.tensor(ids[known:], device=model.device)
        sums.append(predictions[read].gather(1, right[:, None]).sum().item())
    return sums


def _predictions(model, policy, budget, tokens, ids, known):
    """Log-probabilities [n, vocabulary], float64, of the tokens after the ``known`` first ones."""
    import torch

    kept = []
    with closed_loop(model, policy, budget, tokens=tokens) as loop:
        for start, logits in stream_logits(model, np.array(ids), loop.cache, piece_of(policy)):
            kept.append(logits[max(known - 1 - start, 0) :].double())
    return torch.log_softmax(torch.cat(kept), dim=-1)

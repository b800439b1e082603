"""Multiple choice with eviction while question and answer are read, at any number of shots.

Sixteen questions of our own say next to nothing about a model's knowledge; they show that prompts,
answers and eviction are put together rightly. Tasks with data sets come from
:func:`~h2o_theory.experiments.harness.questions_from_harness`.
"""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from h2o_theory.errors import BadArgument
from h2o_theory.experiments.result import ExperimentResult
from h2o_theory.live.identity import policy_fingerprint
from h2o_theory.live.loop import closed_loop
from h2o_theory.live.refuse import check_policy_runs_live
from h2o_theory.live.stream import piece_of, stream_logits
from h2o_theory.policies import parse_budget
from h2o_theory.policies.base import checked_parts

__all__ = ["Question", "multiple_choice", "own_questions"]


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


QUESTIONS = tuple(
    (text, tuple(answers.split()), right)
    for text, answers, right in (
        ("What is the capital of France?", "Paris London Rome Madrid", 0),
        ("Which animal barks?", "cat dog cow fish", 1),
        ("What colour is the sky on a clear day?", "green red blue black", 2),
        ("How many legs does a spider have?", "four six ten eight", 3),
        ("What do bees make?", "honey milk wool bread", 0),
        ("Which planet do we live on?", "Mars Earth Venus Saturn", 1),
        ("What is frozen water called?", "steam sand ice smoke", 2),
        ("Which season comes after winter?", "autumn summer night spring", 3),
        ("What do we use to see?", "eyes ears feet hands", 0),
        ("What is two plus two?", "three four nine seven", 1),
        ("Which metal is attracted by a magnet?", "gold wood iron glass", 2),
        ("Who wrote Hamlet?", "Newton Mozart Darwin Shakespeare", 3),
        ("What is the opposite of hot?", "cold tall new fast", 0),
        ("Which fruit is long and yellow?", "cherry banana grape plum", 1),
        ("On which continent is Egypt?", "Asia Europe Africa Australia", 2),
        ("What do plants need to grow?", "salt paint paper light", 3),
        ("Which of these is a vegetable?", "carrot stone chair cloud", 0),
        ("What is the first month of the year?", "May January June October", 1),
        ("Which bird cannot fly?", "eagle swallow penguin pigeon", 2),
        ("How many days are in a week?", "five nine twelve seven", 3),
        ("What does a clock show?", "time weight colour taste", 0),
    )
)
"""Question, answers, index of the right one. The first 16 are asked; the others are examples."""

ASKED = 16
TOGETHER = 16
"""Questions kept in one cell: an interrupted run has at most so many to ask again."""


def own_questions(shots=(0, 1, 2, 3, 4, 5)):
    """The questions of our own, ``{shots: list of Question}``.

    Raises
    ------
    BadArgument
        For a number of examples that there are not.
    """
    examples = [f"Q: {text}\nA: {answers[right]}\n\n" for text, answers, right in QUESTIONS[ASKED:]]
    if not set(shots) <= set(range(len(examples) + 1)):
        raise BadArgument(
            "no such number of examples",
            where="shots",
            got=list(shots),
            expected=f"0 to {len(examples)} each",
        )
    return {
        count: [
            Question(
                tuple(
                    ("".join(examples[:count]) + f"Q: {text}\nA:", f" {answer}")
                    for answer in answers
                ),
                tuple(map(len, answers)),
                right,
            )
            for text, answers, right in QUESTIONS[:ASKED]
        ]
        for count in shots
    }


def multiple_choice(study, *, questions=None, task="", policies=("h2o", "recent"), budget="20%"):
    r"""Share of right answers by policy and number of examples, and how often a policy answers as
    the full cache does.

    The answer a of a question x is the one that the model, evicting from the first token of x
    on, finds most probable as a whole,

    .. math:: \hat a = \arg\max_a \sum_i \log p(a_i \mid x, a_{<i}),

    the harness's ``acc``; ``accuracy_norm`` divides each sum by the answer's number of characters,
    its ``acc_norm``. The first of equals wins.

    Parameters
    ----------
    study : Study
        For its model; the text plays no part.
    questions : dict of int to list of Question, optional
        By number of examples before each; those of our own by default.
    task : str
        What the result calls the questions.
    policies : sequence of str
        Beside the full cache.
    budget : str
        A share is one of the question with its longest answer, the last token left out, which is
        predicted and never read. It is the same for all answers of a question. A question shorter
        than a number of tokens is read with the full cache.

    Returns
    -------
    ExperimentResult
        Findings are ``accuracy`` with Wilson's 95 % interval.

    Raises
    ------
    BadArgument, BadBudget
        Before any question is asked: for a policy that cannot run in a model, an answer that adds
        no token to its question, a budget that does not hold a policy's parts at some question. At
        the question itself: where it is longer than the model's context.

    Notes
    -----
    A question is read once for each of its answers, once altogether if they have one token each.
    """
    questions = own_questions() if questions is None else questions
    if not questions or not all(questions.values()):
        raise BadArgument("there is no question", where=task or "questions")
    arms = {
        policy if isinstance(policy, str) else policy.name: check_policy_runs_live(policy)
        for policy in ("full", *policies)
    }
    encoded = {
        count: [_encoded(study.model.tokenizer, question) for question in asked]
        for count, asked in questions.items()
    }
    budgets = {
        (arm, count): [_budget(policy, budget, _tokens(each)) for each in answers]
        for arm, policy in arms.items()
        for count, answers in encoded.items()
    }
    lines, done, cells = [], 0, sum(-(-len(each) // TOGETHER) for each in budgets.values())
    for count, asked in questions.items():
        full = None
        for arm, policy in arms.items():
            sums = []
            for first in range(0, len(asked), TOGETHER):
                own = slice(first, first + TOGETHER)
                sums += _sums(study, policy, budgets[arm, count][own], encoded[count][own])
                done += 1
                if study.progress:
                    study.progress(done, cells, "cells")
            chosen = [int(np.argmax(found)) for found in sums]
            full = chosen if full is None else full
            lines.append(_line(arm, count, asked, sums, chosen, full))
    table = pd.DataFrame(lines)
    findings = {
        f"{row.arm}, {row.shots} shots": {
            "value": row.accuracy,
            "low": row.low,
            "high": row.high,
            "n": row.n,
            "unit": "share of right answers",
        }
        for row in table.itertuples()
    }
    return ExperimentResult.of(
        study,
        "choice",
        "Do multiple-choice answers survive eviction?",
        _answer(table, task),
        findings,
        table,
        budget=budget,
        task=task or "questions of our own",
        scored="sum of log-probabilities of the answer",
    )


def _encoded(tokenizer, question):
    """For each answer the ids of question and answer, and how many are the question's."""
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


def _tokens(answers):
    """T of a question: what is read with its longest answer, whose last token is not."""
    return max(len(ids) - 1 for ids, _ in answers)


def _budget(policy, budget, tokens):
    """The budget of a policy at a question of T = ``tokens``."""
    asked = parse_budget(budget)
    k = asked.resolve(tokens) if asked.is_share else min(int(asked.amount), tokens)
    if policy.name == "full":
        return tokens
    checked_parts(policy, k)
    return k


def _sums(study, policy, budgets, encoded):
    """Sum of the log-probabilities of each answer, a float64 array for each question."""

    def compute():
        sums = np.full((len(encoded), max(map(len, encoded))), np.nan)
        for row, answers, k in zip(sums, encoded, budgets, strict=True):
            row[: len(answers)] = _score(study.model.model, policy, k, answers)
        return {}, {"sums": sums}

    what = [policy_fingerprint(policy, k) for k in budgets]
    _, arrays = study.kept(compute, kind="choice", policy=what, budget=budgets, answers=encoded)
    return [row[: len(answers)] for row, answers in zip(arrays["sums"], encoded, strict=True)]


def _score(model, policy, budget, answers):
    """The sum for each answer of a question."""
    import torch

    predictions, sums, tokens = {}, [], _tokens(answers)
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


def _line(arm, shots, asked, sums, chosen, full):
    right = np.array([question.right for question in asked])
    by_length = [np.argmax(s / np.array(q.lengths)) for s, q in zip(sums, asked, strict=True)]
    value, low, high = _wilson(int((right == chosen).sum()), len(asked))
    return {
        "arm": arm,
        "shots": shots,
        "n": len(asked),
        "accuracy": value,
        "low": low,
        "high": high,
        "accuracy_norm": float((right == by_length).mean()),
        "same_as_full": float((np.array(chosen) == full).mean()),
    }


def _answer(table, task):
    most = table[table["shots"] == table["shots"].max()]
    shares = ", ".join(f"{row.arm} {row.accuracy:.3f}" for row in most.itertuples())
    text = f"right at {most['shots'].iloc[0]} shots: {shares} of {most['n'].iloc[0]} questions"
    if not task:
        text += " of our own (a check that prompts, answers and eviction fit together, no measure"
        text += " of knowledge)"
    return text


def _wilson(hits, n, z=1.96):
    """A share with its 95 % interval (Wilson 1927)."""
    share = hits / n
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return share, max(0.0, middle - half), min(1.0, middle + half)

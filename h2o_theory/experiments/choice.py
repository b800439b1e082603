"""Multiple choice with eviction while question and answer are read, at any number of shots.

Questions come from :func:`~h2o_theory.experiments.harness.questions_from_harness`, or are made by
hand as :class:`~h2o_theory.experiments.questions.Question`.
"""

import numpy as np
import pandas as pd

from h2o_theory.budgets import parse_budget
from h2o_theory.errors import BadArgument
from h2o_theory.experiments.questions import answer_scores, encode_question, question_length
from h2o_theory.experiments.result import ExperimentResult
from h2o_theory.live.refuse import check_policy_runs_live
from h2o_theory.policies.parts import resolve_parts
from h2o_theory.statistics import share_interval

__all__ = ["multiple_choice"]

TOGETHER = 16
"""Questions kept in one cell: an interrupted run has at most so many to ask again."""


def multiple_choice(study, *, questions, task="", policies=("h2o", "recent"), budget="20%"):
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
    questions : dict of int to list of Question
        By number of examples before each.
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
    if not questions or not all(questions.values()):
        raise BadArgument("questions must hold at least one question for each number of examples")
    arms = {
        policy if isinstance(policy, str) else policy.name: check_policy_runs_live(policy)
        for policy in ("full", *policies)
    }
    encoded = {
        count: [encode_question(study.model.tokenizer, question) for question in asked]
        for count, asked in questions.items()
    }
    budgets = {
        (arm, count): [_budget(policy, budget, question_length(each)) for each in answers]
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
                sums += answer_scores(study, policy, budgets[arm, count][own], encoded[count][own])
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
        _answer(table),
        findings,
        table,
        budget=budget,
        task=task or "questions",
        scored="sum of log-probabilities of the answer",
    )


def _budget(policy, budget, tokens):
    """The budget of a policy at a question of T = ``tokens``."""
    asked = parse_budget(budget)
    k = asked.resolve(tokens) if asked.is_share else min(int(asked.amount), tokens)
    if not policy.follows_budget:
        return tokens
    resolve_parts(policy, k)
    return k


def _line(arm, shots, asked, sums, chosen, full):
    right = np.array([question.right for question in asked])
    by_length = [np.argmax(s / np.array(q.lengths)) for s, q in zip(sums, asked, strict=True)]
    value, low, high = share_interval(int((right == chosen).sum()), len(asked))
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


def _answer(table):
    most = table[table["shots"] == table["shots"].max()]
    shares = ", ".join(f"{row.arm} {row.accuracy:.3f}" for row in most.itertuples())
    text = f"right at {most['shots'].iloc[0]} shots: {shares} of {most['n'].iloc[0]} questions"
    return text

"""Multiple choice at 0 to 5 shots: a check of the plumbing, on a few questions of our own.

Sixteen questions say next to nothing about a model's knowledge; they show that prompts, answers
and eviction are put together rightly. Those who have data sets load them with
:func:`questions_from_harness`.
"""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from h2o_theory.errors import BadArgument, MissingDependency
from h2o_theory.experiments.result import ExperimentResult
from h2o_theory.live.loop import closed_loop
from h2o_theory.live.stream import cache_argument

__all__ = ["QUESTIONS", "Question", "multiple_choice", "questions_from_harness"]


@dataclass(frozen=True)
class Question:
    """A question, its possible answers, and the index of the right one."""

    text: str
    answers: tuple
    right: int


QUESTIONS = tuple(
    Question(text, tuple(answers.split()), right)
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
"""The first 16 are asked; the others are the examples of the shots."""

ASKED = 16


def multiple_choice(
    study, *, shots=(0, 1, 2, 3, 4, 5), arms=("full", "h2o", "recent"), budget="20%"
):
    """Share of right answers by policy and number of examples, and how often an arm answers as
    the full cache does.

    The answer is the one whose first token the model finds most probable after ``A:``. A policy
    evicts while the prompt is read; a share is one of the prompt.

    Parameters
    ----------
    study : Study
        For its model; the text plays no part.
    shots : sequence of int
        At most 5.
    arms : sequence of str
        Policies; ``full`` first.
    budget : str

    Returns
    -------
    ExperimentResult
        Findings carry Wilson's 95 % interval of a share.
    """
    if not set(shots) <= set(range(len(QUESTIONS) - ASKED + 1)) or not len(shots):
        raise BadArgument(
            "no such number of examples", where="shots", got=shots, expected="0 to 5 each"
        )
    lines, answers = [], {}
    for done, count in enumerate(shots, start=1):
        for arm in arms:
            chosen = _answers(study, arm, budget, count)
            answers[arm, count] = chosen
            right = [question.right == a for question, a in zip(_asked(), chosen, strict=True)]
            same = [a == b for a, b in zip(chosen, answers[arms[0], count], strict=True)]
            lines.append(_line(arm, count, right, same, arms[0]))
        if study.progress:
            study.progress(done, len(shots), "shots")
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
        "Do multiple-choice answers survive eviction? (a check of the plumbing)",
        f"{ASKED} questions of our own: a check that prompts, answers and eviction fit together, "
        "no measure of knowledge",
        findings,
        table,
        budget=budget,
    )


def questions_from_harness(task, limit=None):
    """Questions of a multiple-choice task of lm-evaluation-harness, for those who have its data.

    Parameters
    ----------
    task : str
        Such as ``piqa``; its data set must be on this machine or reachable.
    limit : int, optional

    Returns
    -------
    list of Question

    Raises
    ------
    MissingDependency
        Without the package ``lm-eval`` (extra ``harness``).
    BadArgument
        If the task has no choices.
    """
    try:
        from lm_eval.tasks import TaskManager, get_task_dict
    except ImportError:
        raise MissingDependency(
            "tasks of lm-evaluation-harness need the package lm-eval",
            hint='Install it with: pip install "h2o-theory[harness]"',
        ) from None
    found = get_task_dict([task], TaskManager())[task]
    if getattr(found, "OUTPUT_TYPE", None) != "multiple_choice":
        raise BadArgument("the task has no choices", where=task)
    documents = found.validation_docs() if found.has_validation_docs() else found.test_docs()
    questions = []
    for document in documents:
        if limit is not None and len(questions) >= limit:
            break
        answers = tuple(found.doc_to_choice(document))
        questions.append(
            Question(found.doc_to_text(document), answers, int(found.doc_to_target(document)))
        )
    return questions


def _asked():
    return QUESTIONS[:ASKED]


def _prompt(question, shots):
    examples = [f"Q: {q.text}\nA: {q.answers[q.right]}\n\n" for q in QUESTIONS[ASKED:][:shots]]
    return "".join(examples) + f"Q: {question.text}\nA:"


def _answers(study, policy, budget, shots):
    """Index of the answer chosen for each question."""

    def compute():
        chosen = [_choose(study, question, policy, budget, shots) for question in _asked()]
        return {}, {"chosen": np.array(chosen)}

    prompts = [_prompt(question, shots) for question in _asked()]
    what = {"policy": policy, "budget": budget, "prompts": prompts}
    answers = [question.answers for question in _asked()]
    found = study.kept(compute, kind="choice", answers=answers, **what)
    return found[1]["chosen"].tolist()


def _choose(study, question, policy, budget, shots):
    import torch

    model, tokenizer = study.model.model, study.model.tokenizer
    ids = tokenizer(_prompt(question, shots))["input_ids"]
    firsts = [
        tokenizer(f" {a}", add_special_tokens=False)["input_ids"][0] for a in question.answers
    ]
    if len(set(firsts)) < len(firsts):
        raise BadArgument("answers begin with the same token", where=question.text)
    with closed_loop(model, policy, budget, tokens=len(ids)) as loop, torch.no_grad():
        batch = torch.tensor([ids], device=model.device)
        logits = model(batch, **{cache_argument(model): loop.cache}).logits[0, -1]
    return int(logits[firsts].argmax())


def _line(arm, shots, right, same, over):
    value, low, high = _wilson(sum(right), len(right))
    return {
        "arm": arm,
        "shots": shots,
        "n": len(right),
        "accuracy": value,
        "low": low,
        "high": high,
        f"same_as_{over}": sum(same) / len(same),
    }


def _wilson(hits, n, z=1.96):
    """A share with its 95 % interval (Wilson 1927)."""
    share = hits / n
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return share, max(0.0, middle - half), min(1.0, middle + half)

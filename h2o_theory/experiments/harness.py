"""Multiple-choice questions of lm-evaluation-harness: its tasks by name, and the user's own."""

import contextlib
import difflib
from pathlib import Path

from h2o_theory.dependencies import require
from h2o_theory.errors import BadArgument, H2OTheoryError, TaskError, UnknownName
from h2o_theory.experiments.questions import Question

__all__ = ["questions_from_harness"]

SEED = 1234
"""With which the harness draws the examples of a prompt, unless told otherwise."""


def questions_from_harness(task, *, shots=(0,), limit=None, folder=None):
    """The questions of a task, ``{shots: list of Question}``, worded as the harness words them.

    Prompts, examples, delimiters, answers and the right one come from the harness's own calls, so
    ``full`` has the accuracy that the harness reports for the model. Its names of the paper's
    tasks are ``copa``, ``mathqa``, ``openbookqa``, ``piqa``, ``rte`` and ``winogrande``.

    An own task is a YAML file of the harness in ``folder``. With the documents in a file of JSON
    lines ``{"q": ..., "choices": [..., ...], "right": 0}``, whose path is looked up from where
    the program runs::

        task: mine
        dataset_path: json
        dataset_kwargs: {data_files: {test: mine.jsonl}}
        output_type: multiple_choice
        test_split: test
        doc_to_text: "Q: {{q}}\\nA:"
        doc_to_choice: choices
        doc_to_target: right

    Parameters
    ----------
    task : str
    shots : sequence of int
        Numbers of examples before a question. The harness draws them from the training documents,
        of a task without any from those that are asked.
    limit : int, optional
        The first so many documents.
    folder : path, optional
        Of YAML files, which come before the harness's own tasks.

    Returns
    -------
    dict of int to list of Question

    Raises
    ------
    MissingDependency
        Without the package ``lm-eval`` (extra ``harness``).
    UnknownName
        If there is no such task, or it is a group of tasks.
    TaskError
        If the data set cannot be reached, the task has no choices or judges them by a rule of its
        own, or its documents do not fit: answers that are not text, no single right answer among
        them, too few documents for the examples.
    BadArgument
        For a limit below 1, a negative number of examples, or a folder that does not exist.
    """
    if limit is not None and limit < 1:
        raise BadArgument("no document", where="limit", got=limit, expected="at least 1")
    if min(shots, default=0) < 0:
        raise BadArgument("no such number of examples", where="shots", got=list(shots))
    loaded = _loaded(task, folder)
    if loaded.OUTPUT_TYPE != "multiple_choice":
        raise TaskError("the task has no choices", where=task, got=loaded.OUTPUT_TYPE)
    if callable(loaded.config.process_results):
        raise TaskError("the task judges answers by a rule of its own", where=task)
    if loaded.config.doc_to_image or loaded.config.doc_to_audio:
        raise TaskError("the task shows or plays something beside text", where=task)
    documents = [document for _, document in loaded.doc_iterator(limit=limit)]
    asked = {}
    for count in shots:
        # Anew for each number, so that a prompt does not depend on the others asked for.
        loaded.set_fewshot_seed(SEED)
        with _in_the_harness("a document does not fit the task", task):
            asked[count] = [_question(loaded, document, count) for document in documents]
    return asked


def _loaded(task, folder):
    """The harness's task object, its data loaded."""
    manager = require("lm_eval.tasks").TaskManager
    found, names = None, []
    if folder is not None:
        if not Path(folder).is_dir():
            raise BadArgument("there is no such folder of tasks", where=folder)
        found = manager(include_path=str(folder), include_defaults=False)
        names = found.all_tasks
    # The harness reads its 14,000 files in 7 s, so only where they are needed.
    if task not in names:
        found = manager()
    if task not in found.all_subtasks:
        known = task in found.all_tasks
        near = difflib.get_close_matches(task, [*names, *found.all_subtasks], n=5)
        raise UnknownName(
            "this is a group of tasks" if known else "there is no such task",
            where=task,
            expected=f"one task, such as {', '.join(near)}" if near else "one task",
            hint="" if folder is None else "A YAML file that cannot be read counts as missing",
        )
    with _in_the_harness("the task cannot be built", task):
        try:
            return found.load(task)["tasks"][task]
        except OSError as error:
            raise TaskError(
                "the data set of the task cannot be reached",
                where=task,
                got=error,
                hint="Put its documents on this machine: a task folder with dataset_path: json",
            ) from error


@contextlib.contextmanager
def _in_the_harness(what, task):
    """Whatever a task's YAML and functions raise, as TaskError."""
    try:
        yield
    except H2OTheoryError:
        raise
    except Exception as error:
        raise TaskError(
            what,
            where=task,
            got=f"{type(error).__name__}: {error}",
            expected="doc_to_text, doc_to_choice and doc_to_target that fit the documents; "
            "answers are lists of strings",
        ) from error


def _question(loaded, document, shots):
    choices = loaded.doc_to_choice(document)
    if not all(isinstance(choice, str) and choice for choice in choices):
        raise TaskError("an answer is not text", where=loaded.task_name, got=repr(choices))
    # Where the answers stand within the question, its place is what doc_to_text gives.
    ask = loaded.doc_to_text if loaded.multiple_input else loaded.doc_to_target
    right = ask(document)
    index = choices.index(right) if right in choices else right
    if not isinstance(index, int) or not 0 <= index < len(choices):
        raise TaskError(
            "the right answer is not one of the answers",
            where=loaded.task_name,
            got=repr(right),
            expected=f"the text of one of {choices}, or its place from 0 to {len(choices) - 1}",
        )
    begun = loaded.doc_to_prefix(document)
    prompt = loaded.fewshot_context(document, num_fewshot=shots, gen_prefix=begun)
    asked = loaded.construct_requests(document, prompt)[: len(choices)]
    return Question(tuple(request.args for request in asked), tuple(map(len, choices)), int(index))

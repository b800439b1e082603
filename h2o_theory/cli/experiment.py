"""``h2o-theory experiment``: the paper's experiments at reduced scale, in the running model."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from h2o_theory.budgets import parse_budget, parse_budgets
from h2o_theory.cli.common import integers, print_table, say, shown_progress
from h2o_theory.cli.live import live_provenance, require_tokenizer
from h2o_theory.masks import parse_masks
from h2o_theory.policies import parse_policies
from h2o_theory.policies.parse import split_names
from h2o_theory.recorder.reading import read_text
from h2o_theory.report import save_figure

__all__ = ["add_options"]


@dataclass(frozen=True)
class _Option:
    """An option of an experiment: its flag, how argparse reads it, and what it gives ``run``."""

    flag: str
    help: str
    read: Callable[[str], dict[str, Any]]
    choices: tuple[str, ...] | None = None
    metavar: str | None = None


def _policies(text: str) -> dict[str, Any]:
    parse_policies(text)
    return {"policies": tuple(split_names(text))}


def _budgets(text: str) -> dict[str, Any]:
    return {"budgets": tuple(budget.text for budget in parse_budgets(text))}


_POLICY = _Option("--policy", "policies in place of the default", _policies, metavar="P,P,...")
_BUDGETS = _Option("--budget", "budgets in place of the default", _budgets, metavar="K,K,...")
_BUDGET = _Option(
    "--budget",
    "a budget in place of the default",
    lambda text: {"budget": parse_budget(text).text},
    metavar="K",
)
_MASK = _Option(
    "--mask",
    "masks in place of the default, with parameters as in `h2o-theory ls masks`",
    lambda text: {"masks": parse_masks(text)},
    metavar="M,M,...",
)
_POSITIONS = _Option(
    "--positions",
    "whether positions are those of the text or counted within the cache, which a text longer "
    "than the model's context needs",
    lambda text: {"positions": text},
    choices=("original", "slot"),
)


def _fidelity_figure(result: Any) -> Any:
    from h2o_theory.figures.fidelity import fidelity_figure

    return fidelity_figure(result)


def _running_figure(result: Any) -> Any:
    from h2o_theory.figures.running import running_figure

    return running_figure(result)


def _ladder_figure(result: Any) -> Any:
    from h2o_theory.figures.live import ladder_figure

    return ladder_figure(result)


@dataclass(frozen=True)
class _Verb:
    """What the command line has for an experiment: a summary, its options, and its figure."""

    summary: str
    options: tuple[_Option, ...] = ()
    figure: Callable[[Any], Any] | None = None


_VERBS = {
    "ladder": _Verb("loss against budget", (_POLICY, _BUDGETS), _ladder_figure),
    "removal": _Verb("loss when heavy hitters are hidden"),
    "statistics": _Verb("local or global scores", (_BUDGET,)),
    "streaming": _Verb("a long text", (_POLICY, _BUDGET, _POSITIONS), _running_figure),
    "quantised": _Verb("4-bit keys and values", (_BUDGET,)),
    "masks": _Verb("sparse patterns with heavy hitters", (_BUDGET, _MASK)),
    "choice": _Verb("multiple choice on a task of lm-evaluation-harness", (_POLICY, _BUDGET)),
    "fidelity": _Verb("what the replay predicts", (_POLICY, _BUDGETS), _fidelity_figure),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Describe the verb and add a parser for each experiment."""
    parser.description = (
        "Run one of the paper's experiments. Finished cells under --out are not computed again. "
        "`h2o-theory experiment NAME --help` lists the options of one."
    )
    parser.epilog = "example: h2o-theory experiment ladder --windows 2 --out experiments"
    names = parser.add_subparsers(
        dest="name", metavar="NAME", required=True, parser_class=argparse.ArgumentParser
    )
    for name, verb in _VERBS.items():
        own = names.add_parser(name, help=verb.summary)
        _add_common(own)
        for option in verb.options:
            own.add_argument(
                option.flag, help=option.help, choices=option.choices, metavar=option.metavar
            )
        if name == "choice":
            _add_task(own)
    parser.set_defaults(run=run)


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", default="smollm2-135m", help="the model (default: %(default)s)")
    parser.add_argument(
        "--text", metavar="FILE", help="a UTF-8 text (default: Python's language reference)"
    )
    parser.add_argument("--tokens", type=int, metavar="T", help="tokens per window")
    parser.add_argument("--windows", type=int, metavar="N", help="number of consecutive windows")
    parser.add_argument(
        "--out", required=True, metavar="DIR", help="folder for cells, NAME.json and the figure"
    )
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, ... (default: cpu)")
    parser.add_argument("--dtype", default="float32", help="model dtype (default: float32)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def _add_task(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--task",
        required=True,
        metavar="TASK",
        help="a task of lm-evaluation-harness such as piqa (needs the extra harness)",
    )
    parser.add_argument(
        "--task-folder", metavar="DIR", help="folder of YAML files with tasks of your own"
    )
    parser.add_argument("--limit", type=int, metavar="N", help="ask the first N documents only")
    parser.add_argument(
        "--shots",
        metavar="N,N,...",
        default="0-5",
        help="number of examples before a question (default: %(default)s)",
    )


def run(arguments: argparse.Namespace) -> None:
    """Run, save, draw, print."""
    from h2o_theory.experiments import Study, find_experiment, language_reference, save_result
    from h2o_theory.recorder import load_model
    from h2o_theory.recorder.reading import encode

    experiment, verb = find_experiment(arguments.name), _VERBS[arguments.name]
    options = _given(verb, arguments)
    if arguments.name == "choice":
        options |= _questions(arguments)
    if arguments.text:
        name, text = Path(arguments.text).name, read_text(arguments.text)
    else:
        name, text = language_reference()
    tokens = experiment.tokens if arguments.tokens is None else arguments.tokens
    windows = experiment.windows if arguments.windows is None else arguments.windows
    with shown_progress() as progress:
        model = load_model(arguments.model, device=arguments.device, dtype=arguments.dtype)
        ids = encode(require_tokenizer(model), text, tokens * windows, name)
        study = Study(
            model,
            ids,
            arguments.out,
            tokens=tokens,
            windows=windows,
            text=name,
            progress=progress,
        )
        result = experiment.run(study, **options)
    result.setting.update(live_provenance(model, name, arguments.device))
    path = save_result(result, arguments.out)
    if verb.figure is not None:
        save_figure(verb.figure(result), path.with_suffix(".png"))
    say(f"result: {path}")
    if arguments.json:
        print(path.read_text())
        return
    print_table(result.table, f"{result.question} ({model.name}, {name})")
    print(result.answer)


def _given(verb: _Verb, arguments: argparse.Namespace) -> dict[str, Any]:
    """Keyword arguments of the experiment from the options that were given."""
    given: dict[str, Any] = {}
    for option in verb.options:
        text = getattr(arguments, option.flag.removeprefix("--"))
        if text is not None:
            given |= option.read(text)
    return given


def _questions(arguments: argparse.Namespace) -> dict[str, Any]:
    """What the experiment is to ask, as its keyword arguments."""
    from h2o_theory.experiments.harness import questions_from_harness

    shots = integers(arguments.shots, "--shots")
    questions = questions_from_harness(
        arguments.task, shots=shots, limit=arguments.limit, folder=arguments.task_folder
    )
    return {"questions": questions, "task": arguments.task}

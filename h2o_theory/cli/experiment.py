"""``h2o-theory experiment``: the paper's experiments at reduced scale, in the running model."""

import argparse
import inspect
from pathlib import Path

from h2o_theory.budgets import parse_budget, parse_budgets
from h2o_theory.cli.common import integers, print_table, say, shown_progress
from h2o_theory.cli.live import live_provenance, require_tokenizer
from h2o_theory.errors import BadArgument
from h2o_theory.masks import parse_masks
from h2o_theory.policies import parse_policies
from h2o_theory.policies.parse import split_names
from h2o_theory.recorder.reading import read_text
from h2o_theory.report import save_figure

__all__ = ["add_options"]

_SHOTS = "0-5"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Describe the verb and add its options."""
    parser.description = (
        "ladder: loss against budget. removal: hiding heavy hitters. statistics: "
        "local or global scores. streaming: a long text. quantised: 4-bit keys and values. masks: "
        "sparse patterns with heavy hitters. choice: multiple choice on a task of "
        "lm-evaluation-harness. fidelity: what the replay predicts. Finished cells under "
        "--out are not computed again."
    )
    parser.epilog = "example: h2o-theory experiment ladder --windows 2 --out experiments"
    parser.add_argument("name", metavar="NAME", help="as described above")
    parser.add_argument("--model", default="smollm2-135m", help="default: %(default)s")
    parser.add_argument(
        "--text", metavar="FILE", help="a UTF-8 text (default: Python's language reference)"
    )
    parser.add_argument("--tokens", type=int, metavar="T", help="of a window")
    parser.add_argument("--windows", type=int, metavar="N", help="consecutive windows")
    parser.add_argument(
        "--policy", metavar="P,P,...", help="of ladder, streaming, fidelity and choice"
    )
    parser.add_argument(
        "--mask", metavar="M,M,...", help="of masks; with parameters as in ls masks"
    )
    parser.add_argument("--budget", metavar="K,K,...", help="in place of the default")
    parser.add_argument(
        "--task",
        metavar="TASK",
        help="of choice: a task of lm-evaluation-harness such as piqa (extra harness)",
    )
    parser.add_argument(
        "--task-folder", metavar="DIR", help="of YAML files with tasks of your own for --task"
    )
    parser.add_argument("--limit", type=int, metavar="N", help="the first N documents of --task")
    parser.add_argument(
        "--shots",
        metavar="N,N,...",
        help=f"of choice: examples before a question (default: {_SHOTS})",
    )
    parser.add_argument(
        "--positions",
        choices=("original", "slot"),
        help="of streaming: those of the text, or counted within the cache, which a text longer "
        "than the model's context needs",
    )
    parser.add_argument("--out", required=True, metavar="DIR", help="cells, NAME.json and figure")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, ... (default: cpu)")
    parser.add_argument("--dtype", default="float32", help="of the model (default: float32)")
    parser.add_argument("--json", action="store_true", help="the result as JSON on stdout")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Run, save, draw, print."""
    from h2o_theory.experiments import Study, find_experiment, language_reference, save_result
    from h2o_theory.recorder import load_model
    from h2o_theory.recorder.reading import encode

    experiment = find_experiment(arguments.name)
    options = _options(experiment, arguments)
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
    _draw(result, path)
    say(f"result: {path}")
    if arguments.json:
        print(path.read_text())
        return
    print_table(result.table, f"{result.question} ({model.name}, {name})")
    print(result.answer)


_OPTIONS = ("policies", "masks", "budget", "budgets", "positions")


def _options(experiment, arguments):
    """What was asked for in the terms of the experiment; raises BadArgument if it has none."""
    known, options = inspect.signature(experiment.run).parameters, {}
    if arguments.policy is not None:
        parse_policies(arguments.policy)
        options["policies"] = tuple(split_names(arguments.policy))
    if arguments.mask is not None:
        options["masks"] = parse_masks(arguments.mask)
    if "questions" in known:
        options |= _questions(arguments)
    else:
        given = ("task", "task_folder", "limit", "shots")
        options |= {name: None for name in given if getattr(arguments, name) is not None}
    if arguments.budget is not None and "budgets" in known:
        options["budgets"] = tuple(budget.text for budget in parse_budgets(arguments.budget))
    elif arguments.budget is not None:
        options["budget"] = parse_budget(arguments.budget).text
    if arguments.positions:
        options["positions"] = arguments.positions
    for name in options:
        if name not in known:
            raise BadArgument(
                f"this experiment takes no {name}",
                where=arguments.name,
                expected=", ".join(n for n in known if n in _OPTIONS),
            )
    return options


def _questions(arguments):
    """What the experiment is to ask, as its keyword arguments."""
    from h2o_theory.experiments.harness import questions_from_harness

    shots = integers(_SHOTS if arguments.shots is None else arguments.shots, "--shots")
    if arguments.task is None:
        raise BadArgument("choice needs a task to take its questions from", hint="Give --task")
    questions = questions_from_harness(
        arguments.task, shots=shots, limit=arguments.limit, folder=arguments.task_folder
    )
    return {"questions": questions, "task": arguments.task}


def _draw(result, path):
    if result.name == "fidelity":
        from h2o_theory.figures.fidelity import fidelity_figure

        save_figure(fidelity_figure(result), path.with_suffix(".png"))
    if result.name == "streaming":
        from h2o_theory.figures.running import running_figure

        save_figure(running_figure(result), path.with_suffix(".png"))
    if result.name == "ladder":
        from h2o_theory.figures.live import ladder_figure

        save_figure(ladder_figure(result), path.with_suffix(".png"))

"""``h2o-theory demo``: the whole path on a real pretrained model, one command."""

import argparse
import importlib.resources
import sys
from pathlib import Path

from h2o_theory.cli.common import (
    add_replay_options,
    head_choice,
    print_table,
    say,
    shown_progress,
)
from h2o_theory.cli.provenance import provenance
from h2o_theory.engine import replay
from h2o_theory.report import refuse_existing, save_results, summary_table, write_report
from h2o_theory.trace import open_trace

__all__ = ["add_options"]

MODEL, TOKENS = "smollm2-135m", 512


def add_options(parser: argparse.ArgumentParser) -> None:
    """Describe the verb and add its options."""
    parser.description = (
        f"Record {MODEL} on a text that comes with the package ({TOKENS} tokens, all "
        "layers), replay every policy on every kv_head, and write a report. With --offline use "
        "a trace that comes with the project: neither torch nor the model is needed."
    )
    parser.add_argument(
        "--out",
        default="demo-output",
        metavar="DIR",
        help="folder of the demo (default: %(default)s)",
    )
    parser.add_argument("--offline", action="store_true", help="use the recorded trace")
    parser.add_argument("--overwrite", action="store_true", help="replace an earlier demo")
    add_replay_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Record (or open), replay, report, print."""
    out = Path(arguments.out)
    for name in (f"{MODEL}-{TOKENS}.trace", "results.parquet", "report"):
        refuse_existing(out / name, arguments.overwrite)
    with shown_progress() as progress:
        trace = _offline_trace() if arguments.offline else _record(out, arguments, progress)
        table = replay(
            trace,
            arguments.policy,
            arguments.budget,
            seed=arguments.seed,
            **head_choice(arguments),
            progress=progress,
        )
    table.attrs["provenance"] = provenance(trace, sys.argv[1:])
    out.mkdir(parents=True, exist_ok=True)
    save_results(table, out / "results.parquet", overwrite=arguments.overwrite)
    page = write_report(table, out / "report", overwrite=arguments.overwrite)
    heads = len(table[["layer", "kv_head"]].drop_duplicates())
    print_table(summary_table(table), f"mean over {heads} heads, {trace.name}")
    print(f"report: {page}")


def _offline_trace():
    folder = importlib.resources.files("h2o_theory.traces")
    (path,) = (path for path in folder.iterdir() if (path / "manifest.jsonl").is_file())
    return open_trace(path)


def _record(out, arguments, progress):
    from h2o_theory.recorder import load_model, record_text

    text = importlib.resources.files("h2o_theory.data").joinpath("demo_text.txt")
    say(f"loading {MODEL} (the first time it is converted, about 20 s)")
    model = load_model(MODEL)
    recording = record_text(
        model,
        text.read_text(encoding="utf-8"),
        TOKENS,
        out / f"{MODEL}-{TOKENS}.trace",
        token_strings=True,
        text_name=text.name,
        overwrite=arguments.overwrite,
        progress=progress,
    )
    say(str(recording.report))
    return open_trace(recording.path)

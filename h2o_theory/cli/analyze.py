"""``h2o-theory analyze``: heavy hitters of a trace as tables and one page."""

import argparse
import sys

from h2o_theory.analysis import analyze
from h2o_theory.attention import SPARSITY_THRESHOLD
from h2o_theory.cli.common import integers, print_json, print_table, say, shown_progress
from h2o_theory.cli.provenance import provenance
from h2o_theory.report import refuse_existing, write_analysis
from h2o_theory.trace import open_trace

__all__ = ["add_options"]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Describe the verb and add its options."""
    parser.description = (
        "Analyse the attention of a trace: how concentrated it is, how heavy hitters "
        "emerge and persist, whether they follow a power law or the co-occurrence of words, and "
        "how sparse rows are. Writes tables, figures and one HTML page, and prints the findings. "
        "Needs the extra analysis."
    )
    parser.epilog = "example: h2o-theory analyze notes.trace --tokenizer smollm2-135m --out notes"
    parser.add_argument("trace", metavar="TRACE")
    parser.add_argument("--out", required=True, metavar="DIR", help="folder of the new analysis")
    parser.add_argument(
        "--tokenizer",
        metavar="NAME",
        help="hub id, folder, .gguf file or smollm2-135m: tells the words of a trace that was "
        "recorded without --token-strings",
    )
    parser.add_argument("--no-words", action="store_true", help="leave out all that needs words")
    parser.add_argument(
        "--compare", nargs="+", default=[], metavar="TRACE", help="traces of other texts"
    )
    parser.add_argument(
        "--shuffle-model",
        metavar="MODEL",
        help="the recorded model: it reads the words in random order as a control (without it, "
        "the words' labels are permuted)",
    )
    parser.add_argument("--layers", metavar="L,L,...", help="layers to use (default: all recorded)")
    parser.add_argument(
        "--share", type=float, default=0.1, metavar="S",
        help="heavy hitters as a share of the positions (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--sinks", type=int, default=4, metavar="N",
        help="first positions set apart (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--threshold", type=float, default=SPARSITY_THRESHOLD, metavar="X",
        help="sparse: below this share of the row's maximum (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--window", type=int, default=5, metavar="W",
        help="words apart at most to occur together (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--replicates", type=int, default=500, metavar="N",
        help="bootstrap and permutation replicates (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--workers", type=int, metavar="N", help="number of threads (default: all cores)"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace an earlier analysis")
    parser.add_argument("--json", action="store_true", help="findings and numbers as JSON")
    parser.set_defaults(run=run, output="new folder")


def run(arguments: argparse.Namespace) -> None:
    """Analyse, write, print the findings."""
    refuse_existing(arguments.out, arguments.overwrite)
    trace = open_trace(arguments.trace)
    others = [open_trace(path) for path in arguments.compare]
    with shown_progress() as progress:
        analysis = analyze(
            trace,
            tokenizer=_tokenizer(arguments.tokenizer),
            words=not arguments.no_words,
            layers=integers(arguments.layers, "--layers"),
            share=arguments.share,
            n_sink=arguments.sinks,
            threshold=arguments.threshold,
            window=arguments.window,
            compare=others,
            shuffle_model=_model(arguments.shuffle_model),
            replicates=arguments.replicates,
            workers=arguments.workers,
            progress=progress,
        )
    page = write_analysis(
        analysis,
        arguments.out,
        overwrite=arguments.overwrite,
        provenance=provenance(trace, sys.argv[1:]),
    )
    say(f"page: {page}")
    if arguments.json:
        print_json({name: analysis.tables[name] for name in _JSON})
    else:
        print_table(analysis.tables["findings"][["claim", "verdict", "sentence"]], trace.name)


_JSON = ("findings", "measures", "not_enough_data")


def _tokenizer(name):
    if name is None:
        return None
    from h2o_theory.recorder.models import load_tokenizer

    return load_tokenizer(name)


def _model(name):
    if name is None:
        return None
    from h2o_theory.recorder import load_model

    return load_model(name)

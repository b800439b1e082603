"""Entry point: parse, run one verb, turn named errors into one line and an exit code."""

import argparse
import contextlib
import importlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import h2o_theory
from h2o_theory.errors import BadArgument, H2OTheoryError

__all__ = ["VERBS", "build_parser", "main"]

VERBS = {
    "demo": "record a real model, replay all policies, write a report",
    "record": "record the attention of a model on a text",
    "import": "turn attention matrices into a trace",
    "validate": "check a trace: checksums, shapes, finite values, row sums",
    "info": "say what a trace holds",
    "replay": "replay policies on a trace",
    "sweep": "replay a grid of traces, policies and budgets",
    "optimum": "the exact optimum with certificates, and the best split of a budget over heads",
    "guarantee": "what the paper's guarantee says of a policy, step by step",
    "masks": "sparse attention patterns, whose keys may return",
    "transforms": "fewer bits against fewer entries: output error at equal bytes",
    "analyze": "heavy hitters: emergence, power law, co-occurrence, sparsity",
    "live": "evict inside the running model (closed loop)",
    "experiment": "run one of the paper's experiments in the model, with intervals",
    "costs": "from a budget to tokens per second and memory, by a model fitted on published logs",
    "check": "execute the statements of the H2O paper and print a verdict on each",
    "report": "write figures, tables and one HTML page",
    "ls": "list policies, masks, transforms or model families",
}
"""The verbs in the order of the help text, each with its line there.

The module of a verb, ``h2o_theory.cli.<verb>``, has ``add_options(parser)``, which ends with
``parser.set_defaults(run=...)``, and with ``output="file"`` or ``"new folder"`` if ``--out`` is
no folder to write into. It is imported only when the verb is chosen, as most verbs need
libraries that take a second to import.
"""


class _VerbParser(argparse.ArgumentParser):
    """The parser of a verb, which gets its options when it is first used."""

    def __init__(self, *args: Any, verb: str, **options: Any) -> None:
        super().__init__(*args, **options)
        self._verb: str | None = verb

    def parse_known_args(self, args=None, namespace=None):
        self.fill()
        return super().parse_known_args(args, namespace)

    def fill(self) -> None:
        """Import the module of the verb and add its options."""
        if self._verb is not None:
            verb, self._verb = self._verb, None
            name = "import_" if verb == "import" else verb
            importlib.import_module(f"h2o_theory.cli.{name}").add_options(self)


def build_parser() -> argparse.ArgumentParser:
    """The argument parser with all verbs, none of them imported."""
    parser = argparse.ArgumentParser(
        prog="h2o-theory",
        description="Record real attention, replay KV-cache eviction policies on it, and compare "
        "each with the exact offline optimum.",
        epilog="Exit codes: 0 done, 1 some cells failed, 2 bad usage or input, 3 a verdict differs "
        "from the register, 130 interrupted.",
    )
    parser.add_argument("--version", action="version", version=h2o_theory.__version__)
    verbs = parser.add_subparsers(
        dest="verb", metavar="VERB", required=True, parser_class=_VerbParser
    )
    for verb, summary in VERBS.items():
        verbs.add_parser(verb, help=summary, verb=verb)
    return parser


def _require_sense(arguments: argparse.Namespace) -> None:
    """Raise BadArgument for what no verb can use, before it loads a model or reads a trace."""
    if getattr(arguments, "out", None) == "":
        raise BadArgument("--out must name a file or folder", got="''")
    for name in ("tokens", "windows", "piece"):
        value = getattr(arguments, name, None)
        if isinstance(value, int) and value < 1:
            raise BadArgument(f"--{name} must be at least 1", got=value)
    if getattr(arguments, "resume", False) and getattr(arguments, "overwrite", False):
        raise BadArgument("--resume and --overwrite exclude each other")


@contextlib.contextmanager
def _holding_output(arguments: argparse.Namespace) -> Iterator[None]:
    """Hold what a verb writes to; a place that cannot be written is found before the work."""
    out = getattr(arguments, "out", None)
    if out is None:
        yield
        return
    from h2o_theory.store import lock_output, require_writable

    require_writable(out, getattr(arguments, "output", "folder"))
    with lock_output(out, shared=arguments.verb == "sweep"):  # a sweep's shards write together
        yield


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    try:
        arguments = build_parser().parse_args(argv)
        _require_sense(arguments)
        with _holding_output(arguments):
            return arguments.run(arguments) or 0
    except H2OTheoryError as error:
        print(f"h2o-theory: {type(error).__name__}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("h2o-theory: interrupted; nothing half-written was left behind", file=sys.stderr)
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 0


if __name__ == "__main__":
    sys.exit(main())

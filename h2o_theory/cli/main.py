"""Entry point: parse, run one verb, turn named errors into one line and an exit code."""

import argparse
import sys

import h2o_theory
from h2o_theory.cli import (
    analyze,
    bench,
    check,
    costs,
    demo,
    experiment,
    guarantee,
    import_,
    info,
    live,
    ls,
    masks,
    optimum,
    record,
    replay,
    report,
    sweep,
    transforms,
    validate,
)
from h2o_theory.errors import H2OTheoryError

__all__ = ["main"]

_VERBS = (
    demo,
    record,
    import_,
    validate,
    info,
    replay,
    sweep,
    optimum,
    guarantee,
    masks,
    transforms,
    analyze,
    live,
    experiment,
    check,
    report,
    ls,
    bench,
    costs,
)


def build_parser():
    """The argument parser with all verbs."""
    parser = argparse.ArgumentParser(
        prog="h2o-theory",
        description="Record real attention, replay KV-cache eviction policies on it, and compare "
        "each with the exact offline optimum.",
        epilog="Exit codes: 0 done, 1 some cells failed, 2 bad usage or input, 3 a verdict differs "
        "from the register, 130 interrupted.",
    )
    parser.add_argument("--version", action="version", version=h2o_theory.__version__)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for verb in _VERBS:
        verb.add_parser(verbs)
    return parser


def main(argv=None):
    """Run the command line; returns the exit code."""
    arguments = build_parser().parse_args(argv)
    try:
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

"""``h2o-theory check``: every statement of the paper, executed, against the register."""

import argparse
import json

import pandas as pd

from h2o_theory.cli.common import print_json, print_table, say, shown_progress
from h2o_theory.errors import BadArgument, MissingDependency
from h2o_theory.report import refuse_existing
from h2o_theory.store import require_writable
from paper_checks import load_register, run_check, select
from paper_checks.outcome import Outcome, summary

__all__ = ["add_options"]

FAILED, DRIFTED = 1, 3


def add_options(parser: argparse.ArgumentParser) -> None:
    """Describe the verb and add its options."""
    parser.description = (
        "Run the check of every statement of the H2O paper (arXiv 2306.14048) and "
        "compare the verdict observed with the one in the register."
    )
    parser.epilog = (
        "Exit codes: 3 if a verdict differs from the register, 1 if a check could not run. "
        "example: h2o-theory check thm-4.4 lemma-D.44.5 --long"
    )
    parser.add_argument("ids", nargs="*", metavar="ID", help="statements (default: all)")
    parser.add_argument("--fast", action="store_true", help="leave out the checks marked slow")
    parser.add_argument("--long", action="store_true", help="show statements and evidence")
    parser.add_argument("--json", action="store_true", help="everything, for a machine")
    parser.add_argument("--html", metavar="FILE", help="write the table as a page")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing page")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the chosen checks, print, and say by the exit code whether the register still holds."""
    if arguments.html:
        refuse_existing(arguments.html, arguments.overwrite)
        require_writable(arguments.html, "file")
    chosen = select(load_register(), arguments.ids)
    if arguments.fast:
        chosen = tuple(statement for statement in chosen if not statement.slow)
        if not chosen:
            raise BadArgument("--fast leaves no check: all of these are slow", hint="Leave it out.")
    outcomes = []
    with shown_progress() as progress:
        for done, statement in enumerate(chosen, start=1):
            outcomes.append(_outcome(statement))
            progress(done, len(chosen), "checks")
    if arguments.json:
        print_json([outcome.as_dict() for outcome in outcomes])
    else:
        _print(outcomes, arguments.long)
    if arguments.html:
        from paper_checks.page import write_page

        say(f"page: {write_page(outcomes, arguments.html)}")
    if any(outcome.drifted for outcome in outcomes):
        return DRIFTED
    return FAILED if any(outcome.finding is None for outcome in outcomes) else 0


def _outcome(statement):
    try:
        return Outcome(statement, run_check(statement))
    except MissingDependency as error:
        return Outcome(statement, None, str(error))


def _print(outcomes, long):
    if long:
        for outcome in outcomes:
            for name, value in outcome.lines():
                print(f"{name:16} {_text(value)}")
            print()
    table = pd.DataFrame(
        {
            "id": outcome.statement.id,
            "place": outcome.statement.place,
            "kind": outcome.statement.kind,
            "verdict": outcome.verdict,
            "register": "as recorded" if outcome.agrees else outcome.difference,
        }
        for outcome in outcomes
    )
    print_table(table)
    print(summary(outcomes))


def _text(value):
    return value if isinstance(value, str) else json.dumps(value)

"""What the verbs share: progress on stderr, tables on stdout, lists of numbers, files to write."""

import argparse
import contextlib
import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bars
from rich.table import Table

from h2o_theory.annotations import Progress
from h2o_theory.errors import BadArgument

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "DEFAULT_POLICIES",
    "add_head_options",
    "add_replay_options",
    "add_table_options",
    "head_choice",
    "integers",
    "print_json",
    "print_table",
    "say",
    "say_parts",
    "shown_progress",
]

DEFAULT_POLICIES = (
    "full,recent,sink,random,h2o,heavy,tova,lru,lfu,greedy,belady,belady_mass,optimum"
)
"""What is replayed when no policy is named."""

_WIDTH_WITHOUT_TERMINAL = 160
_FINISHED_BARS = 8


@contextlib.contextmanager
def shown_progress() -> Iterator[Progress]:
    """A callable ``progress(done, total, label)`` drawn on stderr.

    One bar per label on a terminal; elsewhere a line per finished label, so that logs stay short.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _line_when_finished
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    times = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    with Bars(*columns, *times, console=console) as bars:
        known, finished = {}, []

        def progress(done, total, label):
            if label not in known:
                known[label] = bars.add_task(label, total=total)
            bars.update(known[label], completed=done, total=total)
            if done == total:
                finished.append(label)
            if len(finished) > _FINISHED_BARS:
                bars.remove_task(known.pop(finished.pop(0)))

        yield progress


def _line_when_finished(done, total, label):
    if done == total:
        print(f"{label}: {done} of {total}", file=sys.stderr, flush=True)


def say(text: str) -> None:
    """A remark for the person at the terminal, on stderr."""
    print(text, file=sys.stderr, flush=True)


def say_parts(parts: Iterable[Mapping[str, object]]) -> None:
    """What every budget came to, on stderr: one line for each policy and resolved budget."""
    for part in parts:
        say(
            f"{part['policy']} at {part['budget']} = {part['budget_tokens']} tokens "
            f"(kv_heads: {part['heads']}): {part['parameters']}"
        )


def print_table(frame: "pd.DataFrame", title: str = "") -> None:
    """A DataFrame on stdout as an aligned table; floats with four digits."""
    width = None if sys.stdout.isatty() else _WIDTH_WITHOUT_TERMINAL
    table = Table(title=title or None, title_justify="left")
    for name in frame.columns:
        numeric = frame[name].dtype.kind in "if"
        table.add_column(str(name), justify="right" if numeric else "left", no_wrap=numeric)
    for row in frame.itertuples(index=False):
        table.add_row(*(_cell(value) for value in row))
    Console(width=width).print(table)


def _cell(value):
    if isinstance(value, float):
        return "-" if value != value else f"{value:.4f}"
    return str(value)


def print_json(value: object) -> None:
    """Machine-readable output on stdout: a table as a list of rows; NaN and infinity as null."""
    print(json.dumps(_as_json(value), indent=1, default=str, allow_nan=False))


def _as_json(value):
    if hasattr(value, "to_dict"):
        value = value.to_dict("records")
    if isinstance(value, dict):
        return {key: _as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def integers(text: str | None, name: str) -> list[int] | None:
    """``"0,3,5-7"`` as ``[0, 3, 5, 6, 7]``; None stays None.

    Raises
    ------
    BadArgument
        For anything that is not a list of whole numbers and ranges.
    """
    if text is None:
        return None
    numbers: list[int] = []
    try:
        for part in text.split(","):
            first, _, last = part.strip().partition("-")
            numbers += range(int(first), int(last or first) + 1)
    except ValueError:
        numbers = []
    if not numbers:
        raise BadArgument(
            "a list of numbers cannot be read",
            where=name,
            got=repr(text),
            expected="numbers and ranges such as 0,3,5-7",
        ) from None
    return list(dict.fromkeys(numbers))


def add_replay_options(parser: argparse.ArgumentParser) -> None:
    """Options of everything that replays."""
    parser.add_argument(
        "--policy",
        metavar="P,P,...",
        default=DEFAULT_POLICIES,
        help="policies, with parameters as in h2o:recent=0.25,rows=raw, or your own as "
        "module:Class or file.py:Class (default: all)",
    )
    parser.add_argument(
        "--budget",
        metavar="K,K,...",
        default="5%,10%,20%",
        help="tokens a query sees, its own included, shares of the sequence, or an average to be "
        "divided over layers or heads, pyramid:10%% or ada:10%% (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of random policies (default: 0)")
    add_head_options(parser)


def add_head_options(parser: argparse.ArgumentParser) -> None:
    """Options of everything that goes over the heads of a trace; :func:`head_choice` reads them."""
    parser.add_argument(
        "--prefill",
        type=int,
        default=0,
        metavar="P",
        help="number of prompt rows, which are not scored (default: 0)",
    )
    parser.add_argument("--layers", metavar="L,L,...", help="layers to use (default: all recorded)")
    parser.add_argument("--kv-heads", metavar="H,H,...", help="kv_heads to use (default: all)")
    parser.add_argument(
        "--workers", type=int, metavar="N", help="number of threads (default: all cores)"
    )


def head_choice(arguments: argparse.Namespace) -> dict[str, Any]:
    """What :func:`add_head_options` was given, as keyword arguments of a replay."""
    return {
        "prefill": arguments.prefill,
        "layers": integers(arguments.layers, "--layers"),
        "kv_heads": integers(arguments.kv_heads, "--kv-heads"),
        "workers": arguments.workers,
    }


def add_table_options(parser: argparse.ArgumentParser) -> None:
    """Where a table goes."""
    parser.add_argument("--out", metavar="FILE", help="results as .parquet or .csv")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing file")
    parser.add_argument("--json", action="store_true", help="every row as JSON on stdout")

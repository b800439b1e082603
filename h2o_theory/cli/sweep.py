"""``h2o-theory sweep``: a grid of replays, resumable, on many processes or machines."""

import argparse
import sys
import time

from h2o_theory.cli.common import say, say_parts, shown_progress
from h2o_theory.engine import resolved_parts
from h2o_theory.errors import BadArgument
from h2o_theory.sweep import estimate_sweep, read_spec, run_sweep
from h2o_theory.trace import open_trace

__all__ = ["add_options"]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Describe the verb and add its options."""
    parser.description = (
        "Replay every combination that SPEC lists. Finished cells are kept in DIR and "
        "skipped by the next run, so that a sweep can be interrupted, extended and shared out. "
        "The table DIR/results.parquet has the same bytes however the work was divided."
    )
    parser.epilog = (
        'SPEC is TOML: traces = ["notes.trace"], policies = ["h2o", "lru", '
        '"mine.py:Newest"], budgets = ["5%", 64, "by_head.json"]; optional: prefill, seeds, '
        "layers, kv_heads, optimum = false. Exit codes: 0 done, 1 some cells failed, 2 bad input."
    )
    parser.add_argument("spec", metavar="SPEC", help="a .toml file")
    parser.add_argument("--out", required=True, metavar="DIR", help="folder of the sweep")
    parser.add_argument(
        "--workers", type=int, metavar="N", help="processes (default: all cores); 1 is this process"
    )
    parser.add_argument("--shard", metavar="I/N", help="run the I-th of N parts only")
    parser.add_argument("--dask", metavar="ADDRESS", help="scheduler whose workers run the cells")
    parser.add_argument("--dry-run", action="store_true", help="count cells, estimate the time")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run or estimate; returns the exit code."""
    spec = read_spec(arguments.spec)
    for path in spec.traces:
        trace = open_trace(path)
        say(f"{trace.name}: {trace.tokens} tokens")
        for prefill in spec.prefill:
            choice = {"prefill": prefill, "layers": spec.layers, "kv_heads": spec.kv_heads}
            say_parts(
                resolved_parts(trace, spec.policies, spec.budgets, optimum=spec.optimum, **choice)
            )
    if arguments.dry_run:
        return _estimate(spec, arguments)
    began = time.monotonic()
    with shown_progress() as progress:
        result = run_sweep(
            spec,
            arguments.out,
            workers=arguments.workers,
            shard=_shard(arguments.shard),
            dask=arguments.dask,
            progress=_with_time_left(progress),
        )
    for path in result.damaged:
        say(f"damaged cell, computed anew: {path}")
    for reason in result.reasons:
        say(f"failed: {reason}")
    say(
        f"{result.cells} cells: {result.ran} run now in {time.monotonic() - began:.0f} s, "
        f"{result.skipped} finished before, {result.failed} failed, {result.missing} missing"
    )
    if result.table is None:
        say("run the other shards to complete the table")
    else:
        print(result.table)
    return 1 if result.failed else 0


def _estimate(spec, arguments):
    with shown_progress() as progress:
        found = estimate_sweep(spec, arguments.out, progress)
    for path in found.damaged:
        say(f"damaged cell, to be computed anew: {path}")
    print(f"cells: {found.cells}, of which {found.finished} are finished")
    print(f"units of work: {found.units}")
    print(f"time: about {_duration(found.cpu_seconds)} of one core ({found.calibration})")
    return 0


def _shard(text):
    """``"2/5"`` as (2, 5)."""
    if text is None:
        return None
    first, slash, last = text.partition("/")
    if not (slash and first.isdecimal() and last.isdecimal()):
        raise BadArgument("a shard cannot be read", where="--shard", got=text, expected="I/N")
    return int(first), int(last)


def _with_time_left(progress):
    """The same progress; without a terminal's bar, a remark on the time left at every tenth."""
    if sys.stderr.isatty():
        return progress
    began, told = time.monotonic(), [0]

    def shown(done, total, label):
        progress(done, total, label)
        tenth = 10 * done // total
        if label == "cells" and told[0] < tenth < 10:
            told[0] = tenth
            left = (time.monotonic() - began) * (total - done) / done
            say(f"{done} of {total} cells, about {_duration(left)} left")

    return shown


def _duration(seconds):
    if seconds != seconds:
        return "an unknown time"
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"

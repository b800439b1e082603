"""The sweep itself: what is finished is skipped, the rest is run, the table is collected."""

import contextlib
import dataclasses
from dataclasses import dataclass
from pathlib import Path

from h2o_theory.engine.arguments import thread_count
from h2o_theory.engine.compiling import compile_policies
from h2o_theory.errors import BadArgument
from h2o_theory.policies import parse_policies
from h2o_theory.store import CellStore, lock_output
from h2o_theory.sweep.collect import write_table
from h2o_theory.sweep.execute import execute
from h2o_theory.sweep.plan import group_cells, plan_cells
from h2o_theory.sweep.spec import SweepSpec, read_spec

__all__ = ["SweepResult", "as_spec", "run_sweep", "unfinished"]


@dataclass(frozen=True)
class SweepResult:
    """What became of a sweep.

    Attributes
    ----------
    table : pathlib.Path or None
        ``results.parquet``; None while cells of other shards are missing.
    cells, ran, skipped, failed, missing : int
        All cells of the grid; those computed now; those finished before; those that failed, now
        or in another shard; those that are neither finished nor failed.
    damaged : tuple of str
        Cell files that were damaged and were computed anew.
    reasons : tuple of str
        The different reasons of failure.
    """

    table: Path | None
    cells: int
    ran: int
    skipped: int
    failed: int
    missing: int
    damaged: tuple
    reasons: tuple


def run_sweep(spec, out, *, workers=None, shard=None, dask=None, progress=None):
    """Run every cell of a grid that is not finished yet, and collect the table.

    Results are content-addressed: a cell's file in ``out`` is named by a hash of the trace's
    content, the policy with its parameters (and the file of a user's class), budget, prefill,
    seed and the engine's sources, so that the same folder serves any number of runs and specs.
    A run that is killed at any moment loses the units it was running, and nothing else.

    Parameters
    ----------
    spec : path, dict or SweepSpec
        A TOML file (:func:`read_spec`), or its keys; in Python, traces and policies may be
        objects.
    out : path
        Folder of the sweep: ``results.parquet``, ``cells/``, ``failed/``.
    workers : int, optional
        Processes; the number of cores by default. The table does not depend on it.
    shard : (int, int), optional
        ``(i, n)``: run the i-th of n parts of the grid only, 1 <= i <= n. Whichever run finds all
        cells finished writes the table.
    dask : str, optional
        Address of a Dask scheduler whose workers run the units, in place of ``workers``. They
        must see the traces at the same paths. Needs the extra ``cluster``.
    progress : callable (done, total, label), optional
        Called from this process after each unit, counting cells.

    Returns
    -------
    SweepResult

    Raises
    ------
    BadArgument and others of :func:`h2o_theory.replay`
        For a spec that cannot run, before any work is done.
    CannotWrite
        If the disk is full; finished cells are kept.
    MissingDependency
        With ``dask`` but without Dask.

    Notes
    -----
    A cell that raises or kills its worker becomes a row with ``status = "failed"`` and the reason;
    the others go on, and the next run tries it again.
    """
    spec, processes = as_spec(spec), thread_count(workers)
    with lock_output(out, shared=True):  # shards of one sweep run at the same time
        return _run(spec, CellStore(out), processes, shard, dask, progress)


def _run(spec, store, processes, shard, dask, progress):
    traces, cells = plan_cells(spec)
    mine = _part(group_cells(spec, cells), shard)
    units = unfinished(store, mine)
    damaged = tuple(map(str, store.damaged))
    compile_policies(parse_policies(spec.policies), progress)
    ran, total = 0, sum(len(unit.cells) for unit in units)
    with contextlib.closing(execute(units, processes, dask)) as finished:
        for results in finished:
            for key, record, reason in results:
                if reason is None:
                    store.save(key, record)
                else:
                    store.save_failure(key, reason)
            ran += len(results)
            if progress:
                progress(ran, total, "cells")
    skipped = sum(len(unit.cells) for unit in mine) - total
    return _collected(spec, store, traces, cells, ran, skipped, damaged)


def as_spec(spec):
    """A :class:`SweepSpec` from itself, a dict of its keys or a TOML file."""
    if isinstance(spec, SweepSpec):
        return spec
    if isinstance(spec, dict):
        try:
            return SweepSpec(**spec)
        except TypeError as error:
            raise BadArgument("the spec has a wrong key", where="spec", got=error) from None
    return read_spec(spec)


def unfinished(store, units):
    """The units with the cells that have no sound result."""
    left = []
    for unit in units:
        cells = tuple(cell for cell in unit.cells if store.load(cell.key) is None)
        if cells:
            left.append(dataclasses.replace(unit, cells=cells))
    return left


def _part(units, shard):
    """The units of shard (i, n): every n-th one."""
    if shard is None:
        return units
    index, count = shard
    if not 1 <= index <= count:
        raise BadArgument(
            "no such shard", where="shard", got=f"{index}/{count}", expected="i/n with 1 <= i <= n"
        )
    return units[index - 1 :: count]


def _collected(spec, store, traces, cells, ran, skipped, damaged):
    """The outcome, and the table if no cell is missing."""
    records, failures, missing = {}, {}, 0
    for cell in cells:
        found = store.load(cell.key)
        records[cell.key] = None if found is None else found[0]
        if found is None:
            failures[cell.key] = store.load_failure(cell.key)
            missing += failures[cell.key] is None
    table = None if missing else write_table(store.folder, spec, traces, cells, records, failures)
    reasons = [reason for reason in failures.values() if reason is not None]
    return SweepResult(
        table=table,
        cells=len(cells),
        ran=ran,
        skipped=skipped,
        failed=len(reasons),
        missing=missing,
        damaged=damaged,
        reasons=tuple(dict.fromkeys(reasons)),
    )

"""Sweeps: the same table however the work is divided, nothing lost, nothing half-read."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
import sweep_policies
from small_traces import small_trace

import h2o_theory as ht
from h2o_theory.cli import main
from h2o_theory.errors import BadArgument, BadBudget, CannotWrite, TraceNotFound
from h2o_theory.store import CellStore
from h2o_theory.sweep import estimate_sweep, read_spec, run_sweep
from h2o_theory.sweep.plan import group_cells, plan_cells
from h2o_theory.sweep.run import as_spec

ROOT = Path(__file__).parents[2]
COMMITTED = ROOT / "traces" / "smollm2-135m-512"
MINE = sweep_policies.__file__

SPEC = """
traces = ["{trace}"]
policies = ["full", "h2o", "tova", "random", "belady", "{mine}:Newest:sign=-1"]
budgets = ["10%", 7]
prefill = [0, 9]
seeds = [0, 1]
"""


@pytest.fixture(scope="module")
def trace_path(tmp_path_factory):
    return small_trace().save(tmp_path_factory.mktemp("traces") / "small.trace")


@pytest.fixture
def spec_path(trace_path, tmp_path):
    path = tmp_path / "spec.toml"
    path.write_text(SPEC.format(trace=trace_path, mine=MINE))
    return path


def table_bytes(out):
    return (out / "results.parquet").read_bytes()


@pytest.fixture(scope="module")
def one_worker(trace_path, tmp_path_factory):
    """The sweep of SPEC by one worker, to compare all other ways with."""
    folder = tmp_path_factory.mktemp("one")
    (folder / "spec.toml").write_text(SPEC.format(trace=trace_path, mine=MINE))
    result = run_sweep(folder / "spec.toml", folder / "out", workers=1)
    assert result.failed == result.missing == 0 and result.ran == result.cells == 4 * 2 * 2 * 11
    return folder / "out"


def test_a_sweep_gives_what_replay_gives(one_worker, trace_path):
    table = pd.read_parquet(one_worker / "results.parquet")
    assert (table.status == "done").all() and (table.reason == "").all()
    trace = ht.open_trace(trace_path)
    policies = ["full", "h2o", "tova", "random", "belady", f"{MINE}:Newest:sign=-1"]
    for prefill in (0, 9):
        for seed in (0, 1):
            direct = ht.replay(trace, policies, ["10%", 7], prefill=prefill, seed=seed)
            swept = table[(table.prefill == prefill) & (table.seed == seed)]
            both = [
                part.drop(columns=["seconds", "status", "reason"], errors="ignore")
                .sort_values(["layer", "kv_head", "policy", "budget"])
                .reset_index(drop=True)
                for part in (direct, swept)
            ]
            pd.testing.assert_frame_equal(*both, check_exact=True)


def test_any_number_of_workers_gives_the_same_bytes(one_worker, spec_path, tmp_path):
    assert run_sweep(spec_path, tmp_path / "two", workers=2).failed == 0
    assert table_bytes(tmp_path / "two") == table_bytes(one_worker)


def test_shards_in_any_order_give_the_same_bytes(one_worker, spec_path, tmp_path):
    out = tmp_path / "shards"
    results = [run_sweep(spec_path, out, shard=(i, 3), workers=1) for i in (3, 1, 2)]
    assert [result.table is None for result in results] == [True, True, False]
    assert sum(result.ran for result in results) == results[0].cells
    assert table_bytes(out) == table_bytes(one_worker)
    with pytest.raises(BadArgument, match="shard"):
        run_sweep(spec_path, out, shard=(4, 3))


def test_finished_cells_are_skipped_and_damaged_ones_computed_anew(one_worker, spec_path, capsys):
    before = table_bytes(one_worker)
    assert run_sweep(spec_path, one_worker, workers=1).ran == 0
    files = sorted((one_worker / "cells").rglob("*.safetensors"))
    damage = {
        files[0]: files[0].read_bytes()[:-9],
        files[1]: files[1].read_bytes().replace(b'\\"n_rows\\": ', b'\\"n_rows\\":1'),
        files[2]: files[3].read_bytes(),
        files[4]: b"",
    }
    for path, content in damage.items():
        assert path.read_bytes() != content
        path.write_bytes(content)
        store = CellStore(one_worker)
        assert store.load(path.stem) is None and store.damaged == [path]
    found = estimate_sweep(spec_path, one_worker)
    assert set(found.damaged) == set(map(str, damage)) and found.cells - found.finished == 4
    assert main(["sweep", str(spec_path), "--out", str(one_worker), "--workers", "1"]) == 0
    captured = capsys.readouterr()
    assert captured.err.count("damaged cell") == 4 and "4 run now" in captured.err
    assert captured.out.strip() == str(one_worker / "results.parquet")
    assert table_bytes(one_worker) == before


def test_a_longer_grid_reuses_the_cells_of_a_shorter_one(trace_path, tmp_path):
    grid = {"traces": [trace_path], "policies": ["h2o"], "budgets": [5], "optimum": False}
    assert run_sweep(grid, tmp_path, workers=1).ran == 4
    longer = run_sweep(grid | {"budgets": [5, 8]}, tmp_path, workers=1)
    assert (longer.ran, longer.skipped) == (4, 4)
    other = run_sweep(grid | {"optimum": True}, tmp_path, workers=1)
    assert other.skipped == 0, "a cell with the optimum is another cell"
    assert pd.read_parquet(other.table).approximation_ratio.notna().all()


def test_the_address_holds_all_that_a_result_depends_on(trace_path, tmp_path):
    base = {"traces": [trace_path], "policies": ["h2o"], "budgets": [5], "kv_heads": [0]}

    def keys(**changes):
        return [cell.key for cell in plan_cells(as_spec(base | changes))[1]]

    seen = [
        keys(),
        keys(policies=["h2o:decay=0.5"]),
        keys(budgets=[6]),
        keys(prefill=[3]),
        keys(seeds=[1]),
        keys(kv_heads=[1]),
        keys(optimum=False),
        keys(traces=[small_trace(seed=4)]),
        keys(policies=[sweep_policies.Newest()]),
        keys(policies=[sweep_policies.Newest(-1)]),
    ]
    mine = Path(sweep_policies.__file__).read_text()
    for number, text in enumerate((mine, mine.replace("self.sign * pos", "pos * self.sign"))):
        (tmp_path / f"{number}.py").write_text(text)
        seen.append(keys(policies=[f"{tmp_path / str(number)}.py:Newest"]))
    assert seen[-2] == keys(policies=[f"{MINE}:Newest"]) and seen[-2] == seen[8]
    del seen[-2]
    assert len({key for some in seen for key in some}) == sum(map(len, seen))
    assert keys() == keys()


def test_cells_of_a_head_are_one_unit_and_shared_sets_join_a_layer(trace_path):
    grid = {"traces": [trace_path], "policies": ["h2o", "lru"], "budgets": [5, 6]}
    spec = as_spec(grid)
    assert [len(unit.cells) for unit in group_cells(spec, plan_cells(spec)[1])] == [4] * 4
    spec = as_spec(grid | {"policies": ["h2o", "tova"]})
    assert [len(unit.cells) for unit in group_cells(spec, plan_cells(spec)[1])] == [8] * 2


def test_a_cell_that_raises_or_kills_its_worker_fails_alone(trace_path, tmp_path):
    own = [f"{MINE}:Raises", f"{MINE}:KillsItsWorker", sweep_policies.Newest()]
    grid = {"traces": [trace_path], "policies": ["lru", *own], "budgets": [5]}
    grid |= {"layers": [0], "kv_heads": [0]}
    result = run_sweep(grid, tmp_path, workers=2)
    table = pd.read_parquet(result.table)
    assert result.failed == 2 and len(table) == 4
    failed = table[table.status == "failed"].groupby("policy").reason.first()
    assert failed["raises"] == "ZeroDivisionError: not today"
    assert failed["kills"].startswith("WorkerDied")
    done = table[table.status == "done"]
    assert set(done.policy) == {"lru", "newest"} and done.retained_mass.notna().all()
    again = run_sweep(grid | {"policies": ["lru", own[0]]}, tmp_path, workers=1)
    assert (again.ran, again.skipped, again.failed) == (1, 1, 1), "failed cells are tried again"


def test_failed_cells_make_the_command_exit_with_1(trace_path, tmp_path, capsys):
    spec = tmp_path / "spec.toml"
    spec.write_text(
        f'traces = ["{trace_path}"]\npolicies = ["lru", "{MINE}:Raises"]\nbudgets = [5]\n'
    )
    assert main(["sweep", str(spec), "--out", str(tmp_path / "out"), "--workers", "1"]) == 1
    captured = capsys.readouterr()
    assert "failed: ZeroDivisionError: not today" in captured.err
    assert "Traceback" not in captured.err and captured.out.strip().endswith("results.parquet")
    report = ["report", captured.out.strip(), "--out", str(tmp_path / "report")]
    assert main(report) == 0
    assert "4 failed cells" in capsys.readouterr().err


def test_a_killed_sweep_loses_the_running_cells_only(trace_path, tmp_path):
    spec = tmp_path / "spec.toml"
    slow = f'traces = ["{trace_path}"]\npolicies = ["{MINE}:Slow"]\nbudgets = [5, 6]\n'
    spec.write_text(slow + "optimum = false\n")
    out = tmp_path / "out"
    line = [sys.executable, "-m", "h2o_theory", "sweep", str(spec), "--out", str(out)]
    with subprocess.Popen([*line, "--workers", "1"], cwd=ROOT, stderr=subprocess.DEVNULL) as sweep:
        deadline = time.monotonic() + 60
        while not list((out / "cells").rglob("*.safetensors")) and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(sweep.pid, signal.SIGKILL)
    kept = len(list((out / "cells").rglob("*.safetensors")))
    assert 0 < kept < 8 and not (out / "results.parquet").exists()
    result = run_sweep(spec, out, workers=1)
    assert (result.skipped, result.ran, result.damaged) == (kept, 8 - kept, ())
    whole = run_sweep(spec, tmp_path / "whole", workers=1)
    assert table_bytes(out) == table_bytes(tmp_path / "whole") and whole.skipped == 0


def test_a_full_disk_is_named_and_keeps_what_is_finished(trace_path, tmp_path, monkeypatch):
    grid = {"traces": [trace_path], "policies": ["h2o"], "budgets": [5], "optimum": False}
    written = []

    def replace(source, target):
        written.append(target)
        if len(written) > 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.rename(source, target)

    with monkeypatch.context() as patched:
        patched.setattr("h2o_theory.store.atomic.os.replace", replace)
        with pytest.raises(CannotWrite, match="No space left on device"):
            run_sweep(grid, tmp_path, workers=1)
    kept = [path for path in (tmp_path / "cells").rglob("*") if path.is_file()]
    assert sorted(kept) == sorted(written[:2])
    assert run_sweep(grid, tmp_path, workers=1).skipped == 2


def test_a_dask_cluster_gives_the_same_bytes(one_worker, spec_path, trace_path, tmp_path):
    distributed = pytest.importorskip("distributed", reason="the extra cluster is not installed")
    import dask

    own = [sweep_policies.Newest(), sweep_policies.KillsItsWorker()]
    grid = {"traces": [trace_path], "policies": own, "budgets": [5], "layers": [0], "kv_heads": [0]}
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None
        ) as cluster,
    ):
        address = cluster.scheduler_address
        assert run_sweep(spec_path, tmp_path / "dask", dask=address).failed == 0
        assert table_bytes(tmp_path / "dask") == table_bytes(one_worker)
        result = run_sweep(grid, tmp_path / "dead", dask=address)
        assert (result.ran, result.failed) == (2, 1) and result.reasons[0].startswith("WorkerDied")


def test_a_cluster_that_does_not_answer_is_named(spec_path, tmp_path):
    pytest.importorskip("distributed", reason="the extra cluster is not installed")
    with pytest.raises(BadArgument, match="scheduler"):
        run_sweep(spec_path, tmp_path / "none", dask="tcp://127.0.0.1:9")


def test_dry_run_counts_and_estimates_without_writing(spec_path, tmp_path, capsys):
    out = tmp_path / "none"
    assert main(["sweep", str(spec_path), "--out", str(out), "--dry-run"]) == 0
    captured = capsys.readouterr()
    assert "cells: 176, of which 0 are finished" in captured.out
    assert "units of work: 2" in captured.out and "extrapolated from one head" in captured.out
    assert "h2o at 10% = 4 tokens (kv_heads: 4): n_sink=0 n_heavy=2 n_recent=2" in captured.err
    assert not out.exists()
    assert estimate_sweep(spec_path, out).cpu_seconds > 0


def test_policies_written_in_a_notebook_run_in_workers(trace_path, tmp_path):
    """A class of ``__main__`` reaches the workers with its code."""
    script = tmp_path / "notebook.py"
    script.write_text(
        "import sys, h2o_theory as ht\n"
        "class Oldest(ht.PlainPolicy):\n"
        "    name = 'oldest'\n"
        "    def rate(self, t, positions):\n"
        "        return -positions\n"
        "if __name__ == '__main__':\n"
        "    grid = dict(traces=[sys.argv[1]], policies=[Oldest()], budgets=[5])\n"
        "    print(ht.run_sweep(grid, sys.argv[2], workers=2))\n"
    )
    line = [sys.executable, str(script), str(trace_path), str(tmp_path / "out")]
    done = subprocess.run(line, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0 and "failed=0" in done.stdout, done.stderr
    assert set(pd.read_parquet(tmp_path / "out" / "results.parquet").policy) == {"oldest"}


def test_report_of_a_sweep_over_one_experiment(tmp_path, capsys):
    """On real rows: two layers of the committed trace."""
    spec = tmp_path / "spec.toml"
    spec.write_text(
        f'traces = ["{COMMITTED}"]\npolicies = ["h2o", "sink"]\nbudgets = ["10%"]\n'
        "layers = [0, 10]\nkv_heads = [1]\nprefill = [0, 64]\n"
    )
    assert main(["sweep", str(spec), "--out", str(tmp_path / "out"), "--workers", "1"]) == 0
    table = capsys.readouterr().out.strip()
    report = ["report", table, "--out", str(tmp_path / "report")]
    assert main(report) == 2
    assert "several values of prefill" in capsys.readouterr().err
    assert main([*report, "--only", "prefill=64"]) == 0
    assert "T = 512" in Path(capsys.readouterr().out.strip()).read_text()
    assert main(["report", table, "--out", str(tmp_path / "r2"), "--only", "prefill=5"]) == 2


BAD_SPECS = {
    "unknown key": ('polices = ["h2o"]', "polices"),
    "policy": ('policies = ["h20"]', "h2o"),
    "budget": ("budgets = [999]", "1 to 40"),
    "empty": ("budgets = []", "budgets"),
    "layer": ("layers = [7]", "layer 7"),
    "negative": ("seeds = [-1]", "seeds"),
    "twice": ('policies = ["lru", "lru"]', "twice"),
    "optimum": ('policies = ["optimum"]\noptimum = false', "optimum"),
    "class": ('policies = ["sweep_policies:Nothing"]', "Nothing"),
    "module": ('policies = ["no_such_module:Policy"]', "no_such_module"),
    "file": ('policies = ["none.py:Policy"]', "none.py"),
    "parameter": (f'policies = ["{MINE}:Newest:colour=1"]', "colour"),
    "closed": ('policies = ["belady"]\nlevel = "closed"', "clairvoyant"),
    "closed online": ('policies = ["h2o"]\nlevel = "closed"', "live"),
    "toml": ("budgets = [", "spec.toml"),
    "matrix": ('budgets = ["none.json"]', "none.json"),
}


@pytest.mark.parametrize("fault", BAD_SPECS)
def test_bad_specs_are_one_named_line(trace_path, tmp_path, capsys, fault):
    text, word = BAD_SPECS[fault]
    spec = tmp_path / "spec.toml"
    rest = {"traces": f'["{trace_path}"]', "policies": '["h2o"]', "budgets": "[5]"}
    rest = [f"{key} = {value}" for key, value in rest.items() if f"{key} =" not in text]
    spec.write_text("\n".join([text, *rest]))
    assert main(["sweep", str(spec), "--out", str(tmp_path / "out")]) == 2
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert line.startswith("h2o-theory: ") and word in line and "Traceback" not in line
    assert not (tmp_path / "out").exists()


def test_a_policy_that_needs_values_is_refused_on_a_trace_without(tmp_path):
    bare = ht.Trace.from_attention(small_trace().rows(0, 0)[None], kv_heads=1)
    with pytest.raises(BadArgument, match="values"):
        run_sweep(
            {"traces": [bare], "policies": [sweep_policies.SeesValues()], "budgets": [5]}, tmp_path
        )


def test_bad_places(tmp_path, trace_path):
    with pytest.raises(TraceNotFound):
        run_sweep({"traces": ["none"], "policies": ["h2o"], "budgets": [5]}, tmp_path)
    with pytest.raises(BadArgument, match="cannot be read"):
        read_spec(tmp_path / "none.toml")
    with pytest.raises(BadArgument, match="wrong key"):
        run_sweep({"trace": [trace_path]}, tmp_path)
    matrix = tmp_path / "m.json"
    matrix.write_text(json.dumps({"0": [5, 6]}))
    grid = {"traces": [trace_path], "policies": ["h2o"]}
    with pytest.raises(BadBudget, match="layer 1"):
        run_sweep(grid | {"budgets": [ht.read_budget_matrix(matrix)]}, tmp_path / "out")
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotWrite):
        run_sweep(grid | {"budgets": [5], "optimum": False}, tmp_path / "file", workers=1)

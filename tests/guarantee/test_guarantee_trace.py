"""The guarantee on traces: the same numbers as from the rows alone, all policies, refusals, CLI."""

import json

import numpy as np
import pandas as pd
import pytest
from guarantee_instances import attention

import h2o_theory as ht
from h2o_theory import submodular as sm
from h2o_theory.cli.main import main
from h2o_theory.errors import BadArgument, BadBudget, H2OTheoryError, OutOfRange
from h2o_theory.optimum import square_root


@pytest.fixture(scope="module")
def small():
    """Two layers, two kv_heads of two query heads, 40 tokens."""
    rng = np.random.default_rng(0)
    matrices = np.stack([attention(rng, 40, 4) for _ in range(2)])
    return ht.Trace.from_attention(matrices, kv_heads=2, name="small")


def test_equals_the_measurement_on_the_rows_alone(small):
    """H2O with raw rows and no window, written out: the schedule and all that follows."""
    found = ht.measure_guarantee(small, "h2o:recent=0,rows=raw", 8, layers=[1], kv_heads=[0])
    rows = small.rows(1, 0)
    accumulated = np.cumsum(rows.mean(axis=0), axis=0)
    evicted_at, kept = np.full(40, 40), []
    for t in range(40):
        kept.append(t)
        if len(kept) == 8:
            gone = kept[int(accumulated[t, kept].argmin())]
            kept.remove(gone)
            evicted_at[gone] = t
    exact = sm.make_reading("accumulated", rows)
    cached = sm.make_reading("accumulated_cached", rows, evicted_at=evicted_at)
    measured = sm.measure_conditions(exact, evicted_at, 8, approximate=cached)
    for name in ("value", "theta", "gamma_used", "swap_loss", "excess", "seen_value"):
        assert found.steps[name].to_numpy() == pytest.approx(getattr(measured, name)), name
    assert found.steps["repaired"].to_numpy() == pytest.approx(sm.repaired_bound(measured))
    assert found.heads["alpha_used"][0] == sm.paper_premises(measured).alpha_used
    assert found.steps["step"].tolist() == list(range(6, 39))
    assert (found.budget_tokens, found.tokens, found.trace) == (8, 40, "small")


@pytest.mark.parametrize("function", sm.READINGS)
def test_bounds_stay_below_the_ratio_on_a_real_trace(committed_trace, function):
    trace = ht.open_trace(committed_trace)
    layer = trace.layers[len(trace.layers) // 2]
    shape = square_root() if function == "row_sums" else None
    found = ht.measure_guarantee(
        trace, "h2o", "20%", function, shape=shape, layers=[layer], kv_heads=[1]
    )
    steps = found.steps
    assert len(steps) == trace.tokens - 1 - (found.budget_tokens - 2)
    assert (steps["best_lower"] <= steps["best_upper"]).all()
    assert (steps["value"] <= steps["best_upper"] * (1 + 1e-9)).all()
    for bound in ("direct", "together", "repaired", "repaired_seen", "uniform"):
        assert (steps[bound] <= steps["ratio"] + 1e-9).all(), bound
    assert steps["together"].iloc[-1] >= steps["repaired"].iloc[-1]
    exact = found.heads["best_exact_share"][0]
    assert exact == 1 if function in ("row", "accumulated") else exact <= 1
    assert not found.heads["hold"][0]


@pytest.mark.parametrize(
    "policy", ["recent", "sink", "tova", "lru", "random", "greedy", "belady_mass", "optimum"]
)
def test_any_policy_can_be_measured(small, policy):
    found = ht.measure_guarantee(small, policy, "25%", "row", prefill=5)
    assert len(found.heads) == 4 and found.prefill == 5
    assert found.steps.groupby(["layer", "kv_head"])["step"].first().unique().tolist() == [8]
    assert (found.steps["repaired"] <= found.steps["ratio"] + 1e-9).all()


def test_a_policy_of_ones_own_and_a_function_of_ones_own(small):
    class Newest(ht.PlainPolicy):
        name = "newest"

        def rate(self, t, positions):
            return positions

    def counts(rows, evicted_at):
        assert rows.shape == (2, 40, 40) and evicted_at.shape == (40,)
        weights = np.tril(np.ones((40, 40)))
        return sm.make_reading("row", weights / weights.sum(axis=1, keepdims=True))

    found = ht.measure_guarantee(small, Newest(), 5, counts, layers=[0], kv_heads=[0])
    assert found.policy == "newest" and found.approximate == found.exact
    assert found.steps["ratio"].to_numpy() == pytest.approx(1)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"policy": "full"}, BadArgument),
        ({"policy": "h2o,recent"}, BadArgument),
        ({"policy": "nobody"}, H2OTheoryError),
        ({"budget": "10%,20%"}, BadBudget),
        ({"budget": 1}, BadBudget),
        ({"budget": 40}, BadBudget),
        ({"budget": 41}, BadBudget),
        ({"function": "rows"}, BadArgument),
        ({"approximate": "rows"}, BadArgument),
        ({"function": "row_sums", "approximate": "row"}, BadArgument),
        ({"layers": [7]}, OutOfRange),
        ({"layers": []}, BadArgument),
        ({"kv_heads": [2]}, OutOfRange),
        ({"prefill": 40}, OutOfRange),
        ({"prefill": 39}, BadBudget),
    ],
)
def test_unusable_arguments_are_refused(small, options, error):
    with pytest.raises(error):
        ht.measure_guarantee(small, **({"budget": 8} | options))


@pytest.fixture
def stored(small, tmp_path):
    return str(small.save(tmp_path / "small.trace"))


def test_command_prints_the_table_and_writes_tables_and_figure(stored, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["guarantee", stored, "--budget", "20%", "--out", str(out)]) == 0
    shown = capsys.readouterr()
    assert "least ratio f / opt" in shown.out and "Theorem 4.4" in shown.out
    assert "hold on 0 of 4 kv_heads" in " ".join(shown.out.split())
    assert "figure" in shown.err
    assert {path.name for path in out.iterdir()} == {"heads.csv", "steps.csv", "guarantee.png"}
    steps = pd.read_csv(out / "steps.csv")
    assert (steps["repaired"] <= steps["ratio"] + 1e-9).all()
    assert (out / "guarantee.png").read_bytes().startswith(b"\x89PNG")
    assert main(["guarantee", stored, "--out", str(out)]) == 2
    assert main(["guarantee", stored, "--out", str(out), "--overwrite", "--budget", "6"]) == 0


def test_command_prints_json(stored, capsys):
    options = ["--function", "row_sums", "--shape", "sqrt", "--layers", "0", "--json"]
    assert main(["guarantee", stored, "--budget", "6", *options]) == 0
    heads = json.loads(capsys.readouterr().out)
    assert [head["kv_head"] for head in heads] == [0, 1]
    assert heads[0]["best_exact_share"] < 1 and heads[0]["hold"] is False


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--function", "mass"], "function must be callable or one of"),
        (["--shape", "cube"], "--shape must be one of"),
        (["--approximate", "mass"], "approximate must be callable or one of"),
        (["--budget", "1"], "leave two rows"),
        (["--budget", "5,6"], "one budget"),
        (["--policy", "full"], "one that evicts"),
        (["--policy", "h2o,lru"], "one policy"),
        (["--policy", "h2p"], "h2o"),
        (["--layers", "9"], "no such layer"),
        (["--kv-heads", "x"], "cannot be read"),
        (["--prefill", "-1"], "prefill"),
    ],
)
def test_command_refuses_in_one_line(stored, options, said, capsys):
    assert main(["guarantee", stored, *options]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and said in shown.err and len(shown.err.splitlines()) == 1


def test_command_refuses_what_is_no_trace(tmp_path, capsys):
    assert main(["guarantee", str(tmp_path)]) == 2
    assert "TraceNotFound" in capsys.readouterr().err


def test_figure_of_a_function_that_is_seen_as_it_is(small):
    from h2o_theory.figures import guarantee_figure

    found = ht.measure_guarantee(small, "recent", 6, approximate=None)
    figure = guarantee_figure(found)
    words = " ".join(text.get_text() for text in figure.findobj(lambda a: hasattr(a, "get_text")))
    assert "f~: f itself" in words and "small" in words and "k = 6 tokens" in words
    left, right = figure.axes
    assert "step" in left.get_xlabel() and "log" in right.get_ylabel()

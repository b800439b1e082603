"""The page's own tables and sentences, text columns of results files, and safe replacement."""

import datetime

import numpy as np
import pandas as pd
import pytest

from h2o_theory import figures
from h2o_theory.errors import BadArgument, CannotWrite
from h2o_theory.figures.table import Setting
from h2o_theory.report import load_results, page, save_results, summary_table, write_report
from h2o_theory.report.tables import glance, table_by_budget

QUALITY = {"lru": 0.9, "h2o": 0.8, "belady": 0.95, "optimum": 1.0}
BUDGETS = {6: "10%", 12: "20%"}
HEADS = [(0, 0), (0, 1), (3, 0), (3, 1)]


def made_up_results(quality=QUALITY, tokens=60):
    """A consistent table: each ratio is the policy's quality, less a little for each head."""
    rows = []
    for number, (layer, kv_head) in enumerate(HEADS):
        for budget, asked in BUDGETS.items():
            optimum = 0.5 + budget / 60
            for policy, ratio in quality.items():
                ratio -= 0.01 * number * (policy != "optimum")
                mass = ratio * optimum
                rows.append(
                    {
                        "trace": "made-up", "trace_id": "001234567890", "model": "none",
                        "tokens": tokens, "layer": layer, "kv_head": kv_head, "policy": policy,
                        "parameters": "", "budget": asked, "budget_tokens": budget, "prefill": 0,
                        "seed": 0, "level": "open", "n_rows": tokens, "retained_mass": mass,
                        "full_mass": 1.0, "optimum_mass": optimum, "topk_mass": optimum + 0.01,
                        "approximation_ratio": ratio,
                        "lost_mass_ratio": (1 - mass) / (1 - optimum),
                        "output_error": np.nan, "kl": -np.log(mass),
                        "sparsity_causal": 0.9, "sparsity_square": 0.95,
                    }
                )  # fmt: skip
    return pd.DataFrame(rows)


def parts_of_the_page(results):
    return results, summary_table(results), Setting.of(results)


def test_table_by_budget_holds_means_and_worst_heads():
    rows = table_by_budget(*parts_of_the_page(made_up_results()))
    assert [row["label"] for row in rows] == ["optimum", "belady", "lru", "h2o"]
    for row in rows[1:]:
        for cell in row["cells"]:
            assert cell["mean"] == pytest.approx(QUALITY[row["label"]] - 0.015)
            assert cell["worst"] == pytest.approx(QUALITY[row["label"]] - 0.03)
            assert cell["heads"] == len(HEADS)


def test_best_is_chosen_among_policies_that_do_not_see_the_future():
    rows = table_by_budget(*parts_of_the_page(made_up_results()))
    assert {row["label"] for row in rows if row["future"]} == {"optimum", "belady"}
    best = {row["label"] for row in rows for cell in row["cells"] if cell["best"]}
    assert best == {"lru"}


def test_a_policy_missing_at_one_budget_leaves_a_gap():
    results = made_up_results()
    results = results[(results.policy != "h2o") | (results.budget_tokens == 12)]
    rows = {row["label"]: row["cells"] for row in table_by_budget(*parts_of_the_page(results))}
    assert rows["h2o"][0] is None and rows["h2o"][1]["heads"] == len(HEADS)
    assert len(glance(*parts_of_the_page(results))) == 1


def test_glance_states_h2o_and_the_leader_at_each_budget():
    sentences = glance(*parts_of_the_page(made_up_results()))
    assert len(sentences) == len(BUDGETS)
    for sentence, budget in zip(sentences, BUDGETS, strict=True):
        optimum = 0.5 + budget / 60
        lost = (1 - 0.785 * optimum) / (1 - optimum)
        assert sentence.startswith(f"k = {budget} tokens")
        for words in ("h2o retains 0.7850", "worst: 0.7700", f"{lost:.2f} times", "lru, 0.8850"):
            assert words in sentence
    alone = made_up_results({"h2o": 0.8})
    assert "best without" not in "".join(glance(*parts_of_the_page(alone)))
    assert glance(*parts_of_the_page(made_up_results({"optimum": 1.0}))) == []


def test_text_that_looks_like_something_else_survives_a_csv_file(tmp_path):
    results = made_up_results({"null": 0.7, "12": 0.6}).assign(budget="6")
    loaded = load_results(save_results(results, tmp_path / "r.csv"))
    pd.testing.assert_frame_equal(loaded, results, check_dtype=False)
    assert set(summary_table(loaded).policy) == {"null", "12"}


def test_provenance_of_any_kind_is_kept(tmp_path):
    results = made_up_results()
    results.attrs["provenance"] = {"layers": [np.int64(3)], "date": datetime.date(2024, 2, 29)}
    loaded = load_results(save_results(results, tmp_path / "r.parquet"))
    assert loaded.attrs["provenance"] == {"layers": [3], "date": "2024-02-29"}
    assert results.attrs["provenance"]["date"] == datetime.date(2024, 2, 29)


def test_words_where_numbers_belong_are_refused():
    with pytest.raises(BadArgument, match="kl: .*not numbers"):
        summary_table(made_up_results().astype({"kl": str}))


def test_lost_mass_figure_marks_medians():
    results = made_up_results()
    results.loc[(results.policy == "h2o") & (results.layer == 0), "lost_mass_ratio"] = 50.0
    panel = figures.lost_mass_figure(results).axes[0]
    centres = [line.get_xdata()[0] for line in panel.get_lines() if len(line.get_xdata()) == 1]
    h2o = results[(results.policy == "h2o") & (results.budget_tokens == 6)].lost_mass_ratio
    assert any(np.isclose(centre, h2o.median()) for centre in centres)
    assert not any(np.isclose(centre, h2o.mean()) for centre in centres)
    labels = [text.get_text() for text in panel.get_yticklabels()]
    assert labels == ["belady", "lru", "h2o"]


def test_equal_tables_give_equal_reports(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "_FIGURES", {"sparsity": figures.sparsity_figure})
    results = made_up_results()
    first, second = (write_report(results, tmp_path / name).parent for name in "ab")
    for name in ("index.html", "figures/sparsity.svg", "figures/sparsity.png", "results.csv"):
        assert (first / name).read_bytes() == (second / name).read_bytes()


def test_an_earlier_report_comes_back_if_it_cannot_be_replaced(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "_FIGURES", {})
    results = made_up_results()
    written = write_report(results, tmp_path / "report")
    before = written.read_text()
    rename = type(tmp_path).rename

    def failing(self, target):
        if self.name.startswith(".report.") and ".old." not in self.name:
            raise OSError("no space")
        return rename(self, target)

    monkeypatch.setattr(type(tmp_path), "rename", failing)
    with pytest.raises(CannotWrite, match="no space"):
        write_report(results.head(8), tmp_path / "report", overwrite=True)
    assert written.read_text() == before
    assert [path.name for path in tmp_path.iterdir()] == ["report"]

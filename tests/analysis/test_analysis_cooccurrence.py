"""The graph of words, its correlation with attention, and the controls."""

import math
from collections import Counter

import networkx
import numpy as np
import pandas as pd
import pytest
from analysis_traces import zipf_text
from recorder_models import tokens

import h2o_theory as ht
from h2o_theory.analysis import survey_rows, words_of
from h2o_theory.analysis.association import CONTROLS, association, label_control, word_table
from h2o_theory.analysis.control import order_control, record_shuffled, shuffle_words
from h2o_theory.analysis.graph import centralities, cooccurrence_graph, pair_counts
from h2o_theory.analysis.measurements import Measurements
from h2o_theory.analysis.texts import compare_texts
from h2o_theory.errors import BadArgument
from h2o_theory.recorder import LoadedModel
from h2o_theory.recorder.tiny import tiny_model


@pytest.fixture(scope="module")
def words():
    return words_of([word.encode() for word in zipf_text(400)])


def counted(words, window):
    """Pairs within the window, counted one place at a time."""
    pairs = Counter()
    kind = words.kind.tolist()
    for i in range(len(kind)):
        for j in range(i + 1, min(i + window + 1, len(kind))):
            if kind[i] != kind[j]:
                pairs[tuple(sorted((kind[i], kind[j])))] += 1
    return pairs


@pytest.mark.parametrize("window", [1, 3, 1000])
def test_pairs_are_counted_once_a_place(words, window):
    first, second, count = pair_counts(words.kind[:80], len(words.kinds), window)
    found = dict(zip(zip(first, second, strict=True), count, strict=True))
    short = words_of([word.encode() for word in zipf_text(400)[:80]])
    assert found == counted(short, window)


def test_graph_and_centralities_by_definition(words):
    graph = cooccurrence_graph(words, 4)
    pairs = counted(words, 4)
    assert graph.number_of_edges() == len(pairs)
    degree = Counter()
    for (a, b), count in pairs.items():
        degree[a] += count
        degree[b] += count
    total = sum(degree.values())
    for (a, b), count in pairs.items():
        edge = graph.edges[words.kinds[a], words.kinds[b]]
        assert edge["weight"] == count
        assert edge["pmi"] == pytest.approx(math.log(count * total / (degree[a] * degree[b])))
    table = centralities(graph).set_index("word")
    assert table.pagerank.sum() == pytest.approx(1)
    for place, word in enumerate(words.kinds):
        assert table.cooccurrences[word] == degree[place]
        assert table.neighbours[word] == len(list(graph[word]))
    for k in table.core.unique():
        inside = networkx.k_core(graph, k)
        assert set(inside) == set(table.index[table.core >= k])


def test_words_are_tabulated_without_the_sinks(words):
    received = np.random.default_rng(0).random(400)
    ranks = pd.DataFrame({"word": words.kinds})
    table = word_table(words, received, 4, ranks).set_index("word")
    for word in (words.kinds[words.kind[0]], words.kinds[words.kind[200]]):
        places = [t for t in range(4, 400) if words.kinds[words.kind[t]] == word]
        line = table.loc[word]
        assert line.attention == pytest.approx(received[places].sum())
        assert line.frequency == len(places)
        assert line.mean_position == pytest.approx(np.mean(places))
        assert line.exposure == sum(400 - t for t in places)


def frequency_text(rng, words, noise=0.3):
    """Attention that depends on each word's kind and on nothing else, plus noise."""
    return rng.random(len(words.kind)) * noise + 1.0


def test_attention_by_frequency_alone_is_found_out(words):
    received = frequency_text(np.random.default_rng(1), words)
    table = word_table(words, received, 0, centralities(cooccurrence_graph(words)))
    measurements = Measurements()
    found = association(table, measurements, "text", replicates=100)
    found = found[found.centrality == "cooccurrences"].set_index("statistic")
    assert found.value["Spearman"] > 0.8 and found.p["Spearman"] < 0.05
    assert found.value["within frequency"] > 0.8
    assert abs(found.value["partial"]) < 0.35
    assert found.low["partial"] < 0 < found.high["partial"]


def test_attention_by_neighbours_survives_the_controls(words):
    """A word whose attention is what its co-occurrences beyond its frequency would give."""
    ranks = centralities(cooccurrence_graph(words))
    received = np.ones(400)
    table = word_table(words, received, 0, ranks)
    beyond = table.cooccurrences / table.frequency
    table["attention"] = beyond - beyond.min() + 1e-3 * table.frequency
    found = association(table, Measurements(), "text", replicates=100)
    found = found[(found.centrality == "cooccurrences") & (found.statistic == "partial")]
    assert found.low.item() > 0 and found.p.item() < 0.05


def test_shuffling_moves_whole_words_and_nothing_else():
    pieces = [b"The", b" mi", b"ll", b",", b" a", b" wh", b"eel", b" turned", b".", b"\n"]
    words = words_of(pieces)
    for seed in range(5):
        order, moved = shuffle_words(words, seed)
        assert sorted(order) == list(range(10))
        assert sorted(moved.kind) == sorted(words.kind)
        shuffled = [pieces[token] for token in order]
        spelled = words_of(shuffled)
        assert [token for token in shuffled if token in (b",", b".", b"\n")] == [b",", b".", b"\n"]
        names = [words.kinds[kind] for kind in moved.kind]
        for word, name in enumerate(names):
            run = b"".join(shuffled[t] for t in np.flatnonzero(moved.token_word == word))
            assert run.decode().strip().lower() == name
        assert len(spelled.token_word) == 10


def test_label_control_keeps_frequencies_and_loses_order(words):
    received = frequency_text(np.random.default_rng(2), words)
    drawn = label_control(words, received, 0, 5, times=20)
    assert len(drawn) == 20 and drawn.spearman.min() > 0.7
    assert abs(drawn.partial.mean()) < 0.25


@pytest.fixture(scope="module")
def small_model(tmp_path_factory):
    """A tiny random model, its trace of 150 tokens, and words made of its ids."""
    model = tiny_model("llama", max_position_embeddings=256)
    ids = tokens(150)
    path = tmp_path_factory.mktemp("model") / "run.trace"
    with ht.record(model, path):
        model(ids)
    words = words_of([f" w{int(token)}".encode() for token in ids[0]])
    return LoadedModel(model, None, "tiny", "llama", "", "made up"), ht.open_trace(path), words


def test_the_model_reads_the_shuffled_words_again(small_model, tmp_path):
    loaded, trace, words = small_model
    path, moved = record_shuffled(trace, words, loaded, tmp_path / "again")
    again = ht.open_trace(path)
    assert sorted(again.spec.token_ids) == sorted(trace.spec.token_ids)
    assert [f"w{token}" for token in again.spec.token_ids] == [
        moved.kinds[kind] for kind in moved.kind
    ]
    assert again.layers == trace.layers
    survey, measurements = survey_rows(trace), Measurements()
    table = order_control(survey, words, 5, measurements, model=loaded, replicates=60)
    assert table.kind.str.contains("random order").all() and len(table) == 2
    assert measurements.get("shuffled", "Spearman", "control") is not None
    labels = order_control(survey, words, 5, Measurements())
    assert labels.kind.str.contains("permuted").all()


def test_another_model_is_refused(small_model, tmp_path):
    _, trace, words = small_model
    model = tiny_model("llama", num_attention_heads=8, max_position_embeddings=256)
    other = LoadedModel(model, None, "other", "llama", "", "made up")
    with pytest.raises(BadArgument, match="not the model of the trace"):
        record_shuffled(trace, words, other, tmp_path / "again")


def test_texts_are_compared_over_shared_words():
    rng = np.random.default_rng(3)
    first, second = (
        words_of([word.encode() for word in zipf_text(400, seed=seed)]) for seed in (1, 2)
    )
    worth = {word: rng.random() for word in set(first.kinds) | set(second.kinds)}
    pairs = [
        (words, np.array([worth[words.kinds[kind]] for kind in words.kind]))
        for words in (first, second)
    ]
    measurements = Measurements()
    both = compare_texts("other", *pairs, 0, 0.1, measurements, replicates=100)
    assert set(both.word) == set(first.kinds) & set(second.kinds)
    assert measurements.get("texts", "attention, frequencies fixed", "other").low > 0.3
    few = words_of([b" one", b" two", b" three"] * 50)
    compare_texts("few", pairs[0], (few, np.ones(150)), 0, 0.1, measurements, replicates=100)
    assert "few" in " ".join(measurements.missing().item)


def test_controls_are_columns_of_the_word_table(words):
    table = word_table(words, np.ones(400), 0, pd.DataFrame({"word": words.kinds}))
    assert set(CONTROLS) <= set(table.columns) and not table.isna().any().any()

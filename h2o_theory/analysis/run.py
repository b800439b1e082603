"""The whole analysis of a trace: tables, numbers with intervals, and what they say."""

from dataclasses import asdict, dataclass

import pandas as pd

from h2o_theory.analysis.association import (
    association,
    association_by_layer,
    word_table,
)
from h2o_theory.analysis.control import order_control
from h2o_theory.analysis.emergence import concentration, position_bias
from h2o_theory.analysis.evolution import evolution, persistence
from h2o_theory.analysis.findings import findings
from h2o_theory.analysis.graph import WINDOW, centralities, cooccurrence_graph
from h2o_theory.analysis.law import power_laws
from h2o_theory.analysis.measurements import Measurements
from h2o_theory.analysis.overlap import overlap_between
from h2o_theory.analysis.pieces import token_bytes
from h2o_theory.analysis.sparse import sparsity, support
from h2o_theory.analysis.survey import accumulated, survey_rows
from h2o_theory.analysis.texts import compare_texts
from h2o_theory.analysis.words import words_of
from h2o_theory.attention import SPARSITY_THRESHOLD
from h2o_theory.dependencies import require
from h2o_theory.errors import BadArgument

__all__ = ["Analysis", "analyze"]


@dataclass(frozen=True)
class Analysis:
    """What :func:`analyze` found.

    Attributes
    ----------
    survey : Survey
    words : Words or None
    graph : networkx.Graph or None
        The co-occurrence graph.
    tables : dict of str to DataFrame
        None of them has a gap; ``measures`` has every number with its interval, ``findings`` the
        statements, ``not_enough_data`` what could not be found and why.
    findings : list of Statement
    """

    survey: object
    words: object
    graph: object
    tables: dict
    findings: list


def analyze(
    trace,
    *,
    tokenizer=None,
    words=True,
    layers=None,
    share=0.1,
    n_sink=4,
    threshold=SPARSITY_THRESHOLD,
    window=WINDOW,
    compare=(),
    shuffle_model=None,
    replicates=500,
    workers=None,
    progress=None,
):
    """Heavy hitters of a trace: how they emerge, what they follow, what sparsity there is.

    Parameters
    ----------
    trace : Trace
    tokenizer : transformers tokenizer, optional
        Of the recorded model, for traces without token strings.
    words : bool
        False leaves out all that needs the words of the text.
    layers : list of int, optional
        All by default.
    share : float
        Heavy hitters as a share of the positions that have come, in (0, 1).
    n_sink : int
        First positions, set apart as sinks.
    threshold : float
        Share of its row's maximum below which an entry counts as sparse.
    window : int
        Words apart at most to occur together.
    compare : list of Trace
        Traces of other texts, for the overlap between texts.
    shuffle_model : LoadedModel, optional
        The recorded model: it reads the same words in random order as a control. Without it the
        control permutes the words' labels over the recorded attention.
    replicates : int
        Bootstrap and permutation replicates.
    workers : int, optional
        Threads; the number of cores by default. Results do not depend on it.
    progress : callable (done, total, label), optional

    Returns
    -------
    Analysis

    Raises
    ------
    BadArgument
        Without words that can be told (says how to pass a tokenizer), for unusable settings, or
        to compare with a trace of another model.
    MissingDependency
        If scipy or networkx is not installed.

    Notes
    -----
    One pass over the rows, O(L H T^2 log T); then resampling, independent of T^2.
    """
    for package in ("scipy.stats", "networkx"):
        require(package)  # before any row is read
    if replicates < 50:
        raise BadArgument("too few", where="replicates", got=replicates, expected="at least 50")
    if window < 1:
        raise BadArgument("no window", where="window", got=window, expected="at least 1")
    for other in compare:
        _require_same_model(trace, other)
    text = words_of(token_bytes(trace, tokenizer)) if words else None
    others = [(other, words_of(token_bytes(other, tokenizer))) for other in compare if words]
    survey = survey_rows(
        trace, layers=layers, share=share, n_sink=n_sink, threshold=threshold, workers=workers,
        progress=progress,
    )  # fmt: skip
    measurements, tables = Measurements(), {}
    tables["concentration"] = concentration(
        survey, text, measurements, replicates=max(25, replicates // 5)
    )
    tables["position"] = position_bias(survey, measurements)
    tables["evolution"], tables["evolution_by_head"] = evolution(survey, measurements)
    tables["persistence"], tables["survival"] = persistence(survey, measurements)
    tables["overlap_layers"] = overlap_between(survey, measurements)
    tables |= sparsity(survey, measurements)
    tables["support"] = support(survey, measurements)
    tables["heavy_hitters"] = _heaviest(survey, trace, text)
    tables["power_law"] = power_laws(
        survey, text, measurements, replicates=replicates, progress=progress
    )
    graph = None
    if text is None:
        for topic in ("co-occurrence", "shuffled", "texts"):
            measurements.lack(topic, "words", "words were not asked for")
    else:
        graph = cooccurrence_graph(text, window)
        tables |= _words(survey, text, graph, measurements, replicates)
        tables["control"] = order_control(
            survey, text, window, measurements, model=shuffle_model, replicates=replicates,
            workers=workers, progress=progress,
        )  # fmt: skip
        for other, other_text in others:
            received = accumulated(other, layers, workers=workers, progress=progress)
            tables[f"text_{other.name}"] = compare_texts(
                other.name, (text, survey.received()), (other_text, received), n_sink, share,
                measurements, replicates=replicates,
            )  # fmt: skip
        if not others:
            measurements.lack(
                "texts", "overlap", "one text only; give traces of others (--compare)"
            )
    found = findings(survey, tables, measurements)
    tables["measures"] = measurements.found()
    tables["findings"] = pd.DataFrame([asdict(finding) for finding in found])
    tables["not_enough_data"] = measurements.missing()
    return Analysis(survey, text, graph, tables, found)


def _require_same_model(trace, other):
    ours, theirs = (each.spec.model.get("id", "unknown") for each in (trace, other))
    if ours != theirs:
        raise BadArgument(
            "the traces are of different models, so their texts cannot be compared",
            where=f"compare, {other.name}",
            got=theirs,
            expected=ours,
        )


def _heaviest(survey, trace, words, most=30):
    """The positions that receive most, with their word and in how many kv_heads they are heavy."""
    received, first = survey.received(), survey.n_sink
    members = sum(head.history.members[-1].astype(int) for head in survey.heads)
    lines = []
    for position in sorted(range(len(received)), key=lambda j: (-received[j], j))[:most]:
        word = -1 if words is None else words.token_word[position]
        lines.append(
            {
                "position": position,
                "word": "" if word < 0 else words.kinds[words.kind[word]],
                "sink": position < first,
                "attention": received[position],
                "attention_per_row": received[position] / (len(received) - position),
                "heavy_in_kv_heads": int(members[position]),
            }
        )
    return pd.DataFrame(lines)


def _words(survey, words, graph, measurements, replicates):
    table = word_table(words, survey.received(), survey.n_sink, centralities(graph))
    return {
        "words": table,
        "cooccurrence": association(table, measurements, "text", replicates=replicates),
        "cooccurrence_by_layer": association_by_layer(
            words, survey, table, measurements, replicates=max(50, replicates // 5)
        ),
    }

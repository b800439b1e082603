"""The control of the co-occurrence statement: the same words with their order lost."""

import tempfile

import numpy as np
import pandas as pd

from h2o_theory.analysis.association import association, label_control, word_table
from h2o_theory.analysis.graph import centralities, cooccurrence_graph
from h2o_theory.analysis.measurements import Measurements
from h2o_theory.analysis.survey import accumulated
from h2o_theory.analysis.words import Words
from h2o_theory.dependencies import require
from h2o_theory.errors import BadArgument
from h2o_theory.recorder import record
from h2o_theory.statistics import percentile_interval
from h2o_theory.trace import open_trace

__all__ = ["order_control", "record_shuffled", "shuffle_words"]

LABELS = "words' labels permuted over the recorded attention (the model was not run again)"
AGAIN = "the model read the same words in random order"


def order_control(
    survey, words, window, measurements, *, model=None, replicates=500, workers=None, progress=None
):
    """Correlate attention with co-occurrence counts once more, with the order of the words lost.

    With the recorded model, it reads the words in random order and everything is computed anew
    (the intervals resample words). Without it, the labels of the words are permuted over the
    places of the text, and attention stays where it is (the intervals are over permutations).

    Parameters
    ----------
    survey : Survey
    words : Words
    window : int
    measurements : Measurements
    model : LoadedModel, optional
    replicates : int
    workers : int, optional
    progress : callable (done, total, label), optional

    Returns
    -------
    DataFrame
        kind (which of the two controls), statistic, value, low, high.
    """
    kind = LABELS if model is None else AGAIN
    if model is None:
        found, n, over = _permuted(survey, words, window, measurements)
    else:
        found, n, over = _reread(
            survey, words, window, measurements, model, replicates, workers, progress
        )
    lines = []
    for name, interval in found.items():
        measurements.note(
            "shuffled", name, "control", interval, unit="rank correlation", n=n, over=over
        )
        lines.append([kind, name, *interval])
    return pd.DataFrame(lines, columns=["kind", "statistic", "value", "low", "high"])


def _permuted(survey, words, window, measurements):
    drawn = measurements.attempt(
        "shuffled",
        "words' labels permuted",
        lambda: label_control(words, survey.received(), survey.n_sink, window),
    )
    over = "permutations; mean and interval over them"
    if drawn is None:
        return {}, 0, over
    names = {"Spearman": drawn.spearman, "partial": drawn.partial}
    found = {name: percentile_interval(values.mean(), values) for name, values in names.items()}
    return found, len(drawn), over


def _reread(survey, words, window, measurements, model, replicates, workers, progress):
    with tempfile.TemporaryDirectory() as folder:
        path, moved = record_shuffled(survey.trace, words, model, f"{folder}/shuffled text")
        received = accumulated(open_trace(path), survey.layers, workers=workers, progress=progress)
    ranks = centralities(cooccurrence_graph(moved, window))[["word", "cooccurrences"]]
    table = word_table(moved, received, survey.n_sink, ranks)
    again = Measurements()
    association(table, again, "shuffled", replicates=replicates)
    for line in again.missing().itertuples():
        measurements.lack("shuffled", line.item, line.reason)
    named = {
        name: again.get("co-occurrence", f"cooccurrences {name}", "shuffled")
        for name in ("Spearman", "partial")
    }
    found = {name: interval for name, interval in named.items() if interval is not None}
    return found, len(table), "words; interval over resampled words"


def shuffle_words(words, seed=0):
    """A random order of the words of a text, punctuation left where it is.

    Parameters
    ----------
    words : Words
    seed : int

    Returns
    -------
    order : int array [T]
        Token t of the shuffled text is token ``order[t]`` of the text; a permutation.
    shuffled : Words
        The words of the shuffled text.
    """
    token_word = words.token_word
    members = [np.flatnonzero(token_word == word) for word in range(len(words.kind))]
    turn = np.random.default_rng(seed).permutation(len(words.kind))
    order, belongs, started = [], [], 0
    for token, word in enumerate(token_word):
        if word < 0:
            order.append(token)
            belongs.append(-1)
        elif word == started:
            # The first token of a word slot: another word, whole, takes its place.
            chosen = members[turn[started]]
            order.extend(chosen)
            belongs.extend([started] * len(chosen))
            started += 1
    return np.array(order), Words(words.kinds, words.kind[turn], np.array(belongs))


def record_shuffled(trace, words, model, out, seed=0):
    """Record the model on the tokens of a trace with the words in random order.

    The tokens are the same ones, so frequencies are equal and only the order is lost.

    Parameters
    ----------
    trace : Trace
    words : Words
        Of the trace.
    model : LoadedModel
        The recorded model.
    out : path
        Folder of the new trace (queries and keys only).
    seed : int

    Returns
    -------
    path : Path
    words : Words
        Of the shuffled text.

    Raises
    ------
    BadArgument
        If the trace holds no token ids, or the model does not have its layers and heads.
    """
    torch = require("torch")
    if trace.spec.token_ids is None:
        raise BadArgument("the trace holds no token ids, so its text cannot be read again")
    order, shuffled = shuffle_words(words, seed)
    ids = np.array(trace.spec.token_ids)[order]
    config = model.model.config
    first = trace.layer(trace.layers[0])
    if max(ids) >= config.vocab_size or config.num_attention_heads != first.q_heads:
        raise BadArgument(
            "this is not the model of the trace",
            where="model",
            got=model.name,
            expected=trace.spec.model.get("id", "the recorded model"),
        )
    with record(model, out, layers=list(trace.layers), store="qk") as recording:
        with torch.no_grad():
            batch = torch.tensor(ids[None], device=model.model.device)
            model.model.base_model(input_ids=batch, use_cache=False)
    return recording.path, shuffled

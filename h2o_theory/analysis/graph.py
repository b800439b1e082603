"""The co-occurrence graph of the words of a text, and how central each word is in it."""

import numpy as np
import pandas as pd

from h2o_theory.dependencies import require
from h2o_theory.errors import BadArgument

__all__ = ["CENTRALITIES", "WINDOW", "centralities", "cooccurrence_graph", "pair_counts"]

WINDOW = 5
"""Words apart at most to count as occurring together."""

CENTRALITIES = ("cooccurrences", "neighbours", "mean_pmi", "pagerank", "core")


def pair_counts(kind, kinds, window=WINDOW):
    """How often each pair of different words occurs within a window of one another.

    Parameters
    ----------
    kind : int array [W]
        The text as indices of kinds of words.
    kinds : int
        V.
    window : int
        Largest distance in words.

    Returns
    -------
    first, second, count : int array [E]
        Pairs with first < second, and in how many places of the text they occur together.
    """
    if window < 1:
        raise BadArgument("no window", where="window", got=window, expected="at least 1")
    keys = []
    for distance in range(1, min(window, len(kind) - 1) + 1):
        a, b = kind[:-distance], kind[distance:]
        low, high = np.minimum(a, b), np.maximum(a, b)
        keys.append((low * kinds + high)[low != high])
    found, count = np.unique(np.concatenate([[], *keys]).astype(np.int64), return_counts=True)
    return found // kinds, found % kinds, count


def cooccurrence_graph(words, window=WINDOW):
    r"""The graph of the words of a text: an edge for each pair that occurs together.

    Edges carry ``weight``, the count c_ij, and ``pmi``, the pointwise mutual information

    .. math:: \ln \frac{c_{ij} \, N}{c_i \, c_j}, \qquad c_i = \sum_j c_{ij}, \quad
              N = \sum_i c_i.

    Parameters
    ----------
    words : Words
    window : int
        Largest distance in words.

    Returns
    -------
    networkx.Graph
        One node per kind of word, by its text, in order of appearance.

    Raises
    ------
    MissingDependency
        If networkx is not installed.
    """
    graph = require("networkx").Graph(window=window)
    graph.add_nodes_from(words.kinds)
    first, second, count = pair_counts(words.kind, len(words.kinds), window)
    degree = np.bincount(first, count, len(words.kinds)) + np.bincount(
        second, count, len(words.kinds)
    )
    pmi = np.log(count * degree.sum() / (degree[first] * degree[second]))
    for a, b, weight, information in zip(first, second, count, pmi, strict=True):
        graph.add_edge(words.kinds[a], words.kinds[b], weight=int(weight), pmi=float(information))
    return graph


def centralities(graph):
    """How central each word is.

    Returns
    -------
    DataFrame
        word, and :data:`CENTRALITIES`: the weighted degree (co-occurrences), the number of
        different neighbours, the mean PMI with them (0 without any), PageRank on counts
        (damping 0.85) and the core number (largest k such that the word is in a subgraph where
        all have k neighbours or more).
    """
    networkx = require("networkx")
    table = pd.DataFrame({"word": list(graph)})
    if not len(table):
        return table.reindex(columns=["word", *CENTRALITIES])
    weighted, plain = dict(graph.degree(weight="weight")), dict(graph.degree())
    information = dict(graph.degree(weight="pmi"))
    table["cooccurrences"] = table.word.map(weighted)
    table["neighbours"] = table.word.map(plain)
    table["mean_pmi"] = table.word.map(lambda word: information[word] / max(plain[word], 1))
    table["pagerank"] = table.word.map(networkx.pagerank(graph, weight="weight"))
    table["core"] = table.word.map(networkx.core_number(graph))
    return table

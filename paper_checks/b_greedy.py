"""Part B, theorems: what greedy reaches, with and without errors."""

import itertools
import math

import numpy as np

from paper_checks.finding import ASSUMING, CheckFinding, judge
from paper_checks.subsets import (
    all_functions,
    as_set,
    coverage_functions,
    is_monotone,
    is_submodular,
    modular,
    shown,
)
from paper_checks.swaps import forgetful_instance

__all__ = [
    "cor_d18",
    "lemma_3_1",
    "lemma_d19",
    "thm_d17",
]

SHARE = 1 - 1 / math.e
WORST = (2, 3, 4)
"""Sizes k whose worst case is tried: its ratio is 1 - (1 - 1/k)^k, 0.684 at k = 4."""
LOSS = 2 - 1 / math.e
"""Of Corollary D.18: times k eps."""


def greedy_worst(functions, k, slack=0.0):
    """Least f(S_k) over every greedy run whose picks are within ``slack`` of the best gain.

    Returns
    -------
    worst : float [m]
    orders : list of tuple
        The picks, for each function those of its worst run.
    """
    wide = functions.astype(float)
    n = functions.shape[1].bit_length() - 1
    worst = np.full(len(functions), np.inf)
    orders = np.zeros((len(functions), k), dtype=int)
    for order in itertools.permutations(range(n), k):
        valid, mask = np.ones(len(functions), dtype=bool), 0
        for pick in order:
            outside = [j for j in range(n) if not mask >> j & 1]
            best = wide[:, [mask | 1 << j for j in outside]].max(axis=1)
            valid &= wide[:, mask | 1 << pick] >= best - slack
            mask |= 1 << pick
        lower = valid & (wide[:, mask] < worst)
        worst[lower] = wide[lower, mask]
        orders[lower] = order
    return worst, orders


def best_of_size(functions, k):
    """float [m]: max of f over sets of exactly k elements."""
    masks = [mask for mask in range(functions.shape[1]) if mask.bit_count() == k]
    return functions[:, masks].max(axis=1).astype(float)


def _greedy_fails(functions, slack_of, loss_of, ks):
    """The smallest counterexample to f(S_k) >= (1 - 1/e) best - loss, or None."""
    found = None
    for k in ks:
        for eps in slack_of:
            worst, orders = greedy_worst(functions, k, 2 * eps)
            best = best_of_size(functions, k)
            short = SHARE * best - loss_of(k, eps) - worst
            for row in np.flatnonzero(short > 1e-9):
                size = np.abs(functions[row].astype(int)).sum()
                if found is None or size < found[0]:
                    found = (
                        size,
                        {
                            "k": k,
                            "eps": eps,
                            "f": shown(functions[row]),
                            "picks": [int(j) + 1 for j in orders[row]],
                            "f(S_k)": float(worst[row]),
                            "best of k elements": float(best[row]),
                        },
                    )
    return None if found is None else found[1]


def _least_ratio(functions, ks):
    """Least f(S_k) / best over the functions, for exact greedy."""
    ratios = []
    for k in ks:
        best = best_of_size(functions, k)
        ratios.append((greedy_worst(functions, k)[0][best > 0] / best[best > 0]).min())
    return float(min(ratios))


def thm_d17() -> CheckFinding:
    """Greedy on monotone submodular f, with and without f(empty) >= 0."""
    anything = _any_sign_family()
    printed = _greedy_fails(anything, (0,), _no_loss, (1, 2))
    normalised, covering = _normalised_family(), coverage_functions(4)
    remedied = _greedy_fails(normalised, (0,), _no_loss, (1, 2, 3))
    remedied = remedied or _greedy_fails(covering, (0,), _no_loss, (2, 3))
    for k in WORST:
        remedied = remedied or _greedy_fails(_worst_case(k), (0,), _no_loss, (k,))
    worst_ratio = min(_least_ratio(normalised, (1, 2, 3)), _least_ratio(covering, (2, 3)))
    worst_ratio = min(worst_ratio, *(_least_ratio(_worst_case(k), (k,)) for k in WORST))
    verdict, remedy_holds = judge(printed, remedied, remedied=ASSUMING)
    return CheckFinding(
        verdict,
        "Holds where f(empty set) >= 0, the usual convention. Negative functions are excluded "
        f"nowhere in the statement, and fail. Worst ratio met: {worst_ratio:.4f} "
        f"(1 - 1/e = {SHARE:.4f}).",
        f"{len(anything)} monotone submodular functions on 2 elements with values -2..3; "
        f"{len(normalised)} on 3 elements with f(empty) = 0 and values 0..4; {len(covering)} "
        "coverage functions on 4 sets; the known worst cases for k = "
        f"{', '.join(map(str, WORST))}; "
        "every tie-break of greedy",
        {},
        printed,
        remedy_holds,
    )


def _worst_case(k):
    """Coverage on which greedy reaches exactly 1 - (1 - 1/k)^k, as values by mask: [1, 2**(2k)].

    Cells in k + 1 rows and k columns; greedy may take k rows, the best sets are the columns
    (Hochbaum, Pathria 1998).
    """
    weight = np.array([(k - 1) ** row * k ** max(k - row, 1) for row in range(k + 1)])
    masks = np.arange(2 ** (2 * k))
    rows = (masks[:, None] >> np.arange(k)) & 1
    columns = ((masks[:, None] >> np.arange(k, 2 * k)) & 1).sum(axis=1)
    whole = np.column_stack([rows, np.zeros_like(columns)])
    # A row that is taken is covered whole, another one in the columns that are.
    covered = np.where(whole == 1, k, columns[:, None])
    return (covered * weight).sum(axis=1)[None]


def _two_looks(k, eps):
    """k elements of worth 2 eps beside k of worth nothing, which an oracle can make look alike."""
    worth = [0.0] * k + [2 * eps] * k
    return np.array(modular(worth), dtype=float)[None]


def _no_loss(k, eps):
    return 0.0


def _any_sign_family():
    """All monotone submodular functions on 2 elements, integer values -2..3."""
    functions = all_functions(2, -2, 3)
    return functions[is_monotone(functions) & is_submodular(functions)]


def _normalised_family():
    """All monotone submodular functions on 3 elements, f(empty) = 0, integer values 0..4."""
    rest = np.array(list(itertools.product(range(5), repeat=7)), dtype=np.int8)
    functions = np.concatenate([np.zeros((len(rest), 1), dtype=np.int8), rest], axis=1)
    return functions[is_monotone(functions) & is_submodular(functions)]


def cor_d18() -> CheckFinding:
    """Greedy whose marginals are off by at most eps: every run such an oracle can cause."""
    functions = _normalised_family()
    levels = (0.25, 0.5, 1.0, 2.0)

    def printed_loss(k, eps):
        return k * LOSS * eps

    def sharper_loss(k, eps):
        return 2 * k * eps * (1 - (1 - 1 / k) ** k)

    anything = _any_sign_family()
    printed = _greedy_fails(anything, (0.125,), printed_loss, (1, 2))
    covering = coverage_functions(4)
    remedied = _greedy_fails(functions, levels, printed_loss, (1, 2, 3))
    remedied = remedied or _greedy_fails(covering, levels, printed_loss, (2, 3))
    for k in (1, 2, 3):
        remedied = remedied or _greedy_fails(_two_looks(k, 1.0), (1.0,), printed_loss, (k,))
    sharper = _greedy_fails(functions, levels, sharper_loss, (1, 2, 3))
    verdict, remedy_holds = judge(printed, remedied, remedied=ASSUMING)
    return CheckFinding(
        verdict,
        "Where f(empty set) >= 0 no run breaks the bound; negative functions break it as they "
        "break Theorem D.17. An error of eps in each marginal makes a pick worse by at most 2 eps; "
        "unrolling gives f(S_k) >= (1-q) opt - 2k eps (1-q) with q = (1-1/k)^k, which implies the "
        f"printed bound where f >= 0 and survives too: {sharper is None}.",
        f"{len(anything)} monotone submodular functions on 2 elements (values -2..3, eps = 1/8); "
        f"{len(functions)} on 3 elements with f(empty) = 0 (values 0..4) and {len(covering)} "
        f"coverage functions on 4 sets, eps = {', '.join(map(str, levels))}; every choice that "
        "some oracle within eps can cause",
        {},
        printed,
        remedy_holds,
    )


def lemma_3_1() -> CheckFinding:
    """Greedy without a size limit: near-optimal for monotone f; for others?"""
    functions = all_functions(3, 0, 3)
    functions = functions[(functions[:, 0] == 0) & is_submodular(functions)]
    growing = functions[is_monotone(functions)]
    printed = _unlimited_greedy_fails(functions)
    remedied = _unlimited_greedy_fails(growing)
    limited = _greedy_fails(growing, (0,), _no_loss, (1, 2, 3))
    verdict, remedy_holds = judge(printed, remedied or limited, remedied=ASSUMING)
    return CheckFinding(
        verdict,
        "With f monotone the claim is Theorem D.17 when S has k elements, and is trivial without "
        "any limit: greedy then ends with every useful token, the optimum itself. The statement "
        "does not say monotone; without it greedy can stop far from the best set.",
        f"{len(functions)} submodular functions on 3 elements with f(empty) = 0 and values 0..3, "
        f"{len(growing)} of them monotone; greedy stops when no gain is positive; all tie-breaks",
        {},
        printed,
        remedy_holds,
    )


def _unlimited_greedy_fails(functions):
    """A function on which some greedy run without limit ends below (1 - 1/e) of the best set."""
    for values in sorted(functions.astype(int).tolist(), key=sum):
        best = max(values)
        for final, picks in _greedy_ends(values, 0, []):
            if values[final] < SHARE * best:
                return {
                    "f": shown(values),
                    "picks, until no gain is positive": picks,
                    "f(S)": values[final],
                    "best set": as_set(values.index(best)),
                    "its value": best,
                }
    return None


def _greedy_ends(values, mask, picks):
    n = len(values).bit_length() - 1
    gains = {j: values[mask | 1 << j] - values[mask] for j in range(n) if not mask >> j & 1}
    top = max(gains.values(), default=0)
    if top <= 0:
        yield mask, picks
        return
    for j, gain in gains.items():
        if gain == top:
            yield from _greedy_ends(values, mask | 1 << j, [*picks, j + 1])


def lemma_d19() -> CheckFinding:
    """One swap by f~ instead of f: how much is lost; and is (1-1/e) opt reached at all?"""
    printed = forgetful_instance()
    wrong, tried, most = None, 0, 0.0
    family = all_functions(2, 0, 3)
    for f, g in itertools.product(family.astype(int), repeat=2):
        # S = {1}, the newcomer is 2; X runs over the subsets of {1, 2}, measured from f(S).
        gap = np.abs((g - g[0b01]) - (f - f[0b01])).max()
        left = {1: 0b10, 2: 0b01}
        exact = max(f[mask] for mask in left.values())
        top = max(g[mask] for mask in left.values())
        chosen = min(f[mask] for mask in left.values() if g[mask] == top)
        tried += 1
        most = max(most, (exact - chosen) / gap if gap else float(exact > chosen))
        if exact - chosen > 2 * gap and wrong is None:
            wrong = {"f": shown(f), "f~": shown(g)}
    verdict, remedy_holds = judge(printed, wrong, remedied=ASSUMING)
    return CheckFinding(
        verdict,
        "A swap chosen by f~ is worse than the one chosen by f by at most twice eps/(2n), that is "
        f"eps/n <= eps (largest loss met: {most:.2f} times eps/(2n)). So the lemma holds as a "
        "statement about the difference. That the exact swap reaches (1-1/e) opt_i is a separate "
        "assumption: swaps on one fixed monotone submodular function can end below it.",
        f"{tried} pairs of functions on S and the newcomer (|S| = 1, values 0..3), all tie-breaks; "
        "for the second point coverage of eight weighted points by six tokens, k = 2, weights 1..9",
        {},
        printed,
        remedy_holds,
    )

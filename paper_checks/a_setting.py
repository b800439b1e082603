"""Part A: the eviction policy, attention under a cache, and the two algorithms."""

import functools
import itertools
import math

import numpy as np

from h2o_theory.attention import renormalise
from h2o_theory.policies import make_policy
from h2o_theory.testing import random_rows, schedule_of
from paper_checks.algorithms import (
    algorithm_1,
    algorithm_2,
    intended,
    kept_mass,
    masked_row,
)
from paper_checks.finding import ASSUMING, FAILS, HOLDS, CheckFinding, judge
from paper_checks.recorded import committed_trace, described, heads, interval_text
from paper_checks.subsets import is_submodular, modular

__all__ = ["alg_1", "alg_2", "def_2_1", "def_2_2", "def_4_3", "remark_d14"]

SHARE = 0.1
"""Budget of the recorded runs, as a share of the tokens."""
POLICIES = ("h2o", "heavy", "recent", "sink", "tova", "lru")
RUNS = 150
"""Random runs of an algorithm."""


def def_2_1() -> CheckFinding:
    """Do sequences allowed by the definition ever take an evicted token back?"""
    printed = _first_readmission(newcomer_only=False)
    remedied = _first_readmission(newcomer_only=True)
    verdict, remedy_holds = judge(printed, remedied, remedied=ASSUMING)
    rows, budget, kept = random_rows(np.random.default_rng(0), 2, 60), 9, 0
    for name in POLICIES:
        caches = _visible(schedule_of(make_policy(name), rows, budget))
        kept += all(
            len(now) == min(i + 1, budget) and len(now - before) <= 1
            for i, (before, now) in enumerate(itertools.pairwise([set(), *caches]))
        )
    return CheckFinding(
        verdict,
        "Both bounds alone let a cache fetch back what it evicted; with the newcomer as the only "
        f"entry that may be added they do not. {kept} of {len(POLICIES)} policies of this project "
        f"keep to both ({', '.join(POLICIES)}).",
        "every sequence S_1, S_2, .. with k = 1 and 2, n <= 4; policies on a random instance "
        f"with T = 60, k = {budget}",
        {},
        printed,
        bool(remedy_holds and kept == len(POLICIES)),
    )


def _visible(schedule):
    return [{j for j in range(t + 1) if schedule[j] >= t} for t in range(len(schedule))]


def _first_readmission(newcomer_only):
    """Smallest sequence within the definition in which a token returns after it left, or None."""
    for n, k in ((2, 1), (3, 1), (3, 2), (4, 1), (4, 2)):
        for caches in _sequences(n, k, newcomer_only):
            for i in range(1, n):
                back = [j for j in caches[i] if j not in caches[i - 1] and j < i + 1]
                if back and any(back[0] in cache for cache in caches[: i - 1]):
                    shown = [sorted(cache) for cache in caches]
                    return {"k": k, "S_1, S_2, ..": shown, "token that returns": back[0]}
    return None


def _sequences(n, k, newcomer_only):
    """All S_1 .. S_n with |S_i| = min(i, k) and at most one element that S_{i-1} lacks."""
    choices = [
        [set(chosen) for chosen in itertools.combinations(range(1, i + 1), min(i, k))]
        for i in range(1, n + 1)
    ]
    for caches in itertools.product(*choices):
        added = [now - before for before, now in itertools.pairwise([set(), *caches])]
        small = all(len(new) <= 1 for new in added)
        if small and (not newcomer_only or all(new <= {i + 1} for i, new in enumerate(added))):
            yield caches


def def_2_2() -> CheckFinding:
    """Does o_i, as printed, add up to one; and does it with the indicator subtracted as in D_i?"""
    printed, tried = _first_row_not_normalised(subtract=False)
    remedied, all_tried = _first_row_not_normalised(subtract=True)
    verdict, remedy_holds = judge(printed, remedied)
    rng = np.random.default_rng(0)
    on_cache = remedied_gap = 0.0
    for _ in range(200):
        n, d = int(rng.integers(2, 30)), int(rng.integers(1, 8))
        keys, query = rng.normal(size=(n, d)), rng.normal(size=d)
        visible = rng.random(n) < 0.5
        visible[-1] = True
        full = np.exp(keys @ query)
        want = renormalise(full / full.sum(), visible)
        held = np.flatnonzero(visible)
        got = masked_row(query, keys, held, subtract=False)
        on_cache = max(on_cache, np.abs(got - want)[held].max())
        got = masked_row(query, keys, held, subtract=True)
        remedied_gap = max(remedied_gap, np.abs(got - want).max())
    return CheckFinding(
        verdict,
        "On the entries of the cache the printed o_i is the normalised attention over the cache. "
        "Each absent entry however is 1/D_i, not 0, so the vector of length i sums to "
        "1 + (i - |S_i|)/D_i. Subtracting the indicator in o_i too, as Algorithm 1 does, mends it.",
        f"{all_tried} integer instances (entries -1..1, n <= 3, d = 1, every S that holds i) in "
        f"order of size, the first counterexample being number {tried}; 200 random ones with "
        "n < 30 against softmax over the cache",
        {
            "largest deviation on the cache": float(on_cache),
            "largest deviation of the mended vector": float(remedied_gap),
        },
        printed,
        bool(remedy_holds and remedied_gap < 1e-12),
    )


def _first_row_not_normalised(subtract):
    tried = 0
    for n in (1, 2, 3):
        numbers = sorted(itertools.product((0, 1, -1), repeat=n + 1), key=lambda x: np.abs(x).sum())
        for query, *keys in numbers:
            for chosen in itertools.product((False, True), repeat=n - 1):
                held = [j for j in range(n) if [*chosen, True][j]]
                key_rows = np.array(keys, dtype=float)[:, None]
                row = masked_row(np.array([float(query)]), key_rows, held, subtract=subtract)
                tried += 1
                if abs(row.sum() - 1) > 1e-12:
                    return {
                        "i": n,
                        "Q_i": query,
                        "K": keys,
                        "S_i": [j + 1 for j in held],
                        "o_i": row.tolist(),
                        "sum of o_i": float(row.sum()),
                    }, tried
    return None, tried


def alg_1() -> CheckFinding:
    """Does any token after the first k ever enter the cache of Algorithm 1?"""
    frozen = 0
    for queries, keys, k in _random_inputs(1):
        frozen += algorithm_1(queries, keys, k)[-1] == tuple(range(k))
    printed, tried = _not_the_lightest(algorithm_1)
    repaired, all_tried = _not_the_lightest(functools.partial(intended, rows="last"))
    verdict, remedy_holds = judge(printed, repaired)
    recorded = _recorded(algorithm_1)
    return CheckFinding(
        verdict,
        "o_i is formed with S_(i-1), which lacks i, so its own entry is exp(0) - 1 = 0, the "
        "least of all: token i is evicted at every step i > k and the cache stays {1..k} "
        f"({frozen} of {RUNS} random runs, {recorded['frozen']} of {recorded['heads']} recorded "
        "heads). Normalised over S_(i-1) + {i} the step evicts the least attention, as meant.",
        f"{all_tried} integer instances (entries 0..2, d = 1, n <= 3) in order of size, the first "
        f"counterexample being number {tried}; {RUNS} random runs; {described()}",
        {
            "retained mass as printed": recorded["printed"],
            "retained mass of the repair with accumulated scores": recorded["intended"],
        },
        printed,
        remedy_holds and frozen == RUNS,
    )


def alg_2() -> CheckFinding:
    """Does Algorithm 2 look at the newcomer's key, and what does its cache then hold?"""
    blind = admitted = steps = 0
    rng = np.random.default_rng(3)
    for queries, keys, k in _random_inputs(2):
        caches = algorithm_2(queries, keys, k)
        other = keys.copy()
        other[-1] = rng.normal(size=keys.shape[1]) * 50
        blind += algorithm_2(queries, other, k)[-1] == caches[-1]
        admitted += sum(i in cache for i, cache in enumerate(caches) if i >= k)
        steps += len(keys) - k
    printed, tried = _not_the_lightest(algorithm_2)
    repaired, all_tried = _not_the_lightest(functools.partial(intended, rows="late"))
    verdict, remedy_holds = judge(printed, repaired)
    recorded = _recorded(algorithm_2)
    return CheckFinding(
        verdict,
        "The newcomer's score is 1/D_i whatever its key is: changing the last key never changed "
        f"the last cache ({blind} of {RUNS} runs). Of random keys {admitted} of {steps} enter, of "
        f"recorded ones a share of {recorded['admitted']}; {recorded['frozen']} of "
        f"{recorded['heads']} recorded heads keep the first k for ever. Algorithm 1 subtracts the "
        "1 that is left in here, so the two also contradict each other.",
        f"{all_tried} integer instances (entries 0..2, d = 1, n <= 3) in order of size, the first "
        f"counterexample being number {tried}; {RUNS} random runs; {described()}",
        {
            "retained mass as printed": recorded["printed"],
            "retained mass of the repair with accumulated scores": recorded["intended"],
        },
        printed,
        remedy_holds and blind == RUNS,
    )


def _random_inputs(seed):
    rng = np.random.default_rng(seed)
    for _ in range(RUNS):
        n, d = int(rng.integers(3, 40)), int(rng.integers(1, 9))
        queries, keys = rng.normal(size=(2, n, d)) * rng.choice([0.3, 1.0, 3.0])
        yield queries, keys, int(rng.integers(1, n))


def _not_the_lightest(algorithm):
    """First eviction, at i = k + 1, of a token whose weight in row i over S_k + {i} is not least.

    The weights are the softmax over all k + 1 keys, the newcomer's real one included; at the
    first eviction both algorithms score by this row alone. Where several weights are least, any
    of them may leave.
    """
    tried = 0
    for n in (2, 3):
        for numbers in sorted(itertools.product((0.0, 1.0, 2.0), repeat=n + 1), key=sum):
            queries = np.zeros((n, 1))
            queries[-1] = numbers[0]
            keys = np.array(numbers[1:])[:, None]
            tried += 1
            cache = algorithm(queries, keys, n - 1)[-1]
            victim = (set(range(n)) - set(cache)).pop()
            weights = _softmax(keys[:, 0] * queries[-1, 0])
            if weights[victim] > weights.min():
                return {
                    "k": n - 1,
                    "Q": queries[:, 0].tolist(),
                    "K": keys[:, 0].tolist(),
                    "evicted at i = k + 1": victim + 1,
                    "attention of query k + 1 over all tokens": weights.tolist(),
                }, tried
    return None, tried


def _softmax(logits):
    powers = np.exp(logits - logits.max())
    return powers / powers.sum()


def _recorded(algorithm):
    """Run an algorithm and its repair on the first query head of every recorded kv_head."""
    trace = committed_trace()
    k = int(SHARE * trace.tokens)
    frozen, printed, repaired, entered = 0, [], [], []
    for layer, head in heads():
        queries = np.asarray(trace.queries(layer, head)[0], dtype=float)
        queries = queries * trace.layer(layer).scaling
        keys = np.asarray(trace.keys(layer, head), dtype=float)
        rows = trace.rows(layer, head)[0]
        caches = algorithm(queries, keys, k)
        frozen += caches[-1] == tuple(range(k))
        entered.append(np.mean([i in cache for i, cache in enumerate(caches) if i >= k]))
        printed.append(kept_mass(rows, caches))
        repaired.append(kept_mass(rows, intended(queries, keys, k)))
    return {
        "heads": len(printed),
        "frozen": frozen,
        "printed": interval_text(printed),
        "intended": interval_text(repaired),
        "admitted": interval_text(entered),
    }


def remark_d14() -> CheckFinding:
    """F(T) = h(sum of scores): submodular for every concave h; does h change the eviction?"""
    counterexample, tried = None, 0
    shifts = 0
    for steps in itertools.product(range(4), repeat=4):
        if list(steps) != sorted(steps, reverse=True):
            continue
        h = np.concatenate([[0], np.cumsum(steps)])
        for weights in itertools.product(range(3), repeat=3):
            if sum(weights) >= len(h):
                continue
            values = h[modular(weights)]
            tried += 1
            if not is_submodular(values[None])[0] and counterexample is None:
                counterexample = {"h(0), h(1), ..": h.tolist(), "scores": list(weights)}
            if all(steps):
                shifts += _victims(values) != _victims(modular(weights))
    verdict, _ = judge(counterexample, None)
    other, ties, steps = _rounded_choices()
    return CheckFinding(
        verdict if shifts == other == 0 else FAILS,
        "Concave h of a sum of non-negative scores is submodular in every case. A strictly "
        f"increasing h never changes which tokens may be evicted ({shifts} differences); a merely "
        "non-decreasing one only adds ties. So h decides nothing but ties by rounding: in float64, "
        f"with sqrt(z+1) and log(z+1), the least score is always among the best choices ({other} "
        f"exceptions in {steps}), but no longer the only one in {ties}.",
        f"{tried} cases: every non-decreasing concave integer h with steps 0..3 on 0..4, three "
        f"scores 0..2; {steps} random choices among 2 to 12 scores",
        {},
        counterexample,
    )


def _rounded_choices():
    """Steps at which h in float64 rules out the least score, at which it ties, and all steps."""
    rng = np.random.default_rng(4)
    other = ties = steps = 0
    for _ in range(1000):
        scores = np.exp(rng.normal(size=rng.integers(2, 13)) * rng.choice([0.3, 3.0, 10.0]))
        left = [math.fsum(np.delete(scores, v)) for v in range(scores.size)]
        for h in (math.sqrt, math.log):
            values = np.array([h(total + 1) for total in left])
            best = np.flatnonzero(values == values.max())
            steps += 1
            other += int(scores.argmin()) not in best
            ties += best.size > 1
    return other, ties, steps


def _victims(values):
    """The tokens v for which F(G without v) is largest, G being the whole ground set."""
    n = int(np.log2(values.shape[-1]))
    whole = 2**n - 1
    left = [values[whole ^ (1 << v)] for v in range(n)]
    return {v for v in range(n) if left[v] == max(left)}


def def_4_3() -> CheckFinding:
    """Greedy eviction: best over one step by definition; is it the best over several steps?"""
    wrong = tried = 0
    for weights in itertools.product(range(4), repeat=4):
        tried += 1
        least = {v for v in range(4) if weights[v] == min(weights)}
        wrong += _victims(modular(weights)) != least
    myopic = _greedy_loses()
    return CheckFinding(
        HOLDS if wrong == 0 else FAILS,
        "For a sum of scores the rule evicts the least score, which is the best single eviction. "
        "It says nothing about several steps: the smallest instance on which it retains less than "
        "another schedule is given.",
        f"{tried} integer instances of the single step (four scores 0..3); schedules: every "
        "integer row instance with entries 0..2, n = 3, k = 1 retained, in order of size",
        {"smallest instance on which greedy eviction is not best over time": myopic},
    )


def _greedy_loses():
    """Rows a[i] (integers) on which keeping the larger entry of each row is not optimal, k = 1."""
    for numbers in sorted(itertools.product(range(3), repeat=5), key=sum):
        row_2, row_3 = numbers[:2], numbers[2:]
        if row_2[0] == row_2[1]:
            continue
        greedy = 0 if row_2[0] > row_2[1] else 1
        best = max((0, 1), key=lambda held: row_3[held])
        if row_3[greedy] < row_3[best]:
            return {
                "row 2": list(row_2),
                "row 3": list(row_3),
                "greedy keeps": greedy + 1,
                "and finds in row 3": row_3[greedy],
                "keeping the other finds": row_3[best],
            }
    return None

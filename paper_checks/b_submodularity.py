"""Part B, definitions: what submodularity is, and the rule of swaps."""

import itertools

import numpy as np

from paper_checks.finding import FAILS, HOLDS, CheckFinding, judge
from paper_checks.subsets import (
    all_functions,
    as_set,
    coverage_functions,
    is_monotone,
    is_submodular,
    lattice_holds,
    modular,
    pairs_hold,
    shown,
)
from paper_checks.swaps import swap_run

__all__ = [
    "def_d1",
    "def_d2",
    "def_d20",
    "def_d3",
    "def_d4",
    "remark_d21",
]


def def_d1() -> CheckFinding:
    """Do the three conditions for submodularity agree on every small function?"""
    functions = all_functions(3, 0, 3)
    answers = np.stack([check(functions) for check in (is_submodular, lattice_holds, pairs_hold)])
    differ = np.flatnonzero((answers != answers[0]).any(axis=0))
    counterexample = shown(functions[differ[0]]) if differ.size else None
    verdict, _ = judge(counterexample, None)
    return CheckFinding(
        verdict,
        f"The three conditions agree on every function: {int(answers[0].sum())} are submodular "
        f"by all of them, the others by none.",
        f"all {len(functions)} functions on 3 elements with integer values 0..3",
        {},
        counterexample,
    )


def def_d2() -> CheckFinding:
    """Are the examples monotone and submodular?"""
    families = {
        "linear, weights 0..4 on 4 elements": np.array(
            [modular(w) for w in itertools.product(range(5), repeat=4)]
        ),
        "budget-additive, weights 0..3 on 4 elements, B = 0..6": np.array(
            [
                np.minimum(cap, modular(w))
                for w in itertools.product(range(4), repeat=4)
                for cap in range(7)
            ]
        ),
        "weighted coverage, 4 sets, one point per type, weights 0..1": coverage_functions(4),
        "weighted coverage, 3 sets, weights 0..3": coverage_functions(3, range(4)),
    }
    counterexample = None
    for name, functions in families.items():
        bad = np.flatnonzero(~(is_monotone(functions) & is_submodular(functions)))
        if bad.size:
            counterexample = {"family": name} | shown(functions[bad[0]])
    verdict, _ = judge(counterexample, None)
    total = sum(map(len, families.values()))
    return CheckFinding(
        verdict,
        f"All {total} are monotone and submodular. (Weights must not be negative, as printed.)",
        "; ".join(f"{len(functions)} {name}" for name, functions in families.items()),
        {},
        counterexample,
    )


def def_d3() -> CheckFinding:
    """Strong submodularity: is it more than submodularity of each F(Z, .) by itself?"""
    functions = all_functions(2, 0, 2)
    good = functions[is_submodular(functions)]
    pairs = len(good) ** 2
    return CheckFinding(
        HOLDS if len(good) else FAILS,
        "The definition asks for submodularity of F(Z, .) for each Z separately and ties "
        f"different Z together in no way: any of the {len(good)} submodular functions on 2 "
        "elements may be combined with any other. The guarantee needs such a tie, which its "
        "two dynamic conditions supply.",
        f"all {len(functions)} functions on 2 elements with values 0..2; {pairs} pairs",
    )


def def_d4() -> CheckFinding:
    """Does strong submodularity imply the dynamic kind; and the other way round?"""
    functions = all_functions(3, 0, 2)
    strong = is_submodular(functions)
    broken = None
    for z in range(8):
        dynamic = _diminishing_above(functions, z)
        bad = np.flatnonzero(strong & ~dynamic)
        if bad.size and broken is None:
            broken = {"Z": as_set(z)} | shown(functions[bad[0]])
    verdict, _ = judge(broken, None)
    only_dynamic = functions[_diminishing_above(functions, 0b001) & ~strong]
    smallest = only_dynamic[only_dynamic.astype(int).sum(axis=1).argmin()]
    return CheckFinding(
        verdict,
        "For each fixed Z and i the strong condition contains the dynamic one. The converse fails: "
        "the dynamic condition looks only at sets that contain Z.",
        f"all {len(functions)} functions F(Z, i, .) on 3 elements with values 0..2, all 8 sets Z",
        {"dynamic for Z = {1} but not submodular": shown(smallest)},
        broken,
    )


def _diminishing_above(functions, z):
    """bool [m]: diminishing returns for Z in X in Y only."""
    good = np.ones(len(functions), dtype=bool)
    wide = functions.astype(float)
    size = functions.shape[1]
    for small, large in itertools.product(range(size), repeat=2):
        if small & z == z and small & large == small:
            for j in range(size.bit_length() - 1):
                bit = 1 << j
                if not large & bit:
                    gain = wide[:, small | bit] - wide[:, small]
                    good &= gain >= wide[:, large | bit] - wide[:, large]
    return good


def def_d20() -> CheckFinding:
    """Does the swap rule keep to the eviction policy of Definition 2.1?"""
    functions = coverage_functions(3, range(3))
    runs, bad = 0, None
    for values in functions.tolist():
        for k in (1, 2):
            for caches in swap_run(values, k):
                runs += 1
                for before, now in itertools.pairwise([0, *caches]):
                    if now.bit_count() > k or (now & ~before).bit_count() > 1:
                        bad = {"k": k, "f": shown(values), "S": [as_set(m) for m in caches]}
    verdict, _ = judge(bad, None)
    return CheckFinding(
        verdict,
        "Every run keeps |S| <= k and adds at most the newcomer, which may itself be the one to "
        "leave. (The rule makes S_(i+1) from S_i and token i; Definition 2.1 and Algorithm 1 make "
        "S_i from S_(i-1) and token i: the same rule, counted from another start.)",
        f"{runs} runs: all {len(functions)} coverage functions on 3 sets with weights 0..2, "
        "k = 1 and 2, every tie-break",
        {},
        bad,
    )


def _shifted(functions, masks):
    """f(X) - f(S_i) with S_i = {1, 2}."""
    return functions[:, masks] - functions[:, [0b011]]


def remark_d21() -> CheckFinding:
    """Is the argmax the same with and without subtracting f(S_i)?"""
    functions = all_functions(3, 0, 2).astype(int)
    masks = np.array([0b110, 0b101, 0b011])
    plain, shifted = functions[:, masks], _shifted(functions, masks)
    same = (plain == plain.max(axis=1, keepdims=True)) == (
        shifted == shifted.max(axis=1, keepdims=True)
    )
    differ = np.flatnonzero(~same.all(axis=1))
    counterexample = shown(functions[differ[0]]) if differ.size else None
    verdict, _ = judge(counterexample, None)
    return CheckFinding(
        verdict,
        "Subtracting a constant changes no argmax, ties included.",
        f"all {len(functions)} functions on 3 elements with values 0..2, S_i = {{1,2}}, i = 3",
        {},
        counterexample,
    )

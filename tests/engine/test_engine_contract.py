"""Properties that hold for every registered policy, whatever its rule."""

import dataclasses
import os
import subprocess
import sys

import numba
import numpy as np
import pytest
import reference
from small_traces import small_trace, trace_with_keys

import h2o_theory as ht
import h2o_theory.policies
from h2o_theory import PlainPolicy
from h2o_theory.attention import rotate
from h2o_theory.errors import BadArgument, BadBudget, ContractBroken
from h2o_theory.kernels import code_digest
from h2o_theory.live.admission import admit_live_policies
from h2o_theory.policies import (
    CompiledPolicy,
    Context,
    KnownSchedule,
    Parts,
    Tensors,
    available,
    make_policy,
    registry,
)
from h2o_theory.policies.rules.h2o import H2O
from h2o_theory.policies.rules.heavy import Heavy
from h2o_theory.policies.rules.key_norm import rate_feature
from h2o_theory.testing import check_policy, frozen_since, random_tensors, schedule_of
from h2o_theory.trace import Trace

DECIDING = sorted(name for name, cls in available().items() if not issubclass(cls, KnownSchedule))
QUERIES = ("queries", "unrotated")
ALL = "full,recent,sink,random,random:form=fresh,h2o,h2o:rows=raw,heavy,tova,tova:shared=kv_head,"
ALL += "lru,lfu,greedy,belady,belady_mass,optimum"


def evict(policy, rows, budget, prefill=0, seed=0, tensors=None):
    return schedule_of(policy, rows, budget, prefill=prefill, seed=seed, tensors=tensors)


@pytest.mark.parametrize("name", DECIDING)
def test_contract(name):
    report = check_policy(name)
    assert report.policy == name and len(report.checks) == 10


VARIANTS = """
h2o:rows=raw,recent=0.2 h2o:score=mean,rows=raw h2o:decay=0.9 h2o:group=max h2o:group=first
random:form=fresh,n_sink=0 tova:shared=kv_head heavy:rows=raw lrfu:rows=raw,lam=1 vatp:rows=raw
spatten:rows=raw keyformer:form=code keyformer:noise=0 algorithm1:reading=accumulated
algorithm2:reading=intent lru:access=top_m,threshold=3 lfu:access=relative lru_k:access=absolute
lrfu:access=uniform belady:form=count belady:access=relative belady_mass:w=3
snapkv:window=3,pool=max coverage:rows=renormalised,window=5 buzz:stride=2 greedy:h=cap
sink:positions=slot
""".split()


@pytest.mark.parametrize("text", VARIANTS)
def test_contract_of_variants(text):
    assert check_policy(text).policy == text.partition(":")[0]


def test_contract_of_plain_policies():
    class Newest(PlainPolicy):
        name = "newest"

        def rate(self, t, positions):
            return positions

    class Unseeded(Newest):
        name = "unseeded"

        def rate(self, t, positions):
            return np.random.default_rng().random(len(positions))

    class Remembers(Newest):
        """Leaks what it saw in an earlier replay through a class attribute."""

        name, seen = "remembers", []

        def observe(self, t, positions, row):
            self.seen.append(float(row[0]))

        def rate(self, t, positions):
            return np.cos(len(self.seen) * (1 + positions))

    assert check_policy(Newest()).frozen_since is None
    for liar in (Unseeded(), Remembers()):
        with pytest.raises(ContractBroken, match=liar.name):
            check_policy(liar)


class FarSighted(H2O):
    name = "far_sighted"
    needs = "rows keys"

    def features(self, context):
        return context.tensors.keys[::-1]

    rate = rate_feature


class NotNested(H2O):
    name = "not_nested"
    nested = True


def test_a_replay_refuses_a_nested_policy_of_renormalised_rows():
    with pytest.raises(BadArgument, match="not_nested.*rows = 'raw'"):
        ht.replay(small_trace(), [NotNested()], "4,5")


class Dice(PlainPolicy):
    """Rolls dice that no seed determines."""

    name = "dice"

    def rate(self, t, positions):
        return np.random.default_rng().random(len(positions))


class LateDice(Dice):
    """Rolls them for the last rows alone."""

    def rate(self, t, positions):
        return super().rate(t, positions) if t > 25 else positions


class LooksBehindTheView(PlainPolicy):
    """What it is handed is a part of an array that holds the keys to come."""

    name = "looks_behind"
    needs = "rows keys"

    def rate(self, t, positions):
        last = self.keys.base.reshape(-1, self.keys.shape[-1])[-1]
        return self.keys[positions] @ last


def test_dice_are_no_foresight_and_foresight_is_no_dice():
    for liar, fault in (
        (Dice(), "not deterministic"),
        (LateDice(), "not deterministic"),
        (LooksBehindTheView(), "sees the future"),
    ):
        with pytest.raises(ContractBroken, match=fault):
            check_policy(liar)


@numba.njit(cache=True, nogil=True)
def observe_crowd(t, n, cache, row, settings):
    """Scores move with the number of entries, which differs from budget to budget."""
    for i in range(n):
        cache.score[i] += np.cos(n * (1.0 + cache.position[i])) * row[i]


class Crowded(Heavy):
    name = "crowded"
    observe = observe_crowd


class Partial(H2O):
    """A recent window for raw rows only."""

    name = "partial"

    def parts(self, budget):
        return super().parts(budget) if self.rows == "raw" else Parts(0, budget, 0)


@pytest.mark.parametrize(
    ("liar", "fault"),
    [
        (FarSighted(), "sees the future"),
        (NotNested(), "one pass"),
        (Crowded(rows="raw"), "one pass"),
        (Partial(), "raw and renormalised"),
    ],
)
def test_contract_catches_a_compiled_liar(liar, fault):
    with pytest.raises(ContractBroken, match=fault):
        check_policy(liar)


def test_contract_catches_a_plain_policy_that_mixes_heads_up():
    class Counts(PlainPolicy):
        """Counts, in a class attribute, how often another head came."""

        name, last, turn = "counts", 0, 0

        def start(self, context):
            if context.kv_head != Counts.last:
                Counts.last, Counts.turn = context.kv_head, Counts.turn + 1

        def rate(self, t, positions):
            return np.cos(self.turn + t * positions)

    with pytest.raises(ContractBroken, match="one head changes another"):
        check_policy(Counts())


def test_a_plain_policy_sees_the_tensors_that_have_arrived():
    class Shortest(PlainPolicy):
        name, needs = "shortest", "keys values"

        def observe(self, t, positions, row):
            assert len(self.keys) == len(self.values) == t + 1

        def rate(self, t, positions):
            return -np.linalg.norm(self.keys[positions], axis=1)

    assert "does not see the future" in check_policy(Shortest()).checks
    rows = reference.softmax_rows(np.random.default_rng(0), 2, 30)
    assert (evict(Shortest(), rows, 7) == evict(make_policy("key_norm"), rows, 7)).all()
    trace = trace_with_keys(layers=1)
    plain, shipped = (ht.replay(trace, [p], 8) for p in (Shortest(), "key_norm"))
    assert (plain.retained_mass == shipped.retained_mass).all()


def test_freeze_detector():
    assert check_policy("heavy").frozen_since is not None
    assert check_policy("h2o").frozen_since is None
    schedule = np.arange(20)
    schedule[:4] = 20
    assert frozen_since(schedule, 5) == 5
    schedule[2] = 9
    assert frozen_since(schedule, 5) == 10
    schedule[2] = 17
    assert frozen_since(schedule, 5) is None


@pytest.mark.parametrize("name", [n for n in DECIDING if available()[n].kind == "clairvoyant"])
def test_clairvoyant_policies_do_see_the_future(name):
    rng = np.random.default_rng(0)
    rows = reference.softmax_rows(rng, 1, 30)
    changed = rows.copy()
    changed[:, 15:] = reference.softmax_rows(rng, 1, 30)[:, 15:]
    before, after = evict(make_policy(name), rows, 5), evict(make_policy(name), changed, 5)
    assert (np.minimum(before, 15) != np.minimum(after, 15)).any()


def test_group_sum_and_mean_agree():
    rows = reference.softmax_rows(np.random.default_rng(6), 4, 40)
    mean = evict(make_policy("h2o"), rows, 8)
    assert (mean == evict(make_policy("h2o:group=sum"), rows, 8)).all()


def test_duplicated_query_heads_change_nothing():
    rng = np.random.default_rng(6)
    rows, tensors = reference.softmax_rows(rng, 1, 40), random_tensors(rng, 1, 40)
    doubled = {name: np.repeat(getattr(tensors, name), 2, axis=0) for name in QUERIES}
    doubled = dataclasses.replace(tensors, **doubled)
    for name in DECIDING:
        one = evict(make_policy(name), rows, 8, tensors=tensors)
        two = evict(make_policy(name), np.repeat(rows, 2, axis=0), 8, tensors=doubled)
        assert (one == two).all(), name


@pytest.mark.parametrize("prefill", [0, 1, 13])
def test_dominance_policy_optimum_topk(prefill):
    table = ht.replay(small_trace(), ALL, "1,2,10%,20%,39,40", prefill=prefill)
    caches = table[table.policy != "full"]
    assert (caches.approximation_ratio <= 1).all()
    assert (caches.topk_bound_ratio <= 1).all()
    assert (caches.realised_budget_max <= caches.budget_tokens).all()
    optimum = caches[caches.policy == "optimum"]
    assert (optimum.approximation_ratio == 1).all()
    assert np.allclose(optimum.retained_mass, optimum.optimum_mass, atol=1e-9)
    full = table[table.policy == "full"]
    assert full.approximation_ratio.isna().all() and np.allclose(full.retained_mass, 1)
    assert np.allclose(full.output_error, 0) and np.allclose(full.kl, 0)


def test_optimum_is_monotone_in_the_budget():
    table = ht.replay(small_trace(layers=1), "optimum", list(range(1, 41)))
    for _, head in table.groupby(["layer", "kv_head"]):
        mass = head.sort_values("budget_tokens").retained_mass.to_numpy()
        assert (np.diff(mass) >= -1e-12).all() and np.isclose(mass[-1], 1)


def test_results_do_not_depend_on_the_number_of_workers():
    one = ht.replay(small_trace(), ALL, "10%,20%", workers=1)
    three = ht.replay(small_trace(), ALL, "10%,20%", workers=3)
    assert one.drop(columns="seconds").equals(three.drop(columns="seconds"))


def test_seed_and_head_determine_random_draws():
    trace = small_trace()
    first, again = (ht.replay(trace, "random", 8, seed=1) for _ in range(2))
    other = ht.replay(trace, "random", 8, seed=2)
    assert first.retained_mass.equals(again.retained_mass)
    assert not np.allclose(first.retained_mass, other.retained_mass)
    streams = {
        make_policy("random").settings(Context(8, 40, layer=layer, kv_head=kv_head)).stream
        for layer in range(3)
        for kv_head in range(3)
    }
    assert len(streams) == 9


def test_static_random_is_nested_in_the_budget_and_fair():
    rows = reference.uniform_rows(1, 60)
    counts = np.zeros(60)
    for seed in range(300):
        small = evict(make_policy("random"), rows, 5, seed=seed)
        large = evict(make_policy("random"), rows, 9, seed=seed)
        assert (small <= large).all()
        counts += small >= 59
    # Reservoir sampling: each past position is in S_59 with probability 4/59; the last always is.
    assert counts[59] == 300
    past = counts[:59]
    assert past.sum() == 300 * 4
    assert past.max() < 300 * 4 / 59 + 6 * np.sqrt(300 * 4 / 59)


def test_layer_wide_tova_keeps_one_set_for_all_heads():
    trace = small_trace(layers=1)
    rows = np.concatenate([trace.rows(0, head) for head in range(2)])
    schedule = evict(make_policy("tova"), rows, 8)
    kept = reference.visible_sets(schedule)
    table = ht.replay(trace, "tova", 8)
    for kv_head in range(2):
        mean = trace.rows(0, kv_head).mean(axis=0)
        mass = np.mean([mean[t, s].sum() for t, s in enumerate(kept)])
        assert np.isclose(table[table.kv_head == kv_head].retained_mass.item(), mass)


def test_permuting_kv_heads_permutes_results():
    trace = small_trace(layers=1)
    rows = np.concatenate([trace.rows(0, head) for head in (1, 0)])[None]
    swapped = Trace.from_attention(rows, kv_heads=2)
    names = "h2o,heavy,lru,lfu,greedy,belady,belady_mass,tova,optimum"
    first, second = ht.replay(trace, names, 8), ht.replay(swapped, names, 8)
    for kv_head in range(2):
        left = first[first.kv_head == kv_head].retained_mass.to_numpy()
        right = second[second.kv_head == 1 - kv_head].retained_mass.to_numpy()
        # Rows are rescaled to sum to one on import, hence equal up to rounding only.
        assert np.allclose(left, right, atol=1e-12)


def test_a_set_for_the_whole_model_is_the_sum_of_all_heads():
    trace = small_trace()
    rows = np.concatenate([trace.rows(layer, head) for layer in range(2) for head in range(2)])
    kept = reference.visible_sets(evict(make_policy("spatten"), rows, 8))
    table = ht.replay(trace, "spatten", 8)
    for (layer, kv_head), cell in table.groupby(["layer", "kv_head"]):
        mean = trace.rows(layer, kv_head).mean(axis=0)
        mass = np.mean([mean[t, s].sum() for t, s in enumerate(kept)])
        assert np.isclose(cell.retained_mass.item(), mass)
    alone = ht.replay(trace, "spatten", 8, layers=[1])
    assert alone.retained_mass.tolist() == table[table.layer == 1].retained_mass.tolist()


TENSORS = ["vatp", "key_norm", "key_diff", "expected_attention", "algorithm2"]


@pytest.mark.parametrize("name", TENSORS)
def test_policies_that_look_at_tensors_get_those_of_their_head(name):
    trace = trace_with_keys(rope={"rope_theta": 100.0, "rope_type": "default"})
    table = ht.replay(trace, name, 9)
    for (layer, kv_head), cell in table.groupby(["layer", "kv_head"]):
        queries = trace.queries(layer, kv_head)
        tensors = Tensors(
            queries,
            rotate(queries, -np.arange(40), 100.0),
            trace.keys(layer, kv_head),
            trace.values(layer, kv_head),
            6**-0.5,
            (100.0, 6),
        )
        rows = trace.rows(layer, kv_head)
        kept = reference.visible_sets(evict(make_policy(name), rows, 9, tensors=tensors))
        mass = np.mean([rows[:, t, s].sum(axis=-1).mean() for t, s in enumerate(kept)])
        assert np.isclose(cell.retained_mass.item(), mass)


@pytest.mark.parametrize("name", TENSORS)
def test_policies_that_look_at_tensors_refuse_a_trace_without(name):
    attention = reference.softmax_rows(np.random.default_rng(0), 2, 20)[None]
    with pytest.raises(BadArgument, match=f"{name} on .*layer 0"):
        ht.replay(Trace.from_attention(attention), name, 8)


def test_an_unknown_rotary_embedding_is_refused():
    trace = trace_with_keys(rope={"rope_theta": 1e4, "rope_type": "llama3", "factor": 8.0})
    with pytest.raises(BadArgument, match="rope_type default"):
        ht.replay(trace, "expected_attention", 8)
    assert len(ht.replay(trace, "key_norm", 8)) == 4
    assert len(ht.replay(trace_with_keys(), "expected_attention", 8)) == 4  # none at all


def test_rotation_is_undone_and_turns_products_by_distance_alone():
    rng = np.random.default_rng(0)
    vectors, positions = rng.normal(size=(2, 9, 8)), np.arange(9)
    turned = rotate(vectors, positions, 50.0, 6)
    assert np.allclose(rotate(turned, -positions, 50.0, 6), vectors, atol=1e-14)
    assert (turned[..., 6:] == vectors[..., 6:]).all()
    moved = rotate(vectors, positions + 13, 50.0, 6)
    assert np.allclose(turned[0] @ turned[1].T, moved[0] @ moved[1].T)


NEWCOMER = '''
from dataclasses import dataclass
from typing import ClassVar

from numba import njit

from h2o_theory.policies import CompiledPolicy, register


@njit(cache=True, nogil=True)
def rate_parity(t, n, cache, future, settings):
    for i in range(n):
        cache.score[i] = cache.position[i] % 2


@register
@dataclass(frozen=True)
class Odd(CompiledPolicy):
    """Evict even positions first."""

    name: ClassVar[str] = "odd"
    needs: ClassVar[str] = "positions"
    source: ClassVar[str] = "a test"
    rate: ClassVar = rate_parity
'''


def test_a_file_put_among_the_policies_is_found_and_checked(tmp_path, monkeypatch):
    (tmp_path / "odd.py").write_text(NEWCOMER)
    package = h2o_theory.policies.rules
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    try:
        assert set(available()) >= {"odd", "h2o"}
        assert check_policy("odd").frozen_since is None
        table = ht.replay(small_trace(), "odd,recent", 8)
        assert (table.approximation_ratio <= 1).all()
    finally:
        registry._REGISTRY.pop("odd", None)
        sys.modules.pop("h2o_theory.policies.rules.odd", None)


@pytest.mark.parametrize("parts", [(1, 1, 1), (-1, 8, 1), (8, 0, 0), (0, 9, 0)])
def test_parts_that_do_not_make_up_the_budget_are_refused(parts):
    class Careless(PlainPolicy):
        name = "careless"

        def parts(self, budget):
            return Parts(*parts)

        def rate(self, t, positions):
            return positions

    with pytest.raises(BadBudget, match="careless.*n_sink"):
        ht.replay(small_trace(), [Careless()], 8)
    with pytest.raises(BadBudget, match="careless"):
        schedule_of(Careless(), np.eye(12)[None], 8)


@pytest.mark.parametrize("ratings", [None, 1.0, [1, 2], np.zeros((1, 8))])
def test_a_rating_for_each_position_or_a_refusal(ratings):
    """A compiled search would read on past the end of what it was given."""

    class Careless(PlainPolicy):
        name = "careless"

        def rate(self, t, positions):
            return ratings

    with pytest.raises(BadArgument, match=r"careless, step 7.*shape.*expected \[8\]"):
        ht.replay(small_trace(), [Careless()], 8)


@pytest.mark.parametrize(
    "name, value",
    [("kind", "Online"), ("rows", "Raw"), ("group", "median"), ("scope", "heads"), ("needs", "q")],
)
def test_what_a_plain_policy_declares_is_checked(name, value):
    class Careless(PlainPolicy):
        def rate(self, t, positions):
            return positions

    Careless.name = "careless"
    setattr(Careless, name, value)
    with pytest.raises(BadArgument, match=f"{name} must.*{value}"):
        ht.replay(small_trace(), [Careless()], 8)
    with pytest.raises(BadArgument, match=f"{name} must.*{value}"):
        admit_live_policies(Careless())


def made_at_the_prompt(weight, fast=False):
    """A compiled rule whose file is no file, as in a notebook's cell; weight is a global of it."""
    source = (
        "def rate_weighted(t, n, cache, future, settings):\n"
        "    for i in range(n):\n"
        "        cache.score[i] = WEIGHT * cache.position[i]\n"
    )
    names = {"WEIGHT": weight}
    exec(source, names)
    return numba.njit(names["rate_weighted"], fastmath=fast)


def test_kernels_are_told_apart_by_their_code():
    """Same name, same place: only the constant differs, and the schedule must follow it."""
    schedules = []
    for weight in (1.0, -1.0):
        rule = {"name": "weighted", "rate": made_at_the_prompt(weight)}
        cls = type("Weighted", (CompiledPolicy,), rule)
        schedules.append(evict(cls(), reference.uniform_rows(1, 12), 4).tolist())
    assert schedules[0] == evict(make_policy("recent"), reference.uniform_rows(1, 12), 4).tolist()
    assert schedules[1] == evict(make_policy("first:recent=0"), np.eye(12)[None], 4).tolist()
    rules = [made_at_the_prompt(1.0), made_at_the_prompt(2.0), made_at_the_prompt(1.0, fast=True)]
    assert len({code_digest(rule) for rule in rules}) == 3
    assert code_digest(rules[0]) == code_digest(made_at_the_prompt(1.0))


def test_digests_do_not_depend_on_the_process():
    """Otherwise every process would compile everything anew."""
    code = (
        "from h2o_theory.engine.advance import advance\n"
        "from h2o_theory.kernels import code_digest\n"
        "from h2o_theory.policies import available\n"
        "known = [c for c in available().values() if hasattr(c, 'observe')]\n"
        "print([code_digest(advance, c.observe, c.rate) for c in known])\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1 and len(outputs.pop()) > 100

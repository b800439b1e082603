"""Released variants against formulas of their masks, written down without the engine."""

import numpy as np
import pytest
import reference

from h2o_theory.policies import make_policy
from h2o_theory.testing import random_tensors, schedule_of

TOKENS, PROMPT, HALF = 70, 24, 6


def rows_of(seed):
    return reference.softmax_rows(np.random.default_rng(seed), 1, TOKENS, sharpness=1.0)


def visible(text, rows, budget, prefill=0):
    return [set(s) for s in reference.visible_sets(schedule_of_text(text, rows, budget, prefill))]


def schedule_of_text(text, rows, budget, prefill=0):
    return schedule_of(make_policy(text), rows, budget, prefill=prefill)


def top(score, candidates, count):
    """The ``count`` candidates of largest score; of equals the younger stay."""
    ordered = sorted(candidates, key=lambda j: (score[j], j))
    return set(ordered[len(ordered) - min(count, len(ordered)) :])


def restricted_sums(row, seen, score):
    mass = sum(row[j] for j in seen)
    for j in seen:
        score[j] += row[j] / mass


def real_drop(row, prompt, heavy, recent):
    score = row[:prompt].sum(axis=0)
    held = top(score, range(prompt - recent), heavy)
    for t in range(prompt, len(row)):
        seen = held | set(range(t - recent, t + 1))
        yield seen
        restricted_sums(row[t], seen, score)
        held = top(score, held | {t - recent}, heavy)


def flexgen(row, prompt, places):
    score = row[:prompt].sum(axis=0)
    held = top(score, range(prompt - places + 1), places)
    ring = list(range(prompt - places + 1, prompt))
    for t in range(prompt, len(row)):
        seen = held | set(ring) | {t}
        yield seen
        restricted_sums(row[t], seen, score)
        held.remove(min(held, key=lambda j: (score[j], j)))
        ring.append(t)
        held.add(ring.pop(0))


def few_shot(row, heavy, recent):
    score = row[:heavy].sum(axis=0)
    score[heavy:] = 0
    for t in range(heavy, len(row)):
        chosen = top(score, range(t), heavy - 1) | {t}
        yield chosen | set(range(max(t - recent, 0), t + 1))
        score = (score + row[t]) * np.isin(np.arange(len(row)), list(chosen))


def after_the_fix(row, prompt, heavy, recent):
    score = row[:prompt].sum(axis=0)
    held = top(score, range(prompt - recent), heavy)
    for t in range(prompt, len(row)):
        seen = held | set(range(t - recent + 1, t + 1))
        yield seen
        restricted_sums(row[t], seen, score)
        held = top(score, [j for j in range(t - recent + 1) if score[j] > 0], heavy)
        score[[j for j in range(t - recent + 1) if j not in held]] = 0


@pytest.mark.parametrize("seed", range(5))
def test_true_dropping_is_h2o(seed):
    rows, budget = rows_of(seed), 2 * HALF + 1
    want = list(real_drop(rows[0], PROMPT, HALF, HALF))
    assert visible("h2o_real_drop", rows, budget, PROMPT)[PROMPT:] == want
    assert visible("h2o", rows, budget, PROMPT)[PROMPT:] == want


@pytest.mark.parametrize("places", [1, 2, HALF])
def test_flexgen_promotes_the_oldest_of_its_ring(places):
    for seed in range(5):
        rows = rows_of(seed)
        want = list(flexgen(rows[0], PROMPT, places))
        assert visible("h2o_flexgen", rows, 2 * places, PROMPT)[PROMPT:] == want


@pytest.mark.parametrize("seed", range(5))
def test_few_shot_mask_lies_within_the_policy(seed):
    rows = rows_of(seed)
    got = visible("h2o_lm_eval", rows, 2 * HALF)
    masks = list(few_shot(rows[0], HALF, HALF))
    assert all(mask <= seen for mask, seen in zip(masks, got[HALF:], strict=True))
    assert max(map(len, masks)) == 2 * HALF > np.mean([len(mask) for mask in masks])


@pytest.mark.parametrize("seed", range(5))
def test_llama_mask_lies_within_the_policy(seed):
    rows = rows_of(seed)
    chosen = top(rows[0].sum(axis=0), range(TOKENS), HALF)
    for t, seen in enumerate(visible("h2o_lm_eval_llama", rows, 2 * HALF + 1)):
        mask = (chosen | set(range(t - HALF, t + 1))) & set(range(t + 1))
        assert mask <= seen


def test_masks_after_the_fix_are_no_cache():
    """The column that leaves the window is hidden for one row and may come back."""
    returned = hidden = 0
    for seed in range(5):
        masks = list(after_the_fix(rows_of(seed)[0], PROMPT, HALF, HALF))
        for t, (before, after) in enumerate(zip(masks, masks[1:], strict=False), start=PROMPT):
            returned += len(after - before - {t + 1})
            hidden += t - HALF + 1 in before and t + 1 - HALF not in after
    assert returned > 0 and hidden == 5 * (TOKENS - PROMPT - 1)


@pytest.mark.parametrize("reading", ["literal", "accumulated"])
def test_algorithm_1_keeps_its_first_tokens_for_ever(reading):
    rows = rows_of(0)
    for t, seen in enumerate(visible(f"algorithm1:reading={reading}", rows, 9)):
        assert seen == {*range(min(t, 8)), t}


def test_algorithm_2_almost_freezes():
    """Its newcomer starts with 1 / D against sums: few tokens ever displace a veteran."""
    rows, budget = rows_of(0), 9
    schedule = schedule_of_text("algorithm2", rows, budget)
    entered = np.flatnonzero(schedule[budget:] > np.arange(budget, TOKENS))
    assert len(entered) < (TOKENS - budget) / 2
    intended = schedule_of_text("algorithm2:reading=intent", rows, budget)
    assert not np.array_equal(schedule, intended)


def test_snapkv_cuts_the_prompt_once():
    rows, window, places = rows_of(1), 4, 8
    sums = rows[0, PROMPT - window : PROMPT, : PROMPT - window].sum(axis=0)
    pooled = np.convolve(sums, np.full(5, 0.2), mode="same")
    want = top(pooled, range(PROMPT - window), places) | set(range(PROMPT - window, PROMPT))
    seen = visible(f"snapkv:window={window}", rows, window + places + 1, PROMPT)[PROMPT]
    assert seen == want | {PROMPT}


def test_keyformer_code_lets_no_generated_token_survive_its_window():
    budget, rows = 30, rows_of(2)
    rows[0, 40:, 40] += 50
    rows /= rows.sum(axis=-1, keepdims=True)
    window = make_policy("keyformer").parts(budget).n_recent
    schedule = schedule_of_text("keyformer:form=code", rows, budget, PROMPT)
    born = np.arange(PROMPT + budget, TOKENS - window)
    assert (schedule[born] == born + window - 1).all()
    assert schedule[40] < TOKENS == schedule_of_text("keyformer", rows, budget, PROMPT)[40]


def test_buzz_selects_and_thins():
    """One of each run of three new entries stays, then every second of those; the oldest go first.

    Under uniform attention the first of a run has accumulated most. Of 22 entries the first 2 and
    the last 5 are protected.
    """
    schedule = schedule_of_text(
        "buzz:n_sink=2,recent=0.25,stride=3", reference.uniform_rows(1, 60), 22
    )
    victims = [int(np.flatnonzero(schedule == t)[0]) for t in range(21, 40)]
    assert victims[:10] == [3, 4, 6, 7, 9, 10, 12, 13, 15, 16]
    assert victims[10:] == [5, 11, 17, 19, 20, 22, 23, 25, 26]


def test_value_norms_decide_where_attention_does_not():
    rows = reference.uniform_rows(1, 30)
    tensors = random_tensors(np.random.default_rng(0), 1, 30)
    tensors.values[:] = np.arange(1, 31)[::-1, None]
    schedule = schedule_of(make_policy("vatp:recent=0,n_sink=0"), rows, 6, tensors=tensors)
    kept = np.flatnonzero(schedule >= 29)
    assert kept.tolist() == [0, 1, 2, 3, 4, 29]

"""The statistics of the analysis against definitions, other libraries and known samples."""

import mpmath
import numpy as np
import powerlaw
import pytest
import scipy.stats

from h2o_theory import statistics
from h2o_theory.errors import BadArgument, NotEnoughData
from h2o_theory.statistics.tails import log_tail_integral


def pareto(rng, exponent, n, x_min=1.0):
    """A sample of the power law with that exponent."""
    return x_min * rng.random(n) ** (-1 / (exponent - 1))


def test_concentration_by_definition():
    rng = np.random.default_rng(0)
    for n in (1, 2, 7, 50):
        x = rng.random(n) ** 3 + 1e-3
        ordered = np.sort(x)[::-1]
        for share in (0.01, 0.1, 0.5, 1.0):
            m = max(1, int(np.ceil(round(share * n, 9))))
            assert statistics.top_share(x, share) == pytest.approx(ordered[:m].sum() / x.sum())
        differences = np.abs(x[:, None] - x).sum() / (2 * n * n * x.mean())
        assert statistics.gini(x) == pytest.approx(differences)
        assert statistics.entropy(x) == pytest.approx(scipy.stats.entropy(x))
        for mass in (0.5, 0.9, 1.0):
            m = statistics.support_for(x, mass)
            assert ordered[:m].sum() >= mass * x.sum() * (1 - 1e-9)
            assert m == 1 or ordered[: m - 1].sum() < mass * x.sum()


def test_profile_is_every_measure_at_once():
    x = np.random.default_rng(9).random((3, 40)) ** 4
    profile = statistics.concentration_profile(x, (0.05, 0.2))
    assert profile["top 5% share"] == pytest.approx(statistics.top_share(x, 0.05))
    assert profile["top 20% share"] == pytest.approx(statistics.top_share(x, 0.2))
    assert profile["Gini"] == pytest.approx(statistics.gini(x))
    assert profile["entropy"] == pytest.approx(statistics.entropy(x))
    assert profile["effective support"] == pytest.approx(statistics.effective_support(x))


def test_concentration_at_its_ends():
    equal, one = np.full(40, 0.25), np.eye(40)[3]
    assert statistics.gini(equal) == pytest.approx(0, abs=1e-12)
    assert statistics.gini(one) == pytest.approx(39 / 40)
    assert statistics.effective_support(equal) == pytest.approx(40)
    assert statistics.effective_support(one) == pytest.approx(1)
    assert statistics.support_for(equal, 0.9) == 36
    assert statistics.top_share(np.stack([equal, one]), 0.1) == pytest.approx([0.1, 1])
    for bad in ([], [0.0, 0.0], [1.0, -1.0], [np.nan, 1.0]):
        with pytest.raises(BadArgument):
            statistics.gini(bad)


def test_a_known_exponent_is_recovered_and_not_ruled_out():
    rng = np.random.default_rng(1)
    values = np.concatenate([rng.random(800), pareto(rng, 2.5, 1200)])
    law = statistics.fit_power_law(values, replicates=60)
    assert law.exponent_interval.low < 2.5 < law.exponent_interval.high
    assert law.exponent == pytest.approx(2.5, abs=0.2) and 0.8 < law.x_min < 2
    assert statistics.goodness_of_fit(values, law, replicates=60).value > 0.1
    verdicts = {test.alternative: test.verdict for test in statistics.compare_laws(values, law)}
    assert verdicts["exponential"] == "power law"
    assert verdicts["truncated power law"] == "undecided"


def test_the_exponent_interval_covers_the_truth():
    rng = np.random.default_rng(2)
    covered = 0
    for seed in range(20):
        values = pareto(rng, 3.0, 300)
        low, high = statistics.fit_power_law(values, replicates=60, seed=seed).exponent_interval[1:]
        covered += low < 3.0 < high
    assert covered >= 16


def test_other_laws_are_told_apart():
    rng = np.random.default_rng(3)
    normal = rng.lognormal(0, 1, 3000)
    law = statistics.fit_power_law(normal, replicates=1)
    everything = statistics.PowerLaw(1.5, normal.min(), 3000, 3000, 0, law.exponent_interval)
    verdicts = [test.verdict for test in statistics.compare_laws(normal, everything)]
    assert verdicts == ["log-normal", "exponential", "truncated power law"]


def test_values_with_a_light_tail_are_ruled_out():
    values = np.abs(np.random.default_rng(3).normal(size=2000))
    law = statistics.fit_power_law(values, replicates=1)
    assert statistics.goodness_of_fit(values, law, replicates=60).high < 0.1


@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning", "ignore:.*:UserWarning")
def test_fit_and_likelihoods_agree_with_powerlaw():
    """The package's exponents are bounded by default, hence the ranges."""
    rng = np.random.default_rng(4)
    values = np.concatenate([rng.random(300), pareto(rng, 2.2, 500)])
    law = statistics.fit_power_law(values, replicates=1)
    options = {"verbose": 0, "parameter_ranges": {"alpha": (1, 20)}}
    theirs = powerlaw.Fit(values, **options)
    assert law.exponent == pytest.approx(theirs.power_law.alpha, abs=0.05)
    at_ours = powerlaw.Fit(values, xmin=law.x_min, verbose=0)
    assert law.exponent == pytest.approx(at_ours.power_law.alpha, rel=1e-6)
    names = ("lognormal", "exponential", "truncated_power_law")
    for test, name in zip(statistics.compare_laws(values, law), names, strict=True):
        ratio, p = at_ours.distribution_compare("power_law", name, nested=test.nested)
        assert test.log_ratio == pytest.approx(ratio, abs=0.05)
        assert test.p == pytest.approx(p, abs=0.05)


def test_best_tail_is_the_least_distance_of_all():
    rng = np.random.default_rng(5)
    values = np.sort(np.round(rng.lognormal(0, 1, 120), 2) + 0.01)
    law = statistics.fit_power_law(values, replicates=1)
    distances = []
    for x_min in np.unique(values[:-9]):
        tail = values[values >= x_min]
        n = len(tail)
        exponent = 1 + n / np.log(tail / x_min).sum()
        below = 1 - (tail / x_min) ** (1 - exponent)
        steps = np.arange(n)
        distances.append(max((below - steps / n).max(), ((steps + 1) / n - below).max()))
    assert law.distance == pytest.approx(min(distances))


@pytest.mark.parametrize("a", [-2, 0.5, 1.0, 2.5, 6])
@pytest.mark.parametrize("b", [1e-8, 0.1, 50])
def test_tail_integral_agrees_with_mpmath(a, b):
    expected = float(mpmath.log(mpmath.expint(a, b)))
    assert log_tail_integral(a, b) == pytest.approx(expected, abs=1e-8)


def test_too_few_values_are_refused():
    for values in (np.arange(1.0, 50), np.full(500, 2.0), np.zeros(100)):
        with pytest.raises(NotEnoughData, match="needs (at least|values)"):
            statistics.fit_power_law(values)
    with pytest.raises(BadArgument, match="finite"):
        statistics.fit_power_law([1.0, np.nan])


def test_rank_correlations_agree_with_scipy():
    rng = np.random.default_rng(6)
    x = rng.normal(size=80)
    y = np.round(x + rng.normal(size=80), 1)
    for ours, theirs in (
        (statistics.spearman(x, y, replicates=200), scipy.stats.spearmanr(x, y)),
        (statistics.kendall(x, y, replicates=50), scipy.stats.kendalltau(x, y)),
    ):
        assert ours.value == pytest.approx(theirs.statistic)
        assert ours.low < ours.value < ours.high
    # One control: the textbook formula from the three plain correlations.
    z = x + rng.normal(size=80)
    xy, xz, yz = (scipy.stats.spearmanr(*pair).statistic for pair in ((x, y), (x, z), (y, z)))
    partial = (xy - xz * yz) / np.sqrt((1 - xz**2) * (1 - yz**2))
    assert statistics.partial_spearman(x, y, [z], replicates=10).value == pytest.approx(partial)


def test_what_a_control_explains_is_removed():
    rng = np.random.default_rng(7)
    z = rng.normal(size=400)
    x, y = z + 0.5 * rng.normal(size=400), z + 0.5 * rng.normal(size=400)
    assert statistics.spearman(x, y, replicates=100).low > 0.5
    partial = statistics.partial_spearman(x, y, [z], replicates=200)
    assert partial.low < 0 < partial.high or abs(partial.value) < 0.1
    assert statistics.partial_permutation(x, y, [z], replicates=200).p > 0.01
    within = statistics.permutation_within(x, y, np.digitize(z, [-1, 0, 1]), replicates=200)
    assert 0.3 < within.mean < within.value
    plain = statistics.permutation_within(x, y, np.zeros(400), replicates=200)
    assert plain.p < 0.01 and abs(plain.mean) < 0.05


def test_undefined_correlations_are_refused():
    x = np.arange(30.0)
    for arguments in ((x, np.ones(30)), (x[:10], x[:10])):
        with pytest.raises(NotEnoughData, match="needs (at least|values)"):
            statistics.spearman(*arguments)
    with pytest.raises(NotEnoughData, match="needs (at least|values)"):
        statistics.partial_spearman(x, x[::-1], [x])


def test_block_intervals():
    rng = np.random.default_rng(8)
    numerator, denominator = rng.random(640), np.ones(640)
    ratio = statistics.ratio_interval(numerator, denominator)
    assert ratio.value == pytest.approx(numerator.mean())
    error = numerator.std() / np.sqrt(640)
    assert ratio.high - ratio.low == pytest.approx(3.92 * error, rel=0.4)
    # Neighbours that are alike carry less information than their number.
    alike = statistics.ratio_interval(np.repeat(numerator[:32], 20), denominator)
    assert alike.high - alike.low > 3 * (ratio.high - ratio.low)
    draw = next(statistics.block_draws(100, 1, first=4))
    assert draw.min() >= 4 and draw.max() < 100
    with pytest.raises(NotEnoughData, match="at least 64 positions"):
        statistics.ratio_interval(numerator[:20], denominator[:20])


@pytest.mark.parametrize("likeness, least, most", [(0.0, 0.87, 0.98), (0.9, 0.7, 0.9)])
def test_block_intervals_cover_as_often_as_stated(likeness, least, most):
    rng, covered, n = np.random.default_rng(1), 0, 511
    for seed in range(200):
        noise = rng.normal(size=n + 100)
        for t in range(1, n + 100):
            noise[t] += likeness * noise[t - 1]
        found = statistics.ratio_interval(noise[100:] + 100, np.ones(n), replicates=200, seed=seed)
        covered += found.low <= 100 <= found.high
    assert least <= covered / 200 <= most


def test_survival_by_hand():
    # Lasted 1, 2, 2+, 3 steps, "+" cut off.
    curve = statistics.survival_curve([0, 1, 1, 1], [0, 0, 1, 0])
    assert curve == pytest.approx([1, 1, 3 / 4, 3 / 4 * 2 / 3, 0])
    assert statistics.median_survival(curve) == 3
    assert statistics.median_survival(statistics.survival_curve([0, 1], [0, 9])) is None
    with pytest.raises(BadArgument):
        statistics.survival_curve([0], [0])

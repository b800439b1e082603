"""What the numbers on rows and positions say.

Each function takes (survey, tables, measurements) and returns a verdict and a sentence, or None
where the numbers are missing.
"""

from h2o_theory.analysis.emergence import ALL, BARE, WORDS

__all__ = [
    "agreement",
    "cache",
    "concentration",
    "local_global",
    "percent",
    "persistence",
    "plain_number",
    "position",
    "sparsity",
]


def percent(interval):
    """A share as '12.3 % [11.0, 13.9]'."""
    return f"{100 * interval.value:.1f} % [{100 * interval.low:.1f}, {100 * interval.high:.1f}]"


def plain_number(interval, digits=2):
    """A number as '0.12 [0.11, 0.14]'."""
    value, low, high = (f"{end:.{digits}f}" for end in interval)
    return f"{value} [{low}, {high}]"


def concentration(survey, tables, measurements):
    """Concentration, with what even attention would give beside it."""
    shares = {
        scope: measurements.get("concentration", "top 10% share", scope) for scope in (ALL, BARE)
    }
    uniform = measurements.get("concentration", "top 10% share", "uniform attention")
    gini = measurements.get("concentration", "Gini", BARE)
    if shares[BARE] is None or shares[ALL] is None:
        return None
    above = shares[BARE].low > uniform.value
    words = measurements.get("concentration", "top 10% share", WORDS)
    sentence = (
        f"The top 10 % of positions receive {percent(shares[ALL])} of all attention, and "
        f"{percent(shares[BARE])} once the first {survey.n_sink} positions (sinks) are set apart "
        f"(Gini {plain_number(gini)}). Attention spread evenly over each row would already give "
        f"{100 * uniform.value:.1f} %, because early positions are seen by more rows"
    )
    sentence += "." if words is None else f"; the top 10 % of words receive {percent(words)}."
    return "supported" if above else "not supported", sentence


def position(survey, tables, measurements):
    """Sinks, early heavy hitters, and how the sum and the mean rank positions."""
    sinks = measurements.get("position", "sink share", "all heads")
    early = measurements.get("position", "hitters in the first tenth", "all heads")
    total = measurements.get("position", "sum against position", "all heads")
    mean = measurements.get("position", "mean per row against position", "all heads")
    if None in (sinks, early, total, mean):
        return None
    verdict = "supported" if early.value > 0.1 and total.high < 0 else "partly supported"
    if early.value < 0.2 and total.low > -0.1:
        verdict = "not supported"
    return verdict, (
        f"The first {survey.n_sink} positions receive {percent(sinks)} of all attention. Of the "
        f"heavy hitters after them, {100 * early.value:.1f} % lie in the first tenth of this text "
        f"(10 % if position did not matter). Summed attention falls with position (Spearman "
        f"{plain_number(total)}), the mean over the rows that see a position has Spearman "
        f"{plain_number(mean)}: the sum and the mean rank tokens differently."
    )


def local_global(survey, tables, measurements):
    """Future attention received by sets chosen by the past, with hindsight, at random."""
    names = ("local captured", "global captured", "random captured", "local less global")
    local, whole, chance, less = (
        measurements.get("evolution", name, "all heads") for name in names
    )
    overlap = measurements.get("evolution", "local-future", "all heads")
    if None in (local, whole, chance, less, overlap):
        return None
    verdict = "supported" if less.low > -0.05 else "partly supported"
    if local.low <= chance.high:
        verdict = "not supported"
    return verdict, (
        f"Heavy hitters chosen by past attention receive {percent(local)} of the future attention "
        f"that the best set of their number receives; chosen with hindsight over the whole text, "
        f"{percent(whole)}; at random, {percent(chance)}. Local less global: "
        f"{percent(less)}. As sets, only {percent(overlap)} of the heavy hitters so far are "
        f"among those to come."
    )


def persistence(survey, tables, measurements):
    """How many heavy hitters remain, how many positions ever become one."""
    ever = measurements.get("persistence", "ever a heavy hitter", "all heads")
    measures = measurements.found()
    kept = measures[measures.measure.str.startswith("still after")]
    entered = measurements.get("persistence", "entered within 8 steps", "all heads")
    if ever is None or kept.empty or entered is None:
        return None
    last = kept.iloc[-1]
    steps = last.measure.removeprefix("still ")
    return "measured", (
        f"{100 * last.value:.1f} % [{100 * last.low:.1f}, {100 * last.high:.1f}] of heavy hitters "
        f"are heavy hitters {steps}; {percent(ever)} of positions ever are, and "
        f"{percent(entered)} of those become so within 8 steps of their arrival. A sum never "
        f"forgets, so this says little about whether they are still attended to."
    )


def agreement(survey, tables, measurements):
    """Overlap between kv_heads of a layer and of different layers."""
    chance = measurements.get("overlap", "final heavy hitters", "random sets")
    heads = measurements.get("overlap", "final heavy hitters", "heads of a layer")
    layers = measurements.get("overlap", "final heavy hitters", "layers")
    if chance is None or (heads is None and layers is None):
        return None
    parts = []
    if heads is not None:
        parts.append(f"two kv_heads of a layer share {percent(heads)} of their heavy hitters")
    if layers is not None:
        parts.append(f"kv_heads of different layers share {percent(layers)}")
    low = min(found.low for found in (heads, layers) if found is not None)
    verdict = "partly supported" if low > chance.value else "not supported"
    text = ", ".join(parts)
    return verdict, f"{text[0].upper()}{text[1:]}; random sets {100 * chance.value:.1f} %."


def sparsity(survey, tables, measurements):
    """Sparsity in both countings."""
    causal = measurements.get("sparsity", "sparse share", "causal entries")
    square = measurements.get("sparsity", "sparse share", "whole square")
    if causal is None or square is None:
        return None
    layers = tables["sparsity_by_layer"]
    high, low = (layers.causal >= 0.95).sum(), (layers.square >= 0.95).sum()
    share = high / len(layers)
    verdict = (
        "supported" if share >= 0.9 else "partly supported" if share >= 0.5 else "not supported"
    )
    return verdict, (
        f"Counted over causal entries, {percent(causal)} of entries are below "
        f"{100 * survey.threshold:g} % of their row's maximum, and {high} of {len(layers)} layers "
        f"reach 95 %; over the whole square, where the future counts as zeros, {percent(square)} "
        f"and {low} of {len(layers)} layers."
    )


def cache(survey, tables, measurements):
    """What sparsity would allow, and what the support of the rows allows."""
    causal = measurements.get("sparsity", "sparse share", "causal entries")
    name = "share of the row, last quarter"
    held = {
        mass: measurements.get("support", name, f"{mass} of the mass")
        for mass in ("90%", "95%", "99%")
    }
    if causal is None or None in held.values():
        return None
    by_sparsity = 1 / (1 - causal.value)
    verdict = "supported" if held["95%"].high <= 0.05 else "not supported"
    parts = ", ".join(
        f"{mass} of the mass takes {percent(interval)} of the keys"
        for mass, interval in held.items()
    )
    return verdict, (
        f"The causal sparsity found would suggest a cache {by_sparsity:.0f} times smaller. But in "
        f"the last quarter of the rows {parts}, even with the best keys of each row on its own: "
        f"{1 / held['95%'].value:.0f} times smaller at 95 %, {1 / held['99%'].value:.0f} at 99 %."
    )

"""Plain references: a replay written with dictionaries and loops, and each policy's rule in it.

Nothing here is shared with the package except the definition of the random stream's seed.
"""

import math

import numpy as np

MASK = 2**64 - 1


def softmax_rows(rng, group, tokens, sharpness=2.0):
    """Random causal attention [G, T, T] with a sink, salient tokens and noise."""
    logits = rng.normal(size=(group, tokens, tokens)) * sharpness
    logits += rng.normal(size=tokens) * sharpness
    logits[:, :, 0] += sharpness
    logits[:, np.triu(np.ones((tokens, tokens), dtype=bool), k=1)] = -np.inf
    rows = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return rows / rows.sum(axis=-1, keepdims=True)


def dyadic_rows(rng, group, tokens):
    """Attention in multiples of 1/16, full of exact ties and zeros; all sums are exact floats."""
    rows = np.zeros((group, tokens, tokens))
    for g in range(group):
        for t in range(tokens):
            np.add.at(rows[g, t], rng.integers(0, t + 1, size=16), 1 / 16)
    return rows


def uniform_rows(group, tokens):
    """Every key gets the same."""
    rows = np.tril(np.ones((group, tokens, tokens)))
    return rows / rows.sum(axis=-1, keepdims=True)


def restrict(rows, t, visible, kind, reduction):
    """Row t over the visible positions as a dict, renormalised or raw, reduced over the group."""
    group = len(rows) if reduction != "first" else 1
    out = dict.fromkeys(visible, 0.0)
    for g in range(group):
        mass = math.fsum(rows[g][t][j] for j in visible)
        scale = 1.0 if kind == "raw" else (1.0 / mass if mass > 0 else 0.0)
        if reduction == "mean":
            scale /= group
        for j in visible:
            value = rows[g][t][j] * scale
            out[j] = max(out[j], value) if reduction == "max" else out[j] + value
    return out


class Rule:
    """Base of the reference rules: no sinks, no window, renormalised mean rows."""

    kind, reduction = "renormalised", "mean"

    def __init__(self, budget, rows, **parameters):
        self.budget, self.rows = budget, rows
        self.history = []
        self.__dict__.update(parameters)

    def protected(self, t):
        return set()

    def see(self, t, row):
        self.history.append((t, row))

    def score(self, j, t, visible):
        raise AssertionError

    def sums(self, j):
        total = 0.0
        for _, row in self.history:
            total += row.get(j, 0.0)
        return total


class Recent(Rule):
    def score(self, j, t, visible):
        return j


class Sink(Recent):
    n_sink = 4

    def protected(self, t):
        return set(range(min(self.n_sink, self.budget - 1)))


class H2O(Rule):
    recent = 0.5
    n_sink = 0

    def protected(self, t):
        n_sink = min(self.n_sink, self.budget - 1)
        rest = self.budget - n_sink
        heavy = min(math.floor(round((1 - self.recent) * rest * 1000) / 1000), rest - 1)
        window = rest - heavy
        return set(range(n_sink)) | set(range(t - window + 2, t + 1))

    def score(self, j, t, visible):
        return self.sums(j)


class H2OMean(H2O):
    """Mean by rows seen, in the incremental form, whose rounding decides exact ties."""

    def score(self, j, t, visible):
        mean = 0.0
        for s, row in self.history:
            if j in row:
                mean += (row[j] - mean) / (s - j + 1)
        return mean


class H2ODecayed(H2O):
    decay = 0.75

    def score(self, j, t, visible):
        total = 0.0
        for _, row in self.history:
            total = self.decay * total + row.get(j, 0.0)
        return total


class H2OTokens(H2O):
    n_recent = 3

    def protected(self, t):
        return set(range(t - self.n_recent + 2, t + 1))


class First(Rule):
    def protected(self, t):
        n_first = min(self.budget // 2, self.budget - 1)
        window = self.budget - n_first
        return set(range(n_first)) | set(range(t - window + 2, t + 1))

    def score(self, j, t, visible):
        return 0


class Lrfu(Rule):
    lam, soft = 0.05, True

    def score(self, j, t, visible):
        total = 0.0
        for s, row in self.history:
            total *= 2.0**-self.lam
            if j in row:
                total += row[j] if self.soft else float(j in accessed(row, s))
        return total


class LruK(Rule):
    depth, period = 2, 0

    def score(self, j, t, visible):
        last, references = None, []
        for s, row in self.history:
            if j in row and j in accessed(row, s):
                if last is None or s - last > self.period:
                    references.append(s)
                last = s
        if len(references) < self.depth:
            return (0, last)
        return (1, references[-self.depth])


class Scissorhands(Rule):
    window, recent_tokens = 400, 10

    def protected(self, t):
        return set(range(t - min(self.recent_tokens, self.budget) + 2, t + 1))

    def score(self, j, t, visible):
        rows = [(s, row) for s, row in self.history if s > t - self.window and j in row]
        return -sum(row[j] * len(row) < 1 - 1e-9 for _, row in rows)


class Keyformer(Rule):
    stream, noise = 0, 1.0

    def protected(self, t):
        heavy = min(math.floor(round(0.7 * self.budget * 1000) / 1000), self.budget - 1)
        return set(range(t - (self.budget - heavy) + 2, t + 1))

    def score(self, j, t, visible):
        total, tokens = 0.0, len(self.rows[0])
        for s, row in self.history:
            if row.get(j, 0.0) > 0.0:
                tau = 1 + s / max(tokens - 1, 1)
                weights = {
                    i: math.exp((math.log(p) + self.noise * self.gumbel(s, i)) / tau)
                    for i, p in row.items()
                    if p > 0
                }
                total += weights[j] / math.fsum(weights.values())
        return total

    def gumbel(self, t, j):
        draw = Random(self.budget, self.rows, stream=self.stream, form="fresh").score(j, t, None)
        return -math.log(-math.log(draw + 2.0**-60))


class Heavy(Rule):
    def score(self, j, t, visible):
        return self.sums(j)


class Tova(Rule):
    def score(self, j, t, visible):
        return self.history[-1][1][j]


def accessed(row, t):
    fair = 1.0 / len(row)
    return {j for j, weight in row.items() if j == t or weight >= fair * (1 - 1e-9)}


class Lru(Rule):
    def score(self, j, t, visible):
        return max(s for s, row in self.history if j in row and j in accessed(row, s))


class Lfu(Rule):
    def score(self, j, t, visible):
        return sum(1 for s, row in self.history if j in row and j in accessed(row, s))


class Greedy(Rule):
    kind, h = "raw", "sqrt"

    def concave(self, mass):
        mass = max(mass, 0.0)
        return {"sqrt": math.sqrt, "log": math.log1p, "cap": lambda m: min(m, 0.5)}[self.h](mass)

    def score(self, j, t, visible):
        loss = 0.0
        for s, row in self.history:
            if s >= j:
                mass = math.fsum(row.get(i, 0.0) for i in visible)
                loss += self.concave(mass) - self.concave(mass - row[j])
        return loss


class Random(Rule):
    form, stream, n_sink = "static", 0, 0

    def protected(self, t):
        return set(range(min(self.n_sink, self.budget - 1)))

    def score(self, j, t, visible):
        step = t if self.form == "fresh" else 0
        z = (self.stream + (step + 1) * 0x9E3779B97F4A7C15) & MASK
        z ^= ((j + 1) * 0xD1B54A32D192ED03) & MASK
        for _ in range(2):
            z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
            z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
            z ^= z >> 31
        return (z >> 11) / 2**53


class Belady(Rule):
    def score(self, j, t, visible):
        mean = np.mean(self.rows, axis=0)
        for s in range(t + 1, len(mean)):
            if mean[s][j] * (s + 1) >= 1 - 1e-9:
                return -s
        return -math.inf


class BeladyCount(Rule):
    def score(self, j, t, visible):
        mean = np.mean(self.rows, axis=0)
        return sum(mean[s][j] * (s + 1) >= 1 - 1e-9 for s in range(t + 1, len(mean)))


class BeladyMass(Rule):
    def score(self, j, t, visible):
        mean = np.mean(self.rows, axis=0)
        return sum(mean[s][j] for s in range(len(mean) - 1, t, -1))


class BeladyAhead(Rule):
    """Look-ahead of w rows, as a difference of sums to the end, whose rounding decides ties."""

    w = 3

    def ahead(self, j, t, w):
        mean = np.mean(self.rows, axis=0)
        tokens = len(mean)

        def rest(start):
            return sum(mean[s][j] for s in range(tokens - 1, start, -1))

        return rest(t) - rest(t + w) if t + w < tokens and w < tokens else rest(t)

    def score(self, j, t, visible):
        return self.ahead(j, t, self.w)


class BeladyRate(BeladyAhead):
    def score(self, j, t, visible):
        best, w = 0.0, 1
        while True:
            best = max(best, self.ahead(j, t, w) / w)
            if w >= len(self.rows[0]):
                return best
            w *= 2


class OracleStatic(H2O):
    def score(self, j, t, visible):
        return np.mean(self.rows, axis=0).sum(axis=0)[j]


def simulate(rows, rule, budget, prefill=0):
    """Replay ``rows`` [G, T, T] under a rule; returns ``evicted_at`` as a list."""
    tokens = len(rows[0])
    evicted_at = [tokens] * tokens
    visible = []
    for t in range(tokens):
        visible.append(t)
        rule.see(t, restrict(rows, t, visible, rule.kind, rule.reduction))
        while t >= prefill - 1 and len(visible) >= budget:
            candidates = [j for j in visible if j not in rule.protected(t)]
            scores = {j: rule.score(j, t, visible) for j in candidates}
            victim = min(candidates, key=lambda j: (scores[j], j))
            visible.remove(victim)
            evicted_at[victim] = t
    return evicted_at


def visible_sets(evicted_at):
    """S_t for every t, from a schedule."""
    return [[j for j in range(t + 1) if evicted_at[j] >= t] for t in range(len(evicted_at))]

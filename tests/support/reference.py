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
    prefill, tensors = 0, None
    access = ("uniform", None)

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
                total += row[j] if self.soft else float(j in accessed(row, s, self.access))
        return total


class LruK(Rule):
    depth, period = 2, 0

    def score(self, j, t, visible):
        last, references = None, []
        for s, row in self.history:
            if j in row and j in accessed(row, s, self.access):
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

    def __init__(self, *arguments, **parameters):
        super().__init__(*arguments, **parameters)
        self.noisy = []

    def protected(self, t):
        heavy = min(math.floor(round(0.7 * self.budget * 1000) / 1000), self.budget - 1)
        return set(range(t - (self.budget - heavy) + 2, t + 1))

    def score(self, j, t, visible):
        while len(self.noisy) < len(self.history):
            self.noisy.append(self.flatten(*self.history[len(self.noisy)]))
        return sum(row.get(j, 0.0) for row in self.noisy)

    def flatten(self, t, row):
        tau = 1 + t / max(len(self.rows[0]) - 1, 1)
        weights = {
            i: math.exp((math.log(p) + self.noise * self.gumbel(t, i)) / tau)
            for i, p in row.items()
            if p > 0
        }
        return {i: weight / math.fsum(weights.values()) for i, weight in weights.items()}

    def gumbel(self, t, j):
        draw = Random(self.budget, self.rows, stream=self.stream, form="fresh").score(j, t, None)
        return -math.log(-math.log(draw + 2.0**-60))


class Heavy(Rule):
    def score(self, j, t, visible):
        return self.sums(j)


class Tova(Rule):
    def score(self, j, t, visible):
        return self.history[-1][1][j]


def accessed(row, t, rule=("uniform", None)):
    kind, level = rule
    ordered = sorted(row.values(), reverse=True)
    least = {
        "uniform": lambda: (1 - 1e-9) / len(row),
        "relative": lambda: (1 - 1e-9) * level * ordered[0],
        "top_m": lambda: ordered[min(level, len(row)) - 1],
        "absolute": lambda: level,
    }[kind]()
    return {j for j, weight in row.items() if j == t or weight >= least and weight > 0}


class Lru(Rule):
    def score(self, j, t, visible):
        return max(s for s, row in self.history if j in row and j in accessed(row, s, self.access))


class Lfu(Rule):
    def score(self, j, t, visible):
        return sum(1 for s, row in self.history if j in row and j in accessed(row, s, self.access))


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
    accesses = None

    def coming(self, j, t):
        if self.accesses is None:
            rows = [dict(enumerate(row[: s + 1])) for s, row in enumerate(np.mean(self.rows, 0))]
            self.accesses = [accessed(row, None, self.access) for row in rows]
        return (s for s in range(t + 1, len(self.accesses)) if j in self.accesses[s])

    def score(self, j, t, visible):
        return -next(self.coming(j, t), math.inf)


class BeladyCount(Belady):
    def score(self, j, t, visible):
        return sum(1 for _ in self.coming(j, t))


class BeladyMass(Rule):
    def score(self, j, t, visible):
        mean = np.mean(self.rows, axis=0)
        return sum(mean[s][j] for s in range(len(mean) - 1, t, -1))


class Fifo(Rule):
    def score(self, j, t, visible):
        return j


class H2ORealDrop(H2O):
    def protected(self, t):
        heavy = (self.budget - 1) // 2
        return set(range(t - (self.budget - heavy) + 2, t + 1))


class H2OFlexgen(Rule):
    def protected(self, t):
        ring = max(self.budget // 2, 1)
        return set(range(t - ring + 2, t + 1))

    def score(self, j, t, visible):
        ring = max(self.budget // 2, 1)
        return math.inf if j == t - ring + 1 and t >= self.prefill else self.sums(j)


class H2OLmEval(Rule):
    kind = "raw"

    def protected(self, t):
        return set(range(t - self.budget // 2 + 1, t + 1))

    def score(self, j, t, visible):
        heavy, chosen = self.budget - self.budget // 2, {}
        for s, row in self.history:
            chosen[s] = 0.0
            chosen = {i: total + row[i] for i, total in chosen.items()}
            if len(chosen) >= heavy:
                del chosen[min(chosen, key=lambda i: (chosen[i], i))]
        return chosen.get(j, 0.0)


class Algorithm1(Rule):
    reading = "literal"

    def score(self, j, t, visible):
        total = 0.0
        for s, row in self.history:
            older = sum(value for i, value in row.items() if i != s)
            if self.reading == "intent":
                total += row.get(j, 0.0)
                continue
            if self.reading == "literal":
                total = 0.0
            if j != s and j in row and older > 0:
                total += row[j] / older
        return total


class Algorithm2(Rule):
    reading = "literal"

    def score(self, j, t, visible):
        total = 0.0
        for s, row in self.history:
            if s < self.budget - 1 or j not in row:
                continue
            older = sum(value for i, value in row.items() if i != s)
            if self.reading == "intent":
                total += row[j]
            elif j != s:
                total += row[j] / older if older else 0.0
            elif row[j] > 0:
                # The older entries in units in which the own one is exp(own logit).
                q, k = self.tensors.queries[:, s], self.tensors.keys[s]
                own = math.exp(np.mean([self.tensors.scaling * (x @ k) for x in q]))
                total += 1 / (older * own / row[j]) if older else math.inf
        return total


class H2OLmEvalLlama(H2ORealDrop):
    def score(self, j, t, visible):
        return np.mean(self.rows, axis=0).sum(axis=0)[j]


class ScissorhandsCode(Scissorhands):
    def score(self, j, t, visible):
        tokens, latest = len(self.rows[0]), j
        for s, row in self.history:
            padded = sorted([0.0] * (tokens - len(row)) + list(row.values()))
            place = 0.9 * (tokens - 1)
            low = padded[int(place)]
            high = padded[min(int(place) + 1, tokens - 1)]
            if row.get(j, 0.0) > low + (high - low) * (place - int(place)):
                latest = s
        return latest


class KeyformerCode(Keyformer):
    def score(self, j, t, visible):
        return super().score(j, t, visible) if j < self.prefill else 0.0


class SnapKV(Rule):
    window, kernel, pool = 64, 5, "mean"
    cut = (None, None)

    def protected(self, t):
        recent = min(self.window, (self.budget - 1) // 2) + 1
        return set(range(t - recent + 2, t + 1))

    def score(self, j, t, visible):
        if self.cut[0] != t:  # all victims of one step are chosen by the same scores
            self.cut = (t, tuple(visible))
        window = max(min(self.window, (self.budget - 1) // 2), 1)
        if j > t - window:
            return math.inf
        near = range(j - self.kernel // 2, j + self.kernel // 2 + 1)
        sums = [
            sum(row.get(i, 0.0) for s, row in self.history if s > t - window)
            for i in near
            if i in self.cut[1] and i <= t - window
        ]
        return max(sums) if self.pool == "max" else sum(sums)


class Buzz(Rule):
    stride = 5
    marks, last = None, None

    def parts(self):
        sinks = min(4, self.budget - 1)
        rest = self.budget - sinks
        middle = min(math.floor(round(0.7 * rest * 1000) / 1000), rest - 1)
        return sinks, rest - middle

    def protected(self, t):
        sinks, window = self.parts()
        return set(range(sinks)) | set(range(t - window + 2, t + 1))

    def score(self, j, t, visible):
        self.marks = {} if self.marks is None else self.marks
        moment = (t, len(visible))
        if self.last != moment and not any(self.marks.get(i) == "out" for i in visible):
            middle = sorted(set(visible) - self.protected(t))
            old = [i for i in middle if self.marks.get(i) == "kept"]
            new = [i for i in middle if i not in self.marks]
            kept = old[:: math.ceil(self.stride / 2)]
            for start in range(0, len(new), self.stride):
                kept.append(max(new[start : start + self.stride], key=lambda i: (self.sums(i), -i)))
            self.marks |= {i: "kept" if i in kept else "out" for i in middle}
        self.last = moment
        return 0 if self.marks.get(j) == "out" else 1


class Vatp(Rule):
    recent = 0.5

    def protected(self, t):
        sinks = min(4, self.budget - 1)
        rest = self.budget - sinks
        return set(range(sinks)) | set(range(t - (rest - rest // 2) + 2, t + 1))

    def score(self, j, t, visible):
        norm = sum(abs(x) for x in self.tensors.values[j])
        return sum(row.get(j, 0.0) * norm for _, row in self.history)


class KeyNorm(Rule):
    def score(self, j, t, visible):
        return -np.linalg.norm(self.tensors.keys[j])


class KeyDiff(Rule):
    def score(self, j, t, visible):
        units = {i: self.tensors.keys[i] / np.linalg.norm(self.tensors.keys[i]) for i in visible}
        anchor = sum(units.values())
        return -round(1e9 * (units[j] @ anchor) / np.linalg.norm(anchor))


class ExpectedAttention(Rule):
    sinks, ahead = 4, 512

    def protected(self, t):
        return set(range(min(self.sinks, self.budget - 1)))

    def rotation(self, t):
        theta, width = self.tensors.rotary
        matrix = np.zeros((width, width))
        for f in range(width // 2):
            for s in range(t + 1, t + self.ahead + 1):
                c, w = math.cos(s * theta ** (-2 * f / width)), width // 2
                matrix[f, f] += c
                matrix[f + w, f + w] += c
                matrix[f, f + w] -= math.sin(s * theta ** (-2 * f / width))
                matrix[f + w, f] += math.sin(s * theta ** (-2 * f / width))
        return matrix / self.ahead

    def score(self, j, t, visible):
        if getattr(self, "when", None) != (t, len(visible)):
            self.when, self.found = (t, len(visible)), self.scores(t, visible)
        return self.found[j]

    def scores(self, t, visible):
        turn, total = self.rotation(t), dict.fromkeys(visible, 0.0)
        for queries in self.tensors.unrotated:
            seen = queries[min(self.sinks, self.budget - 1) : t + 1]
            mean, spread = np.zeros(queries.shape[1]), np.zeros((queries.shape[1],) * 2)
            if len(seen):
                mean = turn @ seen.mean(axis=0)
                spread = turn @ np.cov(seen.T, bias=True) @ turn.T
            keys = {i: self.tensors.scaling * self.tensors.keys[i] for i in visible}
            weights = {i: math.exp(mean @ k + 0.5 * k @ spread @ k) for i, k in keys.items()}
            for i, weight in weights.items():
                share = weight / sum(weights.values()) / len(self.tensors.unrotated)
                total[i] += share * np.linalg.norm(self.tensors.values[i])
        return total


class Coverage(Rule):
    kind, cap, window = "raw", 0.9, 64

    def protected(self, t):
        heavy = min(math.floor(0.75 * self.budget), self.budget - 1)
        return set(range(t - (self.budget - heavy) + 2, t + 1))

    def score(self, j, t, visible):
        loss = 0.0
        for s, row in self.history:
            if s > t - self.window and j in row:
                mass = math.fsum(row.get(i, 0.0) for i in visible)
                loss += min(mass, self.cap) - min(mass - row[j], self.cap)
        return round(1e9 * loss)


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
    tokens, rule.prefill = len(rows[0]), prefill
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

"""Which rows of a result table make one series, and what it is called.

The `parameters` of a policy hold its resolved parts, so the same policy reads "n_heavy=12" at one
budget and "n_heavy=25" at another. Only parameters that differ at one and the same budget tell
variants of a policy apart.
"""

__all__ = ["label_series"]


def label_series(results):
    """Copy of the table with the columns `series` (a label) and `variant` (0, 1, ...).

    A policy that occurs once for each head and budget is one series, labelled with its name. A
    policy that occurs with several parameters at one budget splits into variants, labelled with
    the parameters that tell them apart: "h2o (rows=raw)". Parts that also change with the budget
    are matched across budgets by their order, and labelled by their share of the largest budget:
    "h2o (n_recent=25 % of k)". Several seeds of a policy stay one series.

    Parameters
    ----------
    results : DataFrame
        A table that passed `check_results`.

    Returns
    -------
    DataFrame
        A copy with a fresh index. O(rows).
    """
    out = results.reset_index(drop=True)
    labels = {}
    for policy, rows in out.groupby("policy", sort=False):
        cells = list(dict.fromkeys(zip(rows["budget_tokens"], rows["parameters"], strict=True)))
        labels |= {(policy, *cell): name for cell, name in _name_cells(policy, cells).items()}
    keys = zip(out["policy"], out["budget_tokens"], out["parameters"], strict=True)
    out["series"] = [labels[key] for key in keys]
    out["variant"] = out.groupby("policy", sort=False)["series"].transform(
        lambda names: names.map({name: i for i, name in enumerate(names.unique())})
    )
    return out.astype({"variant": int})


def _name_cells(policy, cells):
    """Label of each cell (budget, parameters) of one policy."""
    budgets = [budget for budget, _ in cells]
    if len(set(budgets)) == len(budgets):
        return dict.fromkeys(cells, policy)
    parts = {cell: _parse(cell[1]) for cell in cells}
    fixed, scaled = _telling_keys(parts)
    ranks = _ranks(parts, fixed, scaled)
    label = {}
    # Ascending budgets: the label that stays is the one read at the largest budget.
    for cell in sorted(cells, key=lambda cell: cell[0]):
        words = [f"{key}={parts[cell].get(key, '-')}" for key in fixed]
        words += [f"{key}={_share(parts[cell].get(key, '-'), cell[0])}" for key in scaled]
        label[ranks[cell]] = f"{policy} ({', '.join(words)})"
    return {cell: label[ranks[cell]] for cell in cells}


def _telling_keys(parts):
    """Parameters that tell variants apart: with the same values at each budget, and scaling."""
    values = {}
    for key in dict.fromkeys(key for part in parts.values() for key in part):
        for (budget, _), part in parts.items():
            values.setdefault(key, {}).setdefault(budget, set()).add(part.get(key, "-"))
    telling = [key for key, seen in values.items() if max(map(len, seen.values())) > 1]
    fixed = [key for key in telling if len(set(map(frozenset, values[key].values()))) == 1]
    scaled = [key for key in telling if key not in fixed]
    # The parts of a budget sum to it, so one of them often tells the variants apart.
    for enough in ([], *([key] for key in reversed(scaled))):
        if _separate(parts, fixed + enough):
            return fixed, enough
    return fixed, scaled


def _separate(parts, keys):
    """Whether the values of `keys` tell all cells of one budget apart, at every budget."""
    seen = {(budget, *(part.get(key, "-") for key in keys)) for (budget, _), part in parts.items()}
    return len(seen) == len(parts)


def _ranks(parts, fixed, scaled):
    """Identity of each cell's variant: its fixed values and its rank by the scaled ones."""
    groups = {}
    for cell, part in parts.items():
        name = tuple(part.get(key, "-") for key in fixed)
        order = tuple(_sortable(part.get(key, "-")) for key in scaled)
        groups.setdefault((name, cell[0]), []).append((order, cell))
    return {
        cell: (name, rank)
        for (name, _), members in groups.items()
        for rank, (_, cell) in enumerate(sorted(members))
    }


def _parse(parameters):
    """{"n_sink": "4", ...} of a string like "n_sink=4 rows=raw"; a bare word maps to itself."""
    pairs = (word.partition("=") for word in str(parameters).split())
    return {key: value or key for key, _, value in pairs}


def _number(text):
    try:
        return float(text)
    except ValueError:
        return None


def _sortable(text):
    number = _number(text)
    return (1, 0.0, text) if number is None else (0, number, text)


def _share(text, budget):
    number = _number(text)
    return text if number is None else f"{100 * number / budget:.0f} % of k"

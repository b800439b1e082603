"""What a replay measures against what the running model loses, and where retained sets part."""

import numpy as np

from h2o_theory.figures.live import LiveSetting
from h2o_theory.figures.looks import policy_look
from h2o_theory.figures.series import label_series
from h2o_theory.figures.style import (
    INK,
    PAPER,
    blank,
    draw_series,
    legend_line,
    log_numbers,
    plain,
    styled,
)

__all__ = ["fidelity_figure"]

NAMES = {
    "lost_mass": "lost mass = 1 − retained mass  (log)",
    "ratio_gap": "1 − approximation ratio  (log)",
    "output_error": "output error  (relative, log)",
    "kl": "KL of the rows  (nats, log)",
}
LEAST = 1e-3
_SERIES = ["series", "policy_name", "variant"]


@styled
def fidelity_figure(result):
    """Draw the calibration of each measure of the replay, and the overlap of retained sets.

    Parameters
    ----------
    result : ExperimentResult
        Of :func:`h2o_theory.experiments.fidelity.fidelity`.

    Returns
    -------
    matplotlib.figure.Figure
    """
    setting = result.setting
    points = label_series(result.table[result.table["part"] == "all layers"])
    figure = blank(
        "What the replay predicts of the running model",
        "Points: one policy at one budget on one window, evicting in all layers; up is a larger "
        f"loss increase over the full cache, right is worse by the replay. Points below {LEAST} "
        "nats per token are drawn there. ρ: Spearman's correlation with its 95 % bootstrap "
        "interval over points. Last panel: Jaccard index of the retained sets, replay against "
        f"model, at {setting['followed_budget']} of T; bars span the kv_heads (window 1).",
        LiveSetting(
            model=setting["id"],
            text=setting["text"],
            tokens=setting["tokens"],
            windows=setting["windows"],
            scored=setting["windows"] * (setting["tokens"] - 1),
        ),
        height=7.4,
    )
    panels = figure.subplots(3, 2).ravel()
    for axes, (name, label) in zip(panels, NAMES.items(), strict=False):
        _calibration(axes, points, name, label, result.findings[f"all layers: {name}"])
    _overlap(panels[4], result.extra["overlap"])
    panels[5].axis("off")
    handles = []
    for label, policy, variant in points[_SERIES].drop_duplicates().to_numpy():
        look = policy_look(policy, variant)
        handles.append(
            legend_line(
                label,
                color=look.colour,
                marker=look.marker,
                linestyle="none",
                markerfacecolor=PAPER if look.hollow else look.colour,
            )
        )
    panels[5].legend(handles=handles, loc="upper left", title="policy", ncols=2)
    return figure


def _calibration(axes, points, name, label, found):
    for (_, policy, variant), rows in points.groupby(_SERIES, sort=False):
        look = policy_look(policy, variant)
        axes.plot(
            rows[name],
            np.maximum(rows["loss_increase"], LEAST),
            linestyle="none",
            marker=look.marker,
            color=look.colour,
            markerfacecolor=PAPER if look.hollow else look.colour,
            markersize=4,
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis, limits in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
        log_numbers(axis, limits[1] / limits[0])
    axes.set_xlabel(label)
    axes.set_ylabel("loss increase\n(nats per token, log)")
    axes.set_title(
        plain(
            f"ρ = {found['value']:.3f} [{found['low']:.3f}, {found['high']:.3f}], n = {found['n']}"
        )
    )


def _overlap(axes, overlap):
    overlap = label_series(overlap.assign(budget="1"))
    for (label, policy, variant), rows in overlap.groupby(_SERIES, sort=False):
        draw_series(axes, rows["layer"], rows["jaccard"], policy, variant, label=label)
        colour = policy_look(policy, variant).colour
        axes.vlines(rows["layer"], rows["least"], rows["most"], color=colour, linewidth=0.5)
    axes.axhline(1, color=INK, linewidth=0.8, linestyle=":")
    axes.set_xlabel("layer (0 is the first)")
    axes.set_ylabel("Jaccard index of\nretained sets (1 = equal)")
    axes.set_title("Retained sets: replay against model")
    axes.legend(loc="lower left")

"""Which positions are heavy hitters, as the text goes by."""

import numpy as np
from matplotlib.colors import PowerNorm

from h2o_theory.analysis.evolution import heavy_hitter_map
from h2o_theory.figures.style import MUTED, blank, styled
from h2o_theory.figures.subject import Subject

__all__ = ["heavy_hitter_map_figure"]

MOST_ROWS = 400


@styled
def heavy_hitter_map_figure(analysis):
    """Draw the share of kv_heads in which each position is a heavy hitter, step by step.

    Parameters
    ----------
    analysis : Analysis

    Returns
    -------
    matplotlib.figure.Figure
    """
    subject = Subject.of(analysis)
    steps, share = heavy_hitter_map(analysis.survey)
    heavy = subject.heavy_hitters()
    figure = blank(
        "Heavy hitters over time",
        f"A heavy hitter is one of {heavy}. Brighter: in more kv_heads. A horizontal "
        f"line is a position that stays one; grey is what has not come yet.",
        subject,
        height=4.6,
    )
    axes = figure.subplots()
    tokens = subject.tokens
    rows = np.array_split(np.arange(tokens), min(tokens, MOST_ROWS))
    # The brightest position of each strip: a mean would hide single lines in long texts.
    image = np.array([share[:, strip].max(axis=1) for strip in rows])
    first = np.array([strip[0] for strip in rows])
    image = np.ma.masked_where(first[:, None] > steps[None, :], image)
    edges = np.concatenate([[0], steps + 1])
    heights = np.concatenate([first, [tokens]])
    axes.set_facecolor("#d5d8dc")
    norm = PowerNorm(0.6, vmin=0, vmax=max(image.max(), 1e-9))
    mesh = axes.pcolormesh(edges, heights, image, cmap="cividis", norm=norm, rasterized=True)
    axes.grid(visible=False)
    axes.set_xlabel("step t  (tokens read)")
    axes.set_ylabel("position j  (token index)")
    bar = figure.colorbar(mesh, ax=axes, aspect=30, pad=0.015)
    bar.outline.set_visible(False)
    bar.set_label("share of kv_heads  (brighter: more)")
    axes.tick_params(color=MUTED)
    return figure

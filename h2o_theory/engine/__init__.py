"""Replay of a trace under policies and budgets, and the measures taken on the way."""

from h2o_theory.engine.certified import (
    CertifiedOptimum,
    certified_interval,
    certified_optimum,
)
from h2o_theory.engine.ratios import ratio_intervals
from h2o_theory.engine.replay import COLUMNS, replay
from h2o_theory.engine.schedules import schedules
from h2o_theory.engine.tasks import resolved_parts

__all__ = [
    "COLUMNS",
    "CertifiedOptimum",
    "certified_interval",
    "certified_optimum",
    "ratio_intervals",
    "replay",
    "resolved_parts",
    "schedules",
]

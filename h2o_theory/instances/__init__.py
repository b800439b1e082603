"""Instances: generators of attention rows, of known character or hard for eviction policies.

- :func:`local_rows`, :func:`drifting_rows`, :func:`needle_rows`, :func:`heavy_hitter_rows` and
  :func:`tied_rows` make rows that sum to one and have the character of their name;
- :func:`trap_rows` makes rows on which a policy fails; :func:`lookalike_rows` and
  :func:`surprise_rows` are hard for every online policy, :func:`online_limit` says how hard.
"""

from h2o_theory.instances.families import (
    drifting_rows,
    heavy_hitter_rows,
    local_rows,
    needle_rows,
    tied_rows,
)
from h2o_theory.instances.hard import (
    TRAPS,
    OnlineLimit,
    lookalike_rows,
    online_limit,
    surprise_rows,
    trap_rows,
)

__all__ = [
    "TRAPS",
    "OnlineLimit",
    "drifting_rows",
    "heavy_hitter_rows",
    "local_rows",
    "lookalike_rows",
    "needle_rows",
    "online_limit",
    "surprise_rows",
    "tied_rows",
    "trap_rows",
]

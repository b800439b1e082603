"""The closed loop: eviction inside a running model, seen by deeper layers and later tokens."""

from h2o_theory.live.loop import ClosedLoop, closed_loop

__all__ = ["ClosedLoop", "closed_loop"]

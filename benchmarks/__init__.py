"""Benchmarks, run from a checkout with ``python -m benchmarks``; they are not part of the wheel."""

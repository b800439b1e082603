"""Fixtures shared by the tests."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def committed_trace():
    """The folder of the trace that comes with the project."""
    return Path(__file__).parent.parent / "traces" / "smollm2-135m-512"

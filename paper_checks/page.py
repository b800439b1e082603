"""The table of verdicts as one page of HTML that loads nothing."""

import importlib.resources
import json
from collections import Counter
from pathlib import Path

import jinja2

import h2o_theory
from h2o_theory.store import write_bytes
from paper_checks.finding import VERDICTS
from paper_checks.outcome import summary

__all__ = ["write_page"]


def write_page(outcomes, path):
    """Write the page; it takes its place when complete.

    Raises
    ------
    CannotWrite
        If the place cannot be written.
    """
    template = importlib.resources.files(__package__).joinpath("page.html.j2")
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    page = environment.from_string(template.read_text("utf-8")).render(
        outcomes=outcomes,
        summary=summary(outcomes),
        counts=Counter(outcome.verdict for outcome in outcomes),
        verdicts=VERDICTS,
        version=h2o_theory.__version__,
        text=_text,
    )
    write_bytes(path, page.encode())
    return Path(path)


def _text(value):
    return value if isinstance(value, str) else json.dumps(value, indent=1, ensure_ascii=False)

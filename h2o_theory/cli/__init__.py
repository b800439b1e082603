"""The command line, ``h2o-theory``: one module per verb, each adding its own parser."""

from h2o_theory.cli.main import main

__all__ = ["main"]

"""A long English text that every installation of Python brings along."""

import importlib
import platform

from h2o_theory.errors import MissingDependency

__all__ = ["language_reference"]


def language_reference():
    """The language reference that ``help()`` shows, topics in alphabetical order: (name, text).

    About 110,000 tokens of technical English. The text differs between versions of Python, so the
    name says which.
    """
    try:
        topics = importlib.import_module("pydoc_data.topics").topics
    except ImportError:
        raise MissingDependency(
            "this Python was installed without its help texts",
            hint="Give a text of your own with --text FILE",
        ) from None
    name = f"Python {platform.python_version()} language reference (pydoc_data.topics)"
    return name, "\n\n".join(topics[name] for name in sorted(topics))

"""Every command that the documents and the help texts show is one that the command line takes."""

import re
import shlex
from pathlib import Path

import pytest

from h2o_theory.cli.main import build_parser

ROOT = Path(__file__).parents[2]
DOCUMENTS = ["README.md", "traces/README.md"]


def commands(text):
    """Words of each ``h2o-theory ...`` line in the shell blocks of a text, continuations joined."""
    for block in re.findall(r"```sh\n(.*?)```", text, flags=re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["h2o-theory"]:
                yield words[1:]


def verbs():
    """The parsers of the verbs, with their options."""
    (found,) = (action for action in build_parser()._actions if action.dest == "verb")
    for parser in found.choices.values():
        parser.fill()
    return found.choices.values()


def examples():
    """Commands in the epilogs of the verbs."""
    for parser in verbs():
        text = (parser.epilog or "").replace("\\\n", " ")
        for line in re.findall(r"h2o-theory .*", text):
            yield shlex.split(line)[1:]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_commands_of_a_document(document):
    found = list(commands((ROOT / document).read_text(encoding="utf-8")))
    assert len(found) >= 3
    for words in found:
        build_parser().parse_args(words)


def test_examples_of_the_help_texts():
    found = list(examples())
    assert len(found) >= 4
    for words in found:
        build_parser().parse_args(words)


def test_help_shows_no_escapes():
    """Options' texts are formatted, so that a per cent sign is doubled there; epilogs are not."""
    assert not [parser.prog for parser in verbs() if "%%" in parser.format_help()]

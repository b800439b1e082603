"""Commands as a user would call them."""

from h2o_theory.cli import main


def refused(capsys, arguments, name, *words):
    """The command exits with 2 and ends, after any progress, with one line that names the error."""
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and "Traceback" not in captured.err
    line = captured.err.strip().splitlines()[-1]
    assert line.startswith(f"h2o-theory: {name}: ")
    for word in words:
        assert word in line
    return line

"""Every statement of the H2O paper, executed, with a verdict.

``register.toml`` lists the statements in our own words with the verdict on record; each row names
the function that checks it. A check returns a :class:`CheckFinding`: the verdict it observed, and
the evidence. :func:`run_check` runs one and compares. The package stands beside the toolkit and
is found in a checkout without installation::

    from paper_checks.d_calculus import lemma_d44_5
    print(lemma_d44_5())
"""

from paper_checks.finding import VERDICTS, CheckFinding
from paper_checks.register import Statement, load_register, run_check, select

__all__ = ["VERDICTS", "CheckFinding", "Statement", "load_register", "run_check", "select"]

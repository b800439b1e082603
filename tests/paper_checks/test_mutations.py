"""Each check can fail: a fault in the thing it checks changes its verdict."""

import pytest

from paper_checks import load_register
from paper_checks.mutations import MUTATIONS, WITHOUT, Mutation, run_mutated

ROWS = {row.id: row for row in load_register()}


def test_every_row_has_a_mutation_or_a_reason():
    listed = {mutation.id for mutation in MUTATIONS}
    assert listed | set(WITHOUT) == set(ROWS) and not listed & set(WITHOUT)
    assert all(mutation.says for mutation in MUTATIONS) and all(WITHOUT.values())


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.id)
def test_a_fault_changes_the_verdict(mutation):
    row = ROWS[mutation.id]
    if row.check.startswith("d_"):
        pytest.importorskip("torch", reason="the derivatives are checked with PyTorch")
    assert not row.agrees(run_mutated(row, mutation)), mutation.says


def test_attention_that_is_the_same_everywhere_follows_no_words():
    """Frequency alone gives a strong plain correlation; it is not one with co-occurrence."""
    even = Mutation("obs-cooccurrence", "e_words:_received", _even, "constant attention")
    finding = run_mutated(ROWS["obs-cooccurrence"], even)
    assert finding.verdict == "not reproduced"


def _even(was):
    return lambda: was() * 0 + 1.0


def test_a_fault_is_gone_afterwards():
    mutation = next(mutation for mutation in MUTATIONS if mutation.id == "obs-memory")
    run_mutated(ROWS["obs-memory"], mutation)
    from paper_checks.register import run_check

    assert ROWS["obs-memory"].agrees(run_check(ROWS["obs-memory"]))

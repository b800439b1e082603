"""A finished cell comes back as it was saved, or not at all."""

import numpy as np
import pytest

from h2o_theory.errors import CannotWrite, OutputExists
from h2o_theory.store import CellStore


def test_a_cell_comes_back_as_it_was_saved(tmp_path):
    store, square = CellStore(tmp_path), np.arange(12.0).reshape(3, 4)
    store.save("abc", {"n": 3, "share": float("nan")}, {"column": square[:, 1], "turned": square.T})
    record, arrays = store.load("abc")
    assert record["n"] == 3 and np.isnan(record["share"])
    assert (arrays["column"] == square[:, 1]).all() and (arrays["turned"] == square.T).all()
    assert store.load("abd") is None and store.damaged == []


def test_every_flipped_byte_and_every_cut_is_noticed(tmp_path):
    store = CellStore(tmp_path)
    store.save("abc", {"loss": 2.25}, {"losses": np.arange(3.0)})
    path = store.path("abc")
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        found = CellStore(tmp_path).load("abc")
        # White space in the header is the one thing that means nothing.
        assert found is None or whole[place : place + 1] == b" ", place
        path.write_bytes(whole[:place])
        assert CellStore(tmp_path).load("abc") is None
    path.write_bytes(whole)
    other = store.path("abd")
    other.write_bytes(whole)
    assert store.load("abd") is None and store.damaged == [other]
    assert store.load("abc") is not None


def test_a_failure_is_remembered_until_the_cell_is_there(tmp_path):
    store = CellStore(tmp_path)
    assert store.load_failure("abc") is None
    store.save_failure("abc", "out of memory")
    assert store.load("abc") is None and store.load_failure("abc") == "out of memory"
    store.save("abc", {})
    assert store.load_failure("abc") is None


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(OutputExists):
        CellStore(tmp_path)
    with pytest.raises(CannotWrite, match="folder"):
        CellStore(tmp_path / "notes.txt")
    store = CellStore(tmp_path / "new")
    assert not store.folder.exists() and store.load("abc") is None

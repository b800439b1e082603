"""The notebooks: a guided tour that runs, holds no outputs, and checks itself."""

from pathlib import Path

import nbclient
import nbformat
import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
TOUR = (
    "01_first_replay", "02_record_your_model", "03_ratio_to_optimum", "04_heavy_hitters",
    "05_cooccurrence", "06_add_a_policy", "07_the_guarantee", "08_closed_loop",
    "11_what_it_saves",
)  # fmt: skip
SECONDS_A_CELL = 300
"""Generous: a notebook takes seconds, but the machine may be busy and kernels uncompiled."""


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_the_tour_is_complete():
    assert tuple(path.stem for path in NOTEBOOKS) == TOUR


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_stripped_and_cells_assert(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    for cell in code_cells(notebook):
        assert cell.outputs == [] and cell.execution_count is None, cell.source
    assert sum("assert " in cell.source for cell in code_cells(notebook)) >= 2
    assert notebook.cells[0].cell_type == "markdown" and notebook.cells[0].source.startswith("# ")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path):
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(
        notebook,
        timeout=SECONDS_A_CELL,
        kernel_name="python3",
        resources={"metadata": {"path": str(path.parent)}},
    ).execute()
    assert all(cell.execution_count for cell in code_cells(notebook))

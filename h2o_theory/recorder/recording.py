"""What a finished recording holds and how well it was verified."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from h2o_theory.recorder.selfcheck import TOLERANCE

if TYPE_CHECKING:
    from h2o_theory.recorder.session import Session

__all__ = ["Recording", "RecordingReport", "report_of"]


@dataclass(frozen=True)
class RecordingReport:
    """What a finished recording holds and how well it was verified.

    Attributes
    ----------
    sequences : int
        One, or the number of sequences of the batch.
    rows : int
        Query rows of each layer: the tokens of all sequences, padding not counted.
    layers : tuple of int
    bytes : int
        Size of the trace on disk.
    check_error : dict of int to float
        Layer -> largest relative error of an attention output recomputed from the captured
        tensors, which are the stored ones unless another dtype was asked for.
    storage_error : dict of int to float
        The same, recomputed from tensors rounded to a storage dtype other than the model's;
        empty otherwise.
    checked_rows : int
        Rows recomputed, all layers together, each for every query head.
    tolerance : float
        The relative error that would have been refused.
    seconds : float
        Wall time of the with-block, the model's own work and the writing included.
    kept : int
        Segments of an unfinished recording that were kept, where one was resumed.
    """

    sequences: int
    rows: int
    layers: tuple[int, ...]
    bytes: int
    check_error: dict[int, float]
    storage_error: dict[int, float]
    checked_rows: int
    tolerance: float
    seconds: float
    kept: int

    def __str__(self):
        worst = max(self.check_error.values())
        of = f" of {self.sequences} sequences" if self.sequences > 1 else ""
        text = (
            f"recorded {self.rows} tokens{of} in {len(self.layers)} layers, "
            f"{self.bytes / 1e6:.1f} MB, in {self.seconds:.1f} s; {self.checked_rows} rows "
            f"recomputed, largest relative error {worst:.1e} (accepted: {self.tolerance:g})"
        )
        if self.storage_error:
            text += f", as stored {max(self.storage_error.values()):.1e}"
        if self.kept:
            text += f"; {self.kept} segments of the unfinished recording kept"
        return text


class Recording:
    """What ``record`` yields.

    Attributes
    ----------
    path : Path
        Where the trace is once the block has ended; of a batch, the folder of its traces.
    paths : tuple of Path
        The trace of each sequence; empty while the block lasts.
    report : RecordingReport or None
        None until then.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.paths, self.report = path, (), None

    def __repr__(self):
        state = "recording" if self.report is None else f"{self.report.rows} rows"
        return f"<Recording {self.path}: {state}>"


def report_of(
    paths: Sequence[Path], session: Session, seconds: float, kept: int
) -> RecordingReport:
    """The :class:`RecordingReport` of a finished session whose traces are at ``paths``."""
    checks = [sequence.checks for sequence in session.sequences]
    return RecordingReport(
        sequences=len(checks),
        rows=sum(len(sequence.token_ids) for sequence in session.sequences),
        layers=session.settings.layers,
        bytes=sum(file.stat().st_size for path in paths for file in path.iterdir()),
        check_error=_largest(check.errors for check in checks),
        storage_error=_largest(check.storage_errors for check in checks),
        checked_rows=sum(check.rows for check in checks),
        tolerance=TOLERANCE[session.settings.model_dtype],
        seconds=seconds,
        kept=kept,
    )


def _largest(errors):
    """Layer -> largest error over several sequences."""
    largest = {}
    for of_sequence in errors:
        for layer, error in of_sequence.items():
            largest[layer] = max(error, largest.get(layer, 0.0))
    return dict(sorted(largest.items()))

"""The recorder: models loaded, and their attention captured into traces while they run."""

from h2o_theory.recorder.capture import Recording, RecordingReport, record
from h2o_theory.recorder.families import FAMILIES
from h2o_theory.recorder.models import LoadedModel, load_model
from h2o_theory.recorder.text import record_text

__all__ = [
    "FAMILIES",
    "LoadedModel",
    "Recording",
    "RecordingReport",
    "load_model",
    "record",
    "record_text",
]

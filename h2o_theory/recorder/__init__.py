"""The recorder: models loaded, and their attention captured into traces while they run."""

from h2o_theory.families import FAMILIES
from h2o_theory.recorder.capture import record
from h2o_theory.recorder.models import LoadedModel, load_model
from h2o_theory.recorder.passes import GenerationSettings
from h2o_theory.recorder.recording import Recording, RecordingReport
from h2o_theory.recorder.text import record_text, record_texts
from h2o_theory.recorder.text_plans import missing_plans, plan_texts

__all__ = [
    "FAMILIES",
    "GenerationSettings",
    "LoadedModel",
    "Recording",
    "RecordingReport",
    "load_model",
    "missing_plans",
    "plan_texts",
    "record",
    "record_text",
    "record_texts",
]

"""The trace: recorded attention on disk, written beside and renamed, read lazily, never pickled."""

from h2o_theory.trace.foreign import attention_layers
from h2o_theory.trace.importing import ImportReport, import_attention
from h2o_theory.trace.places import holds_sequences, require_free
from h2o_theory.trace.reader import Trace, open_trace
from h2o_theory.trace.size import header_allowance, packed_bytes, predict_bytes, require_room
from h2o_theory.trace.spec import LayerSpec, TraceSpec
from h2o_theory.trace.validation import validate
from h2o_theory.trace.writer import TraceWriter

__all__ = [
    "ImportReport",
    "LayerSpec",
    "Trace",
    "TraceSpec",
    "TraceWriter",
    "attention_layers",
    "header_allowance",
    "holds_sequences",
    "import_attention",
    "open_trace",
    "packed_bytes",
    "predict_bytes",
    "require_free",
    "require_room",
    "validate",
]

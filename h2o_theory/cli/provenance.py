"""Where a table of results comes from, stored with it and printed in every report."""

from h2o_theory import store
from h2o_theory.attention import SPARSITY_THRESHOLD
from h2o_theory.trace import Trace

__all__ = ["provenance", "without_output_error"]


def without_output_error(trace: Trace) -> str:
    """Why results of a trace have no output error; empty if they have one."""
    missing = [layer.layer for layer in trace.spec.layers if not layer.value_dim]
    return "not measured: the trace holds no values V" if missing else ""


def provenance(trace: Trace, arguments: list[str]) -> dict[str, object]:
    """A flat dictionary: trace, model, text, command, versions, date."""
    spec = trace.spec
    return store.provenance(
        arguments,
        trace=trace.name,
        trace_id=trace.trace_id,
        model=spec.model.get("id", "unknown"),
        text=spec.text.get("name", "unknown"),
        tokens=trace.tokens,
        layers=list(trace.layers),
        content=f"{spec.content} in {spec.dtype}",
        output_error=without_output_error(trace) or "measured",
        sparsity_threshold=SPARSITY_THRESHOLD,
        versions={f"recorded with {name}": version for name, version in spec.versions.items()},
    )

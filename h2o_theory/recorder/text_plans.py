"""What recording texts will write, known and checked before the first of them runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from h2o_theory.annotations import PathLike
from h2o_theory.errors import BadArgument, OutputExists
from h2o_theory.recorder.admission import recordable_modules
from h2o_theory.recorder.destinations import sequence_folder
from h2o_theory.recorder.models import LoadedModel
from h2o_theory.recorder.provenance import describe_model
from h2o_theory.recorder.reading import encode, encode_all
from h2o_theory.recorder.settings import choose_settings, planned_spec
from h2o_theory.trace import open_trace

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from h2o_theory.recorder.passes import GenerationSettings
    from h2o_theory.trace.spec import TraceSpec

__all__ = [
    "is_present",
    "missing_plans",
    "network_of",
    "plan_sequences",
    "plan_texts",
    "tokenizer_of",
]


def plan_texts(
    model: PreTrainedModel | LoadedModel,
    texts: Sequence[str],
    tokens: int | None,
    *,
    several: bool = True,
    tokenizer: Any = None,
    text_name: str = "text",
    generation: GenerationSettings | None = None,
    **options: Any,
) -> list[TraceSpec]:
    """The planned specs of recording texts: what will be written, known before the run.

    Parameters
    ----------
    several : bool
        Whether the texts go to :func:`~h2o_theory.recorder.record_texts` or the only one to
        :func:`~h2o_theory.recorder.record_text`.
    model, texts, tokens, tokenizer, text_name, generation, **options
        As for these.

    Returns
    -------
    list of TraceSpec
        For :func:`h2o_theory.trace.predict_bytes`.

    Raises
    ------
    TextError, BadArgument, OutOfRange, UnsupportedModel
        As these do.
    """
    tokenizer = tokenizer_of(model, tokenizer)
    if not several:
        sequences = [encode(tokenizer, texts[0], tokens, text_name)]
    else:
        sequences = encode_all(tokenizer, texts, tokens, text_name)
    return plan_sequences(model, sequences, generation, options)


def plan_sequences(
    model: PreTrainedModel | LoadedModel,
    sequences: Sequence[Sequence[int]],
    generation: GenerationSettings | None,
    options: Mapping[str, Any],
) -> list[TraceSpec]:
    """The planned spec of each list of token ids, all of them within the model's context.

    ``options`` are those of :func:`~h2o_theory.recorder.record`.
    """
    network = network_of(model)
    recordable_modules(network)
    asked = ("layers", "kv_heads", "store", "store_dtype")
    settings = choose_settings(network, **{key: options[key] for key in asked if key in options})
    provenance = {**_origin(model), **(options.get("model_provenance") or {})}
    found = describe_model(network, network.config._attn_implementation, settings.model_dtype)
    more = generation.new_tokens if generation else 0
    context = getattr(network.config, "max_position_embeddings", None)
    plans = []
    for index, ids in enumerate(sequences):
        if context is not None and len(ids) + more > context:
            which = f" of text {index + 1}" if len(sequences) > 1 else ""
            raise BadArgument(
                f"the tokens{which} must fit the model's context of {context}",
                got=len(ids) + more,
                hint="Record the first of them with --tokens (tokens=)",
            )
        plans.append(
            planned_spec(
                network.config,
                settings,
                len(ids) + more,
                token_ids=tuple(ids),
                prompt_length=len(ids),
                generation=generation.describe() if generation else {},
                model={**found, **provenance},
            )
        )
    return plans


def missing_plans(plans: Sequence[TraceSpec], out: PathLike) -> list[TraceSpec]:
    """Those of the plans whose trace is not in ``out`` yet.

    Raises
    ------
    OutputExists
        As :func:`is_present` does.
    """
    return [plan for i, plan in enumerate(plans) if not is_present(sequence_folder(out, i), plan)]


def is_present(folder: Path, plan: TraceSpec) -> bool:
    """Whether the finished trace of a text is there, recorded as it would be now.

    Raises
    ------
    OutputExists
        If another text is there, or the same by another model or with other options.
    """
    if not folder.exists():
        return False
    found = open_trace(folder).spec
    prompt = (found.token_ids or ())[: found.prompt_length]
    pairs = {
        "the trace of another text": (prompt, plan.token_ids),
        "a trace by another model": (found.model, json.loads(json.dumps(plan.model))),
        "a trace with other generated tokens": (found.generation, plan.generation),
        "a trace of other layers, heads or content": (_shape(found), _shape(plan)),
        "a trace in another dtype": (found.dtype, plan.dtype),
    }
    for what, (there, asked) in pairs.items():
        if there != asked:
            raise OutputExists(
                f"the folder holds {what}",
                where=folder,
                hint="Record into another folder, or go on with the options it was begun with",
            )
    return True


def network_of(model: PreTrainedModel | LoadedModel) -> PreTrainedModel:
    """The transformers model itself."""
    return model.model if isinstance(model, LoadedModel) else model


def tokenizer_of(model: PreTrainedModel | LoadedModel, tokenizer: Any) -> Any:
    """The tokenizer given or that of the model; raises BadArgument if there is neither."""
    if tokenizer is None and isinstance(model, LoadedModel):
        tokenizer = model.tokenizer
    if tokenizer is None:
        raise BadArgument(
            "a text needs a tokenizer, and there is none beside the model",
            hint="Save one into the model's folder, or pass tokenizer=",
        )
    return tokenizer


def _origin(model):
    return model.provenance() if isinstance(model, LoadedModel) else {}


def _shape(spec):
    layers = [
        (layer.layer, layer.q_heads, layer.kv_head_ids, layer.head_dim > 0, layer.value_dim > 0)
        for layer in spec.layers
    ]
    return spec.content, layers

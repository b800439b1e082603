"""``h2o-theory record``: run a model over a text, or several, and keep its attention."""

import argparse
from pathlib import Path
from typing import Any

from h2o_theory.cli.common import integers, say, shown_progress
from h2o_theory.errors import BadArgument
from h2o_theory.trace import require_free

__all__ = ["add_options"]

EPILOG = """examples:
  h2o-theory record smollm2-135m --text notes.txt --tokens 1024 --out notes.trace
  h2o-theory record smollm2-135m --text long.txt --piece 1024 --layers 0,10,20 --out long.trace
  h2o-theory record smollm2-135m --text prompt.txt --generate 200 --top-p 0.9 --seed 3 --out g.trace
  h2o-theory record facebook/opt-6.7b --text set.jsonl --field text --tokens 2048 \\
      --device cuda --dtype float16 --out set.traces
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Describe the verb and add its options."""
    parser.description = (
        "Record queries, keys and values of a model on the first tokens of a text.\n"
        "MODEL is a hub id, a local folder, a .gguf file or the short name smollm2-135m.\n"
        "`h2o-theory ls families` lists what can be recorded."
    )
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("model", metavar="MODEL")
    _add_text_options(parser.add_argument_group("text"))
    _add_model_options(parser.add_argument_group("model"))
    _add_trace_options(parser.add_argument_group("trace"))
    parser.set_defaults(run=run, output="new folder")


def _add_text_options(group):
    group.add_argument("--text", required=True, metavar="FILE", help="UTF-8 file with the text")
    several = group.add_mutually_exclusive_group()
    several.add_argument(
        "--lines",
        action="store_true",
        help="take each line of FILE as a text and record a trace of it",
    )
    several.add_argument(
        "--field",
        metavar="NAME",
        help="take each line of FILE as JSON, with the text in this field",
    )
    group.add_argument("--texts", type=int, metavar="N", help="record the first N lines only")
    group.add_argument(
        "--tokens",
        type=int,
        metavar="T",
        help="tokens to record, of several texts at most T of each (default: all)",
    )
    group.add_argument(
        "--generate", type=int, metavar="N", help="let the model go on for N tokens, greedily"
    )
    group.add_argument(
        "--temperature", type=float, metavar="X", help="sample the tokens, at this temperature"
    )
    group.add_argument(
        "--top-p", type=float, metavar="X", help="nucleus sampling with probability X"
    )
    group.add_argument("--seed", type=int, metavar="S", help="seed of the sampling (default: 0)")


def _add_model_options(group):
    group.add_argument(
        "--device",
        default="cpu",
        help="device: cpu, cuda, cuda:1, ..., or auto to spread layers over all (default: cpu)",
    )
    group.add_argument("--dtype", default="float32", help="dtype of the model (default: float32)")
    group.add_argument(
        "--attention",
        metavar="NAME",
        help="attention implementation that does the work: sdpa, eager, flash_attention_2 "
        "(default: sdpa, or eager where sdpa drops a part of the family's attention)",
    )
    group.add_argument(
        "--piece",
        type=int,
        metavar="N",
        help="tokens per pass; fewer need less memory (default: all)",
    )


def _add_trace_options(group):
    group.add_argument(
        "--out",
        required=True,
        metavar="DIR",
        help="folder of the new trace; of several texts, of their traces 000000, 000001, ...",
    )
    group.add_argument("--layers", metavar="L,L,...", help="layers to record (default: all)")
    group.add_argument("--kv-heads", metavar="H,H,...", help="kv_heads to record (default: all)")
    group.add_argument(
        "--store",
        default="qkv",
        choices=("qkv", "qk", "attention"),
        help="tensors to store: qk leaves out V and with it output errors, attention stores rows "
        "and takes O(T^2) (default: qkv)",
    )
    group.add_argument(
        "--store-dtype",
        default="model",
        choices=("model", "float32", "float16", "bfloat16"),
        help="dtype of the trace; model keeps every bit (default: model)",
    )
    group.add_argument(
        "--token-strings", action="store_true", help="store the text's tokens, not only their ids"
    )
    group.add_argument(
        "--overwrite", action="store_true", help="replace an existing trace, at the very end"
    )
    group.add_argument(
        "--resume",
        action="store_true",
        help="go on with an unfinished recording, or with the texts that have no trace yet",
    )


def run(arguments: argparse.Namespace) -> None:
    """Record and say what was written."""
    from h2o_theory.recorder import (
        load_model,
        missing_plans,
        plan_texts,
        record_text,
        record_texts,
    )

    texts = _texts(arguments)
    generation = _generation(arguments)
    several = arguments.lines or arguments.field is not None
    if several and arguments.overwrite:
        raise BadArgument(
            "--overwrite cannot replace several traces at once",
            hint="Delete the folder or choose another",
        )
    if not (several and arguments.resume):
        require_free(arguments.out, overwrite=arguments.overwrite, resume=arguments.resume)
    name = Path(arguments.text).name
    what: dict[str, Any] = {
        "layers": integers(arguments.layers, "--layers"),
        "kv_heads": integers(arguments.kv_heads, "--kv-heads"),
        "store": arguments.store,
        "store_dtype": arguments.store_dtype,
    }
    how: dict[str, Any] = {
        "piece": arguments.piece,
        "generation": generation,
        "token_strings": arguments.token_strings,
        "resume": arguments.resume,
    }
    with shown_progress() as progress:
        model = load_model(
            arguments.model,
            device=arguments.device,
            dtype=arguments.dtype,
            attention=arguments.attention,
        )
        whole = {"text_name": name, "several": several, "generation": generation}
        plans = plan_texts(model, texts, arguments.tokens, **whole, **what)
        if several and arguments.resume:
            plans = missing_plans(plans, arguments.out)
        _say_size(plans)
        size, out = arguments.tokens, arguments.out
        how |= {"text_name": name, "progress": progress}
        if several:
            recordings = record_texts(model, texts, size, out, **what, **how)
        else:
            how |= {"overwrite": arguments.overwrite}
            recordings = [record_text(model, texts[0], size, out, **what, **how)]
    for recording in recordings:
        say(str(recording.report))
    if len(recordings) < len(texts):
        say(f"{len(texts) - len(recordings)} of {len(texts)} traces were there already")
    print(arguments.out)


def _texts(arguments):
    from h2o_theory.recorder.reading import read_text, read_texts

    if not (arguments.lines or arguments.field is not None):
        if arguments.texts is not None:
            raise BadArgument(
                "--texts needs a file of several texts", hint="Add --lines or --field NAME"
            )
        return [read_text(arguments.text)]
    texts = read_texts(arguments.text, arguments.field)
    if arguments.texts is not None and arguments.texts < 1:
        raise BadArgument("--texts must be at least 1", got=arguments.texts)
    return texts[: arguments.texts]


def _generation(arguments):
    from h2o_theory.recorder.passes import GenerationSettings

    sampling = {"temperature": arguments.temperature, "top_p": arguments.top_p}
    if arguments.generate is None:
        for name, value in {**sampling, "seed": arguments.seed}.items():
            if value is not None:
                raise BadArgument(
                    f"--{name.replace('_', '-')} needs tokens to generate",
                    hint="Add --generate N",
                )
        return None
    if arguments.seed is not None and set(sampling.values()) == {None}:
        raise BadArgument(
            "--seed has no use in greedy generation",
            hint="Add --temperature or --top-p to sample",
        )
    return GenerationSettings(arguments.generate, **sampling, seed=arguments.seed or 0)


def _say_size(plans):
    """What will be written, against the same rows as packed triangles."""
    from h2o_theory.trace import packed_bytes, predict_bytes

    if not plans:
        say("to write: nothing")
        return
    first, total = plans[0], sum(map(predict_bytes, plans))
    traces = f"{len(plans)} traces, " if len(plans) > 1 else ""
    kv_heads = sum(layer.kv_heads for layer in first.layers)
    line = f"to write: {total / 1e6:.1f} MB, {traces}{sum(plan.tokens for plan in plans)} tokens, "
    line += f"{len(first.layers)} layers, {kv_heads} kv_heads in all, {first.dtype}"
    if first.content == "qkv":
        line += f" (packed attention rows: {sum(map(packed_bytes, plans)) / 1e6:.1f} MB)"
    say(line)

"""``h2o-theory record``: run a model over a text and keep its attention."""

from pathlib import Path

from h2o_theory.cli.common import integers, say, shown_progress
from h2o_theory.errors import TextError
from h2o_theory.report import refuse_existing

__all__ = ["add_parser", "read_text"]


def add_parser(verbs):
    """Add the verb."""
    parser = verbs.add_parser(
        "record",
        help="record the attention of a model on a text",
        description="Record queries, keys and values of a model on the first tokens of a text. "
        "MODEL is a hub id, a local folder, a .gguf file or the short name smollm2-135m.",
        epilog="example: h2o-theory record smollm2-135m --text notes.txt --tokens 1024 "
        "--out notes.trace",
    )
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("--text", required=True, metavar="FILE", help="a UTF-8 text file")
    parser.add_argument("--tokens", type=int, required=True, metavar="T", help="tokens to record")
    parser.add_argument("--out", required=True, metavar="DIR", help="folder of the new trace")
    parser.add_argument("--layers", metavar="L,L,...", help="layers to record (default: all)")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, ... (default: cpu)")
    parser.add_argument("--dtype", default="float32", help="of the model (default: float32)")
    parser.add_argument(
        "--store", default="qkv", choices=("qkv", "qk"), help="without V no output error"
    )
    parser.add_argument(
        "--store-dtype",
        default="model",
        choices=("model", "float32", "float16", "bfloat16"),
        help="of the trace; model keeps every bit (default: model)",
    )
    parser.add_argument(
        "--token-strings", action="store_true", help="store the text's tokens, not only their ids"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace an existing trace")
    parser.set_defaults(run=run)


def run(arguments):
    """Record and say what was written."""
    from h2o_theory.recorder import load_model, record_text

    refuse_existing(arguments.out, arguments.overwrite)
    text = read_text(arguments.text)
    layers = integers(arguments.layers, "--layers")
    with shown_progress() as progress:
        model = load_model(arguments.model, device=arguments.device, dtype=arguments.dtype)
        recording = record_text(
            model,
            text,
            arguments.tokens,
            arguments.out,
            layers=layers,
            store=arguments.store,
            dtype=arguments.store_dtype,
            token_strings=arguments.token_strings,
            text_name=Path(arguments.text).name,
            overwrite=arguments.overwrite,
            progress=progress,
        )
    say(str(recording.report))
    print(recording.path)


def read_text(path):
    """The contents of a text file; raises TextError if it is missing, not UTF-8 or empty."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise TextError(
            "the text cannot be read",
            where=path,
            got=error.strerror,
            hint="Give the path of a UTF-8 text file",
        ) from None
    except UnicodeDecodeError as error:
        raise TextError(
            "the text is not UTF-8", where=path, got=f"byte {error.start}: {error.reason}"
        ) from None
    if not text.strip():
        raise TextError("the text is empty", where=path, expected="at least one token")
    return text

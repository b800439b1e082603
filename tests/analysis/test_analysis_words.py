"""From tokens to words: byte-level BPE, SentencePiece, stored strings."""

from dataclasses import replace

import numpy as np
import pytest
import tokenizers
import transformers
from analysis_traces import made_up_trace
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from h2o_theory.analysis.pieces import piece_bytes, token_bytes
from h2o_theory.analysis.words import words_of
from h2o_theory.errors import BadArgument

TEXT = (
    "The naïve miller's café isn’t open; the café—“new”—opens at 10. Zażółć 日本 ok_go "
    "tea-time \U0001f600 The\nEND"
)
WORDS = (
    "the naïve miller's café isn't open the café new opens at 10 zażółć 日本 ok go tea time the end"
).split()


def byte_level():
    """A byte-level BPE tokenizer with a start token, trained on too little to know its words."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    tokenizer.train_from_iterator([TEXT], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))]
    )
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>")


def sentencepiece():
    """A SentencePiece-like tokenizer that falls back on bytes, as LLaMA 2's does."""
    vocabulary = {"<unk>": 0, "<s>": 1, "▁": 2}
    for byte in range(256):
        vocabulary[f"<0x{byte:02X}>"] = len(vocabulary)
    for character in sorted(set(TEXT) - set(" 日é—")):
        vocabulary.setdefault(character, len(vocabulary))
    merges = []
    for pair in (("▁", "T"), ("▁", "t"), ("▁t", "h"), ("▁th", "e"), ("e", "n"), ("▁", "o")):
        merges.append(pair)
        vocabulary.setdefault("".join(pair), len(vocabulary))
    tokenizer = tokenizers.Tokenizer(
        models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True)
    )
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", unk_token="<unk>"
    )


@pytest.mark.parametrize("make", [byte_level, sentencepiece])
def test_words_of_a_real_tokenisation(make):
    tokenizer = make()
    ids = tokenizer(TEXT)["input_ids"]
    trace = made_up_trace(len(ids))
    trace.spec = replace(trace.spec, token_ids=tuple(ids))
    pieces = token_bytes(trace, tokenizer)
    assert pieces[0] is None
    assert b"".join(pieces[1:]).decode().strip() == TEXT
    words = words_of(pieces)
    assert [words.kinds[kind] for kind in words.kind] == WORDS
    # Every letter of every word is in a token of that word, and words are runs of tokens.
    for number, word in enumerate(WORDS):
        tokens = [t for t, w in enumerate(words.token_word) if w == number]
        assert tokens == list(range(tokens[0], tokens[-1] + 1))
        spelled = b"".join(pieces[t] for t in tokens).decode(errors="replace")
        assert word in spelled.lower().replace("’", "'") or "�" in spelled
    assert words.frequency[words.kinds.index("the")] == 3


def test_pieces_by_hand():
    assert piece_bytes("Ġmill", "byte-level") == b" mill"
    assert piece_bytes("Ã©", "byte-level") == "é".encode()
    assert piece_bytes("Ċ", "byte-level") == b"\n"
    assert piece_bytes("▁mill", "sentencepiece") == b" mill"
    assert piece_bytes("<0xE6>", "sentencepiece") == b"\xe6"


def test_stored_strings_and_special_tokens():
    words = words_of([None, b"The", b" mill", b" wh", b"eel", b".", None, b"The", b" \n"])
    assert words.kinds == ("the", "mill", "wheel")
    assert words.token_word.tolist() == [-1, 0, 1, 2, 2, -1, -1, 3, -1]
    assert words.positions().tolist() == [1, 2, 3, 7]
    amounts = words.per_kind(np.arange(9.0))
    assert amounts.tolist() == [1 + 7, 2, 3 + 4]
    assert words_of([]).kinds == () and words_of([b" ", b"..."]).kind.size == 0


def test_a_trace_without_strings_says_how_to_pass_a_tokenizer():
    trace = made_up_trace(20)
    with pytest.raises(BadArgument, match="--tokenizer .*--token-strings.*--no-words"):
        token_bytes(trace)
    with pytest.raises(BadArgument, match="no token ids"):
        token_bytes(trace, byte_level())
    trace.spec = replace(trace.spec, token_ids=(5000,) * 20)
    with pytest.raises(BadArgument, match="not that of the recorded model"):
        token_bytes(trace, byte_level())


def test_strings_without_spaces_are_refused():
    with pytest.raises(BadArgument, match="no spaces"):
        token_bytes(made_up_trace(20, ["word"] * 20))


@pytest.mark.parametrize(
    "strings",
    [
        ["<|endoftext|>", "The", "Ġna", "Ã¯", "ve", "Ġcaf", "Ã©", ".", "Ċ", "It", "Ġis"],
        ["<s>", "▁The", "▁na", "ï", "ve", "▁caf", "<0xC3>", "<0xA9>", ".", "<0x0A>", "It", "▁is"],
        [" The", " na", "ï", "ve", " café", ".", "\n", "It", " is"],
    ],
)
def test_stored_strings_may_be_as_a_tokenizer_prints_them(strings):
    pieces = token_bytes(made_up_trace(len(strings), strings))
    assert words_of(pieces).kinds == ("the", "naïve", "café", "it", "is")


def test_a_vocabulary_without_marks_is_refused():
    plain = tokenizers.Tokenizer(models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=plain)
    trace = made_up_trace(20)
    trace.spec = replace(trace.spec, token_ids=(0,) * 20)
    with pytest.raises(BadArgument, match="byte-level BPE or SentencePiece"):
        token_bytes(trace, tokenizer)

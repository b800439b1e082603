"""From tokens to words: which tokens make up each word of the text."""

import re
from dataclasses import dataclass

import numpy as np

__all__ = ["Words", "words_of"]

WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
"""Letters and digits, with apostrophes inside: don't is one word, a dash or full stop is none."""


@dataclass(frozen=True)
class Words:
    """The words of a text of T tokens, in order: W words of V kinds.

    Attributes
    ----------
    kinds : tuple of str
        The distinct words in lower case, in order of first appearance.
    kind : int array [W]
        Index into ``kinds`` of each word of the text.
    token_word : int array [T]
        The word each token belongs to, -1 for spaces, punctuation and special tokens.
    """

    kinds: tuple
    kind: np.ndarray
    token_word: np.ndarray

    @property
    def frequency(self):
        """How often each kind occurs, int array [V]."""
        return np.bincount(self.kind, minlength=len(self.kinds))

    def per_word(self, amounts):
        """Sums of an amount per token [T] over the tokens of each word [W]."""
        inside = self.token_word >= 0
        return np.bincount(
            self.token_word[inside], weights=amounts[inside], minlength=len(self.kind)
        )

    def per_kind(self, amounts):
        """Sums of an amount per token [T] over all occurrences of each kind [V]."""
        return np.bincount(self.kind, weights=self.per_word(amounts), minlength=len(self.kinds))

    def positions(self):
        """First token of each word, int array [W]."""
        inside = np.flatnonzero(self.token_word >= 0)
        first = np.full(len(self.kind), len(self.token_word))
        np.minimum.at(first, self.token_word[inside], inside)
        return first


def words_of(pieces):
    """Group tokens into words by the text that they spell.

    The bytes of all tokens are joined and decoded, words are found in the text, and a token
    belongs to the word that its first byte inside any word is part of. So characters and words
    may be spread over tokens in any way, whatever the tokenizer.

    Parameters
    ----------
    pieces : list of bytes or None
        From :func:`~h2o_theory.analysis.pieces.token_bytes`; None (a special token) ends a word.

    Returns
    -------
    Words
        O(length of the text).
    """
    chunks = [b"\n" if piece is None else piece for piece in pieces]
    text = b"".join(chunks).decode("utf-8", errors="surrogateescape")
    sizes = np.array([len(c.encode("utf-8", errors="surrogateescape")) for c in text], dtype=int)
    offset = np.concatenate([[0], np.cumsum(sizes)])
    word_at = np.full(offset[-1], -1)
    kinds, kind = {}, []
    for number, match in enumerate(WORD.finditer(text)):
        word_at[offset[match.start()] : offset[match.end()]] = number
        kind.append(kinds.setdefault(match.group().lower().replace("’", "'"), len(kinds)))
    ends = np.cumsum([len(chunk) for chunk in chunks])
    token_word = np.full(len(chunks), -1)
    for token, (chunk, end) in enumerate(zip(chunks, ends, strict=True)):
        inside = word_at[end - len(chunk) : end]
        inside = inside[inside >= 0]
        if len(inside):
            token_word[token] = inside[0]
    return Words(tuple(kinds), np.array(kind, dtype=int), token_word)

"""Attention rows: the pure mathematics that every other room builds on (numpy only)."""

from h2o_theory.attention.rotary import rotate
from h2o_theory.attention.rows import attention_logits, attention_rows, renormalise, softmax_rows
from h2o_theory.attention.sparsity import SPARSITY_THRESHOLD, SparsityCount, count_sparse

__all__ = [
    "SPARSITY_THRESHOLD",
    "SparsityCount",
    "attention_logits",
    "attention_rows",
    "count_sparse",
    "renormalise",
    "rotate",
    "softmax_rows",
]

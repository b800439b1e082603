"""What a cell of a campaign is a result of, as a hash."""

import hashlib
import inspect
import json

import numpy as np

import h2o_theory
from h2o_theory.dependencies import require
from h2o_theory.policies import PlainPolicy

__all__ = ["cell_id", "model_fingerprint", "policy_fingerprint"]


def model_fingerprint(model):
    """A hash of a model's configuration, dtype and weights (their sums, tensor by tensor).

    Two moments of every tensor tell trained weights apart at a hundredth of the cost of hashing
    all their bytes.
    """
    torch = require("torch")
    digest = hashlib.sha256(model.config.to_json_string(use_diff=True).encode())
    for name, tensor in sorted(model.state_dict().items()):
        wide = tensor.detach().float()
        moments = (wide.sum(dtype=torch.float64).item(), wide.norm(dtype=torch.float64).item())
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype} {moments!r}".encode())
    return digest.hexdigest()[:16]


def policy_fingerprint(policy, budget):
    """Name and resolved parameters of a policy, and the source of one that is not shipped.

    The parameters at every budget that occurs, if ``budget`` is an array.
    """
    text = "; ".join(f"{policy.name} {policy.describe(k)}" for k in np.unique(budget).tolist())
    if not isinstance(policy, PlainPolicy):
        return text
    try:
        source = inspect.getsource(type(policy))
    except OSError:  # a class typed into an interpreter has no file
        source = repr(policy)
    return f"{text} {hashlib.sha256(source.encode()).hexdigest()[:16]}"


def cell_id(**what):
    """Sixteen hex digits that change with anything a result depends on; never with the clock."""
    plain = {name: _plain(value) for name, value in what.items()}
    text = json.dumps({"schema": 1, "version": h2o_theory.__version__, **plain}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _plain(value):
    if isinstance(value, np.ndarray):
        return hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
    return value

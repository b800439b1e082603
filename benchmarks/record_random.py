"""Recording random-weight models of published shapes, on a GPU or, small, on the CPU."""

import copy
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
import pandas as pd

from h2o_theory.dependencies import require
from h2o_theory.errors import BadArgument
from h2o_theory.recorder import record
from h2o_theory.recorder.admission import attention_modules
from h2o_theory.recorder.load_options import require_device
from h2o_theory.trace import open_trace

__all__ = ["SHAPES", "run_shapes"]

SHAPES = {
    "opt-6.7b": (
        "opt",
        {"vocab_size": 50272, "hidden_size": 4096, "num_hidden_layers": 32}
        | {"num_attention_heads": 32, "ffn_dim": 16384, "word_embed_proj_dim": 4096},
    ),
    "llama-7b": (
        "llama",
        {"vocab_size": 32000, "hidden_size": 4096, "num_hidden_layers": 32}
        | {"num_attention_heads": 32, "num_key_value_heads": 32, "intermediate_size": 11008},
    ),
    "tiny": (
        "llama",
        {"vocab_size": 97, "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4}
        | {"num_key_value_heads": 2, "intermediate_size": 96, "initializer_range": 0.25},
    ),
}
"""Name -> family and the parts of its configuration that set the size."""

PAIRS = 3
ROWS = 16
"""Rows compared with eager attention, in each of the first, middle and last layer."""


def run_shapes(shapes=None, *, device="cuda", tokens=4096, progress=None):
    """Overhead and peak memory of recording random-weight models in bfloat16 with sdpa.

    Plain and recorded passes over the same random tokens alternate, without the language-model
    head. The trace is written to the temporary folder, whose disk must hold it (6.7B and 7B at
    T = 4096: 3.2 GB). Then ROWS rows of three layers are recomputed from the trace and compared
    with the layer's own attention: its weights and the hidden states it was given in that pass,
    cast to float32, through the family's eager code. What is left is the rounding of q and k to
    bfloat16 and the model's own before it.

    So far this was run on the CPU only, with the tiny shape; not on a GPU, and not at full size.

    Parameters
    ----------
    shapes : list of str, optional
        Keys of SHAPES; opt-6.7b and llama-7b by default.
    device : str
    tokens : int

    Returns
    -------
    pandas.DataFrame
        As :func:`benchmarks.record.run`; the memory rows are of the device, and absent on
        the CPU.

    Raises
    ------
    BadArgument
        For an unknown shape, or a device that is not there.
    """
    shapes = ["opt-6.7b", "llama-7b"] if shapes is None else shapes
    for shape in shapes:
        if shape not in SHAPES:
            expected = " or ".join(SHAPES)
            raise BadArgument("unknown shape", where="shape", got=shape, expected=expected)
    require_device(device)
    table = []
    for done, shape in enumerate(shapes, start=1):
        table += _rows_of_shape(shape, device, tokens)
        if progress:
            progress(done, len(shapes), "shapes recorded")
    return pd.DataFrame(table)


def _rows_of_shape(shape, device, tokens):
    model = _random_model(shape, device, tokens)
    torch = require("torch")
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(3, model.config.vocab_size, (1, tokens), generator=generator).to(device)
    plain, recorded, peaks = [], [], {}
    _timed(model, ids, device, None)
    for _ in range(PAIRS):
        seconds, peaks[False], _ = _timed(model, ids, device, None)
        plain.append(seconds)
        with tempfile.TemporaryDirectory() as folder:
            seconds, peaks[True], report = _timed(model, ids, device, Path(folder) / "trace")
        recorded.append(seconds)
    deviation = _largest_deviation(model, ids)
    row = {
        "benchmark": f"recording {shape}-shaped random weights, bfloat16, sdpa, {device}: time",
        "size": tokens,
        "seconds": median(recorded),
        "baseline": "the same forward pass without recording",
        "baseline_seconds": median(plain),
        "ratio": median(ours / theirs for ours, theirs in zip(recorded, plain, strict=True)),
        "note": f"{report.bytes / 1e6:.1f} MB written, {1000 * median(recorded) / tokens:.2f} s "
        f"per thousand tokens; {3 * ROWS} rows of 3 layers against eager float32: largest "
        f"deviation {deviation:.1e}; self-check {max(report.check_error.values()):.1e}",
    }
    if torch.device(device).type != "cuda":
        return [row]
    memory = {
        "benchmark": row["benchmark"].replace(": time", ": peak device memory"),
        "seconds": float("nan"),
        "baseline_seconds": float("nan"),
        "ratio": peaks[True] / peaks[False],
        "note": f"{peaks[True] / 1e9:.2f} against {peaks[False] / 1e9:.2f} GB allocated",
    }
    return [row, {**row, **memory}]


def _random_model(shape, device, tokens):
    torch, transformers = require("torch"), require("transformers")
    family, sizes = SHAPES[shape]
    config = transformers.AutoConfig.for_model(family, max_position_embeddings=tokens, **sizes)
    kinds = {"dtype": torch.bfloat16, "attn_implementation": "sdpa"}
    devices = [torch.device(device)] if torch.device(device).type == "cuda" else []
    with torch.random.fork_rng(devices=devices), torch.device(device):
        torch.manual_seed(0)
        return transformers.AutoModelForCausalLM.from_config(config, **kinds).eval()


def _timed(model, ids, device, out):
    """Seconds, peak device bytes and report of one pass; recorded if there is an ``out``."""
    torch = require("torch")
    on_gpu, report = torch.device(device).type == "cuda", None
    if on_gpu:
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
    began = time.perf_counter()
    with torch.no_grad():
        if out is None:
            model.base_model(ids, use_cache=False)
        else:
            with record(model, out, tokens=ids.shape[1]) as recording:
                model.base_model(ids, use_cache=False)
            report = recording.report
    if on_gpu:
        torch.cuda.synchronize(device)
    peak = torch.cuda.max_memory_allocated(device) if on_gpu else 0
    return time.perf_counter() - began, peak, report


def _largest_deviation(model, ids):
    """Of sampled rows in the first, middle and last layer, from eager attention in float32."""
    torch = require("torch")
    modules = attention_modules(model)
    layers = sorted({0, len(modules) // 2, len(modules) - 1})
    inputs = {}

    def keep(layer):
        return lambda module, args, kwargs: inputs.update({layer: (args, kwargs)})

    hooks = [
        modules[layer].register_forward_pre_hook(keep(layer), with_kwargs=True) for layer in layers
    ]
    rows, worst = np.linspace(0, ids.shape[1] - 1, ROWS).astype(int), 0.0
    with tempfile.TemporaryDirectory() as folder:
        with torch.no_grad(), record(model, Path(folder) / "trace", layers=layers):
            model.base_model(ids, use_cache=False)
        for hook in hooks:
            hook.remove()
        trace = open_trace(Path(folder) / "trace")
        for layer in layers:
            expected = _eager_rows(modules[layer], *inputs.pop(layer), rows)
            for t, own in zip(rows, expected, strict=True):
                ours = [trace.rows(layer, head, t, t + 1)[:, 0] for head in trace.kv_heads(layer)]
                worst = max(worst, float(np.abs(np.concatenate(ours) - own).max()))
    return worst


def _eager_rows(module, args, kwargs, rows):
    """Attention [rows, heads, T] of a float32 copy of a module with eager attention."""
    torch = require("torch")
    reference = copy.deepcopy(module).float()
    reference.config._attn_implementation = "eager"

    def widened(value):
        if isinstance(value, tuple):
            return tuple(map(widened, value))
        is_half = isinstance(value, torch.Tensor) and value.is_floating_point()
        return value.float() if is_half else value

    args, kwargs = widened(args), {name: widened(value) for name, value in kwargs.items()}
    hidden = args[0] if args else kwargs["hidden_states"]
    tokens = hidden.shape[1]
    future = torch.ones(tokens, tokens, dtype=torch.bool, device=hidden.device).triu(1)
    mask = torch.zeros(tokens, tokens, device=hidden.device).masked_fill_(future, -torch.inf)
    with torch.no_grad():
        weights = reference(*args, **{**kwargs, "attention_mask": mask[None, None]})[1]
    return weights[0, :, torch.as_tensor(rows, device=hidden.device)].transpose(0, 1).cpu().numpy()

"""Where and how a model is to run: device, dtype and attention, tried before anything is read."""

import importlib.util
from typing import Any

from h2o_theory.dependencies import require
from h2o_theory.errors import BadArgument, MissingDependency
from h2o_theory.recorder.admission import INNER

__all__ = ["DTYPES", "load_options", "require_device"]

DTYPES = ("float32", "float16", "bfloat16")

FLASH_PACKAGES = {"flash_attention_2": "flash_attn", "flash_attention_3": "flash_attn_interface"}
"""Implementation -> the Python package that carries it."""


def load_options(device: str, dtype: str, attention: str | None) -> dict[str, Any]:
    """Arguments of ``from_pretrained``.

    Parameters
    ----------
    device, dtype, attention
        As for :func:`~h2o_theory.recorder.models.load_model`.

    Raises
    ------
    BadArgument
        For an unknown dtype or attention, or a device on which torch cannot put a number.
    MissingDependency
        If accelerate or the package of flash attention is needed and not installed.
    """
    if dtype not in DTYPES:
        raise BadArgument(f"dtype must be {', '.join(DTYPES[:-1])} or {DTYPES[-1]}", got=dtype)
    torch = require("torch")
    options = {"dtype": getattr(torch, dtype)}
    if device == "auto":
        options["device_map"] = "auto"
    else:
        require_device(device)
        if torch.device(device).type != "cpu":
            options["device_map"] = {"": device}
    if "device_map" in options:
        require("accelerate")
    if attention is not None:
        _require_attention(attention)
        options["attn_implementation"] = attention
    return options


def require_device(device: str) -> None:
    """Refuse a device on which torch cannot put a number; raises BadArgument."""
    torch = require("torch")
    try:
        if torch.device(device).type == "meta":
            raise RuntimeError("meta tensors hold no numbers")
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, TypeError, NotImplementedError) as error:
        raise BadArgument(
            "device must be cpu, auto or an accelerator that torch sees, such as cuda",
            got=f"{device} ({str(error).splitlines()[0]})",
        ) from None


def _require_attention(attention):
    if attention not in INNER:
        raise BadArgument(
            f"attention must be {', '.join(INNER[:-1])} or {INNER[-1]}", got=attention
        )
    package = FLASH_PACKAGES.get(attention)
    if package is not None and importlib.util.find_spec(package) is None:
        raise MissingDependency(
            f"{attention} needs the package {package}, which is not installed",
            hint="Install flash attention, or use sdpa",
        )

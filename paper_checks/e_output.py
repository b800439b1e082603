"""Part E, claims about the quality of the output, which recorded rows cannot decide."""

from h2o_theory.paper_checks.finding import OUT_OF_REACH, Finding

__all__ = [
    "obs_ablation",
    "obs_diversity",
    "obs_h2o_20",
    "obs_mlp",
    "obs_quant",
    "obs_removal",
    "obs_shots",
    "obs_sparse_transformer",
    "obs_streaming",
    "obs_topk",
]


def _not_run(reason):
    return Finding(OUT_OF_REACH, reason, "nothing was run")


def obs_removal():
    """Needs the running model."""
    return _not_run("About output quality: needs eviction inside the running model.")


def obs_h2o_20():
    """Needs the running model."""
    return _not_run("About output quality: needs eviction inside the running model.")


def obs_ablation():
    """Needs the running model."""
    return _not_run("About output quality: needs eviction inside the running model.")


def obs_shots():
    """Needs tasks and a model that can do them."""
    return _not_run(
        "About accuracy on few-shot tasks: the data sets and models of that size are not here."
    )


def obs_streaming():
    """Needs very long input."""
    return _not_run("About output quality: needs eviction inside the running model.")


def obs_quant():
    """Needs the running model."""
    return _not_run("About output quality: needs eviction inside the running model.")


def obs_sparse_transformer():
    """Needs the running model."""
    return _not_run("About output quality: needs masks inside the running model.")


def obs_topk():
    """Needs the running model."""
    return _not_run("About output quality: needs masks inside the running model.")


def obs_mlp():
    """Needs a trained model with ReLU."""
    return _not_run(
        "The model at hand (SmolLM2) has a SiLU gate, whose neurons are never exactly inactive; "
        "the claim is about ReLU, and random weights would say nothing about trained ones."
    )


def obs_diversity():
    """Needs many sampled continuations."""
    return _not_run(
        "Self-BLEU differs slightly, says the claim: telling a slight difference from chance needs "
        "far more sampled text than a check can draw."
    )

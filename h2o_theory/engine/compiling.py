"""Compiling the loops of policies before any work starts, so that the wait has a name."""

from h2o_theory.engine.advance import compiled_advance
from h2o_theory.engine.stack import compiled_stack_pass
from h2o_theory.policies import Policy

__all__ = ["compile_policies"]


def compile_policies(policies, progress=None):
    """Compile what these policies need; plain ones need nothing."""
    classes = sorted({type(p) for p in policies if isinstance(p, Policy)}, key=lambda c: c.name)
    for done, policy_class in enumerate(classes, start=1):
        if policy_class.name not in ("full", "optimum"):
            compiled_advance(policy_class)
            if any(p.nested for p in policies if isinstance(p, policy_class)):
                compiled_stack_pass(policy_class)
        if progress:
            progress(done, len(classes), "loading policies (compiled on the first run)")

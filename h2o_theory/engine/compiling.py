"""Compiling the loops of policies before any work starts, so that the wait has a name."""

from h2o_theory.engine.advance import compiled_advance
from h2o_theory.engine.stack import compiled_stack_pass
from h2o_theory.policies import CompiledPolicy

__all__ = ["compile_policies"]


def compile_policies(policies, progress=None):
    """Compile what these policies need; plain ones need nothing."""
    compiled = [policy for policy in policies if isinstance(policy, CompiledPolicy)]
    compiled = list(dict.fromkeys(compiled))  # one policy may stand at many budgets
    for done, policy in enumerate(compiled, start=1):
        compiled_advance(policy)
        if policy.nested:
            compiled_stack_pass(policy)
        if progress:
            progress(done, len(compiled), "loading policies (compiled on the first run)")

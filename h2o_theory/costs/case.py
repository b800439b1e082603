"""A case: everything that decides what one generation costs, but for the program's constants."""

from dataclasses import dataclass, replace

from h2o_theory.costs.hardware import Hardware
from h2o_theory.costs.policy import PolicyCost
from h2o_theory.costs.shapes import ModelShape
from h2o_theory.costs.systems import SYSTEMS, System
from h2o_theory.costs.workload import Placement, Workload

__all__ = ["Case"]


@dataclass(frozen=True)
class Case:
    """All that decides what a run costs, but for the constants of the program.

    Attributes
    ----------
    model : ModelShape
    hardware : Hardware
    workload : Workload
    policy : PolicyCost
    system : System
    placement : Placement or None
        None for the system's own.
    """

    model: ModelShape
    hardware: Hardware
    workload: Workload
    policy: PolicyCost
    system: System = SYSTEMS["flexgen"]
    placement: Placement | None = None

    @property
    def placed(self) -> Placement:
        """Where things lie."""
        return self.placement or self.system.placement

    def with_batch(self, batch: int) -> "Case":
        """The same case with another batch."""
        return replace(self, workload=replace(self.workload, batch=batch))

"""The contract of a policy, as checks that anyone can run on a policy of their own.

::

    from h2o_theory.testing import check_policy
    check_policy(MyPolicy())

Every shipped policy passes the same checks, by being registered.
"""

from h2o_theory.testing.contract import ContractReport, check_policy, frozen_since
from h2o_theory.testing.instances import random_rows, random_tensors, schedule_of

__all__ = [
    "ContractReport",
    "check_policy",
    "frozen_since",
    "random_rows",
    "random_tensors",
    "schedule_of",
]

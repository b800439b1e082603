"""Policies that misbehave, for the tests of sweeps."""

import os
import time

import numpy as np

from h2o_theory import PlainPolicy


class Newest(PlainPolicy):
    """Keeps the oldest or, with ``sign=1``, the newest."""

    name = "newest"

    def __init__(self, sign=1):
        self.sign = sign

    def rate(self, t, positions):
        return self.sign * positions


class Raises(Newest):
    name = "raises"

    def rate(self, t, positions):
        raise ZeroDivisionError("not today")


class KillsItsWorker(Newest):
    name = "kills"

    def rate(self, t, positions):
        os._exit(3)


class Slow(Newest):
    name = "slow"

    def start(self, context):
        time.sleep(0.5)

    def rate(self, t, positions):
        return np.zeros(len(positions))


class SeesValues(Newest):
    name = "sees_values"
    needs = "values"

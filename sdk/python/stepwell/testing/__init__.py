"""Tests of workflows without a server, in virtual time: see Environment, and every_crash."""

from .environment import Environment, TestRun
from .explore import every_crash

__all__ = ["Environment", "TestRun", "every_crash"]

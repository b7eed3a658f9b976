"""Tests of workflows without a server, in virtual time: see Environment, every_crash and replay."""

from .environment import Environment, TestRun
from .explore import every_crash
from .replay import replay

__all__ = ["Environment", "TestRun", "every_crash", "replay"]

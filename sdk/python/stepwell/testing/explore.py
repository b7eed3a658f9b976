"""Executes a scenario with a crash at each place where there can be one."""

from __future__ import annotations

from typing import Any, Callable

from ..app import App
from .environment import Environment

# MOST_EXECUTIONS limits how many crashes of one scenario are tried.
MOST_EXECUTIONS = 5000

Scenario = Callable[[Environment], Any]


def every_crash(app: App | Callable[[], App], scenario: Scenario) -> int:
    """Executes a scenario as it is, and then once for each answer that can be lost: of a step, which is then executed
    again, and of a workflow, which is called again. Returns how many crashes were tried.

    The scenario starts runs, lets them happen and asserts what came of it; whatever it changes must be its own. Raises
    AssertionError if, with a crash, the scenario fails, a run ends otherwise or with another output, a step is executed
    with another idempotency key or input, or a run that has ended lacks the result of a step that was executed.
    """
    expected = _execute(app, scenario, 0)
    if expected.places > MOST_EXECUTIONS:
        raise AssertionError(f"the scenario has {expected.places} places to crash at; the limit is {MOST_EXECUTIONS}")
    for at in range(1, expected.places + 1):
        got = _execute(app, scenario, at)
        if got.ends != expected.ends:
            raise AssertionError(f"crash {at}: {got.crash} was lost: {got.ends}, expected {expected.ends}")
        if more := got.effects - expected.effects:
            raise AssertionError(
                f"crash {at}: {got.crash} was lost: executed with another key or input: {sorted(more)}"
            )
    return expected.places


class _Outcome:
    """What came of an execution."""

    def __init__(self) -> None:
        self.places, self.crash = 0, ""
        self.ends: list[tuple[str, str, str]] = []
        self.effects: set[tuple[str, str]] = set()


def _execute(app: App | Callable[[], App], scenario: Scenario, at: int) -> _Outcome:
    env, got = Environment(app if isinstance(app, App) else app()), _Outcome()

    def lose(what: str) -> bool:
        got.places += 1
        if got.places == at:
            got.crash = what
        return got.places == at

    env.lose = lose
    try:
        scenario(env)
    except AssertionError as e:
        raise AssertionError(f"crash {at}: {got.crash} was lost: {e}" if at else str(e)) from e
    got.effects = set(env.executed)
    for run in env.memory.runs:
        got.ends.append((run.id, run.status, repr(run.output) + run.last_error))
        for key, _ in got.effects:
            owner, _, step = key.partition("/")
            if owner == run.id and run.status != "running" and not run.has_result(step):
                raise AssertionError(f"step {step} of run {run.id} was executed, but the run ended without its result")
    return got

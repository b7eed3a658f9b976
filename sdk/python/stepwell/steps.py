"""Executes steps, and tells their functions about the attempt."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from . import codec
from .definition import Step
from .errors import FatalError, Misuse, Undecodable
from .execution import RunInfo
from .store import StepStore

_context: contextvars.ContextVar[StepContext] = contextvars.ContextVar("stepwell_step")


@dataclass(frozen=True)
class StepContext:
    """The attempt of a step that is being executed."""

    run: RunInfo  # its attempt is that of the step
    id: str
    name: str
    deadline: datetime | None  # until when the server waits for the step; None if the step has no timeout
    store: StepStore

    @property
    def attempt(self) -> int:
        """The number of the attempt, from 1."""
        return self.run.attempt

    @property
    def idempotency_key(self) -> str:
        """The same for all attempts. Pass it on, so that the effect happens once."""
        return f"{self.run.id}/{self.id}"


def context() -> StepContext:
    """Returns the attempt that is being executed. Raises Misuse outside of steps."""
    try:
        return _context.get()
    except LookupError:
        raise Misuse("stepwell.context() was called outside of a step") from None


def perform(step: Step[..., Any], call: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Executes an attempt, and returns the output as plain JSON, and what it has written to the store."""
    given = call["step"]
    try:
        arguments = step.signature.decode(given.get("input"))
    except Undecodable as e:
        raise FatalError(f"the input of step {step.name} does not decode: {e.message}", code=e.code) from None
    deadline = codec.parse_time(given["deadline"]) if given.get("deadline") else None
    store = StepStore(call["run"].get("store") or {})
    token = _context.set(StepContext(RunInfo.of(call), given["id"], step.name, deadline, store))
    try:
        output = step.fn(**arguments)
        if inspect.iscoroutine(output):
            output = asyncio.run(output)
    finally:
        _context.reset(token)
    return codec.checked(f"the output of step {step.name}", output), store.written

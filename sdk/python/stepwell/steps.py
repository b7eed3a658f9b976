"""Executes steps, and tells their functions about the attempt."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import time
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Callable, TypeVar, overload

from . import codec
from .definition import Step
from .errors import FatalError, Misuse, Undecodable
from .execution import RunInfo
from .store import StepStore
from .stream import Sender, Stream

T = TypeVar("T")

# Tell tells the server about a step's call: how far it is, as plain JSON.
Tell = Callable[[Any], None]

_EVERY = 1.0  # seconds: the server takes no more heartbeats

_context: contextvars.ContextVar[StepContext] = contextvars.ContextVar("stepwell_step")


@dataclass(frozen=True)
class StepContext:
    """The attempt of a step that is being executed."""

    run: RunInfo  # its attempt is that of the step
    id: str
    name: str
    deadline: datetime | None  # until when the server waits for the step; None if the step has no timeout
    store: StepStore
    _progress: Any = None  # plain JSON
    _tell: Tell = lambda progress: None
    _told: list[float] = field(default_factory=list)  # when the last heartbeat was sent
    _sender: Sender = field(default_factory=lambda: Sender(lambda write: None))

    def heartbeat(self, progress: Any = None) -> None:
        """Says that the step works, and how far it is: JSON of up to 4 KiB, which the next attempt gets by `progress`. One
        within a second of the last one is not sent. Without a server that can be reached, nothing happens.

        Raises StepOver if nobody waits for the step any more. A step with the option heartbeat_timeout must say so that
        often, and is given up otherwise.
        """
        plain = codec.checked("the progress of a step", progress)
        if (size := len(codec.dumps(plain))) > LARGEST_PROGRESS:
            raise FatalError(f"the progress of a step has {size} bytes; the limit is {LARGEST_PROGRESS}")
        if not self._told or time.monotonic() - self._told[-1] >= _EVERY:
            self._told[:] = [time.monotonic()]
            self._tell(plain)

    def stream(self, name: str) -> Stream:
        """Returns a stream of the run. Its chunks are sent in the background, and are there when the step's result is
        recorded. Another attempt writes its own chunks after those of one that has failed."""
        return Stream(name, self._sender.add)

    @overload
    def progress(self, type: type[T]) -> T | None:
        ...

    @overload
    def progress(self, type: Any = Any) -> Any:
        ...

    def progress(self, type: Any = Any) -> Any:
        """Returns what an earlier attempt has said last; None if none has."""
        return None if self._progress is None else codec.from_json(type, self._progress)

    @property
    def attempt(self) -> int:
        """The number of the attempt, from 1."""
        return self.run.attempt

    @property
    def idempotency_key(self) -> str:
        """The same for all attempts. Pass it on, so that the effect happens once."""
        return f"{self.run.id}/{self.id}"


LARGEST_PROGRESS = 4096  # bytes of JSON


def context() -> StepContext:
    """Returns the attempt that is being executed. Raises Misuse outside of steps."""
    try:
        return _context.get()
    except LookupError:
        raise Misuse("stepwell.context() was called outside of a step") from None


def perform(
    step: Step[..., Any], call: dict[str, Any], tell: Tell, sender: Sender
) -> tuple[Any, dict[str, Any]]:  # fmt: skip
    """Executes an attempt, and returns the output as plain JSON, and what it has written to the store."""
    given = call["step"]
    try:
        arguments = step.signature.decode(given.get("input"))
    except Undecodable as e:
        raise FatalError(f"the input of step {step.name} does not decode: {e.message}", code=e.code) from None
    deadline = codec.parse_time(given["deadline"]) if given.get("deadline") else None
    store = StepStore(call["run"].get("store") or {})
    progress = given.get("progress")
    token = _context.set(
        StepContext(RunInfo.of(call), given["id"], step.name, deadline, store, progress, tell, _sender=sender)
    )
    try:
        output = step.fn(**arguments)
        if inspect.iscoroutine(output):
            output = asyncio.run(output)
    finally:
        _context.reset(token)
        sender.end()
    return codec.checked(f"the output of step {step.name}", output), store.written

"""One invocation of a workflow: its code runs as far as the log goes."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Callable, ContextManager, Mapping, Sequence, TYPE_CHECKING

from . import codec
from .definition import Workflow
from .engine import CANCEL_STEP, INLINE, MOST_COMMANDS, Engine, Event, Operation
from .errors import Blocked, Cancelled, StepwellError, Suspended, Undecodable, as_json
from .loop import Future, Loop, duration
from .places import caller
from .stream import Writes

if TYPE_CHECKING:
    from .hooks import Hook

# MOST_AWAITED is how many references the server takes.
MOST_AWAITED = 1000

_running = threading.local()


def current() -> Engine | None:
    """Returns the engine of the workflow that is running in this thread."""
    return getattr(_running, "engine", None)


@dataclass(frozen=True)
class RunInfo:
    """What is known of a run from its start."""

    id: str
    workflow: str
    deployment: str
    created_at: datetime
    attributes: Mapping[str, str]
    key: str = ""  # empty if it has none
    parent_id: str = ""  # the run that has started it as a child; empty if none has
    attempt: int = 1  # of this invocation, or of the step

    @staticmethod
    def of(call: dict[str, Any]) -> RunInfo:
        run = call["run"]
        return RunInfo(
            run["id"], run["workflow"], run.get("deployment", ""), codec.parse_time(run["createdAt"]),
            run.get("attributes") or {}, run.get("key") or "", run.get("parentId") or "", call.get("attempt") or 1,
        )  # fmt: skip


class Continuation:
    """What a workflow returns whose run goes on as another one."""

    def __init__(self, input: Any) -> None:
        self.input = input  # plain JSON


class Execution:
    """What an invocation has in memory. Nothing of it is kept for the next one."""

    def __init__(self, engine: Engine, info: RunInfo, features: Sequence[str] = ("await",)) -> None:
        self.engine, self.info, self.features = engine, info, features
        self.loop = Loop(engine)  # type: ignore[abstract] # the rest is refused
        self.cancel_reason: str | None = None  # None: nobody has asked to cancel the run
        self.store: dict[str, tuple[Any, int]] = {}  # values, and the positions where they were written
        self.inboxes: dict[str, Hook[Any]] = {}
        self.writes = Writes()  # to streams
        # What is entered around an attempt of a function of run.do, by its ID, name and number.
        self.observed: Callable[[str, str, int], ContextManager[None]] = lambda id, name, attempt: nullcontext()
        self.sync = False
        self._interrupt = False
        self._suspended = False
        self._task: asyncio.Task[Any] | None = None
        engine.on_cancel, engine.on_store = self._cancelled, self._stored
        if before := engine.events[0].data.get("continuedFrom"):
            for event in engine.events:
                if event.type == "store_set" and event.id == before:
                    self._stored(event)

    def future(self) -> Future[Any]:
        """Returns a future for something that is asked for."""
        f = self.loop.create_future()
        if self.sync:
            f.drive = self._drive
        return f

    def _cancelled(self, event: Event) -> None:
        self.cancel_reason = event.data.get("reason") or ""
        if self._task:
            self._task.cancel(self.cancel_reason)
        else:
            self._interrupt = True

    def _stored(self, event: Event) -> None:
        for key, value in (event.payload or {}).items():
            if key not in self.store or self.store[key][1] <= event.seq:
                self.store[key] = (value, event.seq)

    def _drive(self, until: asyncio.Future[Any]) -> None:
        """Waits in a plain function: delivers events until there is a result."""
        while not until.done():
            if not self._suspended:
                self.engine.match()
                if self._interrupt:
                    self._interrupt = False
                    until.cancel()
                    raise Cancelled(self.cancel_reason)
            if self._suspended or not self.engine.deliver():
                if not self._suspended and isinstance(until, Future):
                    until.waiters += 1
                self._suspended = self.engine.ended = True
                raise Suspended

    def cancel_step(self, op: Operation, grace: float = 0, reason: str = "") -> None:
        """Cancels a step or child whose result nobody needs."""
        if op.ended or op.cancelled or self.engine.ended:
            return
        op.cancelled = True
        if op.kind == INLINE and not self.engine.has(INLINE, op.id):
            return  # it has not begun
        command: dict[str, Any] = {"type": "cancelStep", "id": op.id, "reason": reason or "its result is not needed"}
        if grace:
            command["grace"] = duration(grace)
        self.engine.ask(Operation(CANCEL_STEP, op.id, command, place=caller()))

    def run(self, workflow: Workflow[Any], input: Any, in_time: Callable[[], bool]) -> dict[str, Any]:
        """Runs the workflow as far as it goes, and returns the answer. Raises Blocked if the run cannot go on."""
        _running.engine = self.engine
        try:
            end = self._end_of(workflow, input)
        finally:
            self.engine.ended = True
            self.loop.abandon()
            _running.engine = None
        if self.engine.failure:
            raise self.engine.failure
        self.engine.claimed(end is not None)
        answer: dict[str, Any] = {"commands": self.engine.commands, "seen": self.engine.events[-1].seq}
        if end:
            self.engine.commands.append(end)
        elif left := self.engine.execute(in_time):
            answer["open"] = left
        else:
            self._await(answer)
        if len(self.engine.commands) > MOST_COMMANDS:
            raise Blocked(
                f"the workflow asks for {len(self.engine.commands)} things at once; the limit is {MOST_COMMANDS}: "
                "use concurrency of run.map, or children",
                "too_many_commands",
            )
        return answer

    def _await(self, answer: dict[str, Any]) -> None:
        """Says what the code waits for, so that it is not called for anything else."""
        awaited = self.engine.awaits()
        if not awaited and not self.engine.receives():
            raise Blocked("the workflow waits for something that nothing brings, such as an asyncio.Event", "stuck")
        if "await" in self.features and len(awaited) <= MOST_AWAITED:
            answer["await"] = {"any": awaited}

    def _end_of(self, workflow: Workflow[Any], input: Any) -> dict[str, Any] | None:
        """Returns the command that ends the run; None if it has to wait."""
        try:
            arguments = workflow.signature.decode(input)
        except Undecodable as e:
            return {"type": "fail", "error": as_json(f"the input does not decode: {e.message}", e.code)}
        try:
            if workflow.is_async:
                ended, output = self._run_async(workflow, arguments)
            else:
                ended, output = self._run_sync(workflow, arguments)
            if not ended:
                return None
            if isinstance(output, Continuation):
                return self._continuing(output)
            return {"type": "complete", "output": codec.checked(f"the output of workflow {workflow.name}", output)}
        except (Cancelled, Exception) as e:
            self.engine.match()  # what the code asked for last; a divergence goes first
            return self._failure(workflow, e)

    def _continuing(self, c: Continuation) -> dict[str, Any]:
        """Returns the command that lets another run go on with the work."""
        if "continueAs" not in self.features:
            raise Blocked("the server does not offer continueAs: upgrade it", "unsupported")
        self.engine.match()
        return {"type": "continueAs", "input": c.input, "read": self.engine.taken()}

    def _failure(self, workflow: Workflow[Any], error: BaseException) -> dict[str, Any]:
        if isinstance(error, Blocked):
            raise error
        if isinstance(error, Cancelled):
            if self.cancel_reason is not None:
                return {"type": "cancelled"}
            return {"type": "fail", "error": as_json("the workflow has cancelled itself", "cancelled")}
        if isinstance(error, StepwellError):
            return {"type": "fail", "error": error.as_json()}
        if isinstance(error, workflow.fail_on):
            return {"type": "fail", "error": as_json(f"{type(error).__name__}: {error}", type(error).__name__)}
        raise error

    def _run_async(self, workflow: Workflow[Any], arguments: dict[str, Any]) -> tuple[bool, Any]:
        from .run import Run

        task = self._task = asyncio.Task(workflow.fn(Run(self), **arguments), loop=self.loop)
        self.loop.scopes[task] = self.loop.root
        while True:
            self.loop.run_until_rest()
            self.engine.match()
            if task.done():
                return True, task.result()
            if not self.engine.deliver():
                return False, None

    def _run_sync(self, workflow: Workflow[Any], arguments: dict[str, Any]) -> tuple[bool, Any]:
        from .run import SyncRun

        self.sync = True
        try:
            output = workflow.fn(SyncRun(self), **arguments)
        except Exception:
            if self._suspended:  # it has caught what leaves it, and failed for that
                return False, None
            raise
        except Suspended:
            return False, None
        if self._suspended:
            return False, None
        self.engine.match()
        return True, output


def now() -> str:
    """Returns the time as the log keeps it."""
    return datetime.fromtimestamp(time.time(), timezone.utc).isoformat(timespec="milliseconds")

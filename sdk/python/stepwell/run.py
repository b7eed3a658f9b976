"""The handle by which a workflow asks for things."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
import uuid
from datetime import datetime

from typing import (
    TYPE_CHECKING, Any, Awaitable, Callable, Mapping, ParamSpec, Sequence, TypeVar, overload,
)  # fmt: skip

from . import codec
from .asking import Asking
from .definition import Seconds, Step, Workflow
from .execution import Continuation, Execution, RunInfo
from .hooks import Approval, Hook, Signal, Update
from .loop import Future
from .store import Store
from .stream import Stream

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")


# LONG_LOG is the length of a log from which on a run had better continue as another one: that of what a call carries.
LONG_LOG = 1000


class _Handle:
    """What both kinds of handles have. Everything in it is the same in each replay."""

    def __init__(self, execution: Execution) -> None:
        self._x = execution
        self._asking = Asking(execution)
        self._randoms: dict[str, random.Random] = {}
        self.store = Store(execution)

    @property
    def info(self) -> RunInfo:
        """The run."""
        return self._x.info

    @property
    def cancel_reason(self) -> str | None:
        """Why somebody has asked to cancel the run; None if nobody has."""
        return self._x.cancel_reason

    def now(self) -> datetime:
        """Returns the time of the last event that the workflow has seen. It never goes back."""
        return self._x.engine.now

    def random(self) -> random.Random:
        """Returns random numbers, a sequence for each task. They can be guessed: secrets come from run.do."""
        path = self._x.loop.scope().path
        if path not in self._randoms:
            fork = self._x.engine.events[0].data.get("fork") or {}  # of a run that goes on with the log of another one
            seed = fork.get("seed", self.info.id)
            self._randoms[path] = random.Random(hashlib.sha256(f"{seed}/{path}".encode()).digest())
        return self._randoms[path]

    def uuid4(self) -> uuid.UUID:
        """Returns a UUID of random()."""
        return uuid.UUID(int=self.random().getrandbits(128), version=4)

    @property
    def log(self) -> LoggerAdapter:
        """A logger that is silent while the workflow repeats what an earlier invocation has done."""
        return _LiveLogger(self._x)

    def patched(self, id: str) -> bool:
        """Reports whether new code is to be used here: true if the workflow comes here for the first time, and when it
        repeats what it did after that; false if this run has passed here before the patch existed."""
        return self._asking.patched(id)

    def set_attributes(self, attributes: Mapping[str, str | None]) -> None:
        """Sets attributes of the run, by which lists find it; None removes one. A run has 64, of 256 bytes each."""
        self._asking.attributes(attributes)

    def stream(self, name: str) -> Stream:
        """Returns a stream, in which the run shows what it does. A chunk is written once, however often the workflow is
        repeated: before the workflow waits."""
        return Stream(name, lambda name, chunk: self._x.writes.add(name, chunk, self._x.engine.live))

    def log_length(self) -> int:
        """Returns about how many events the run's log has up to here. It counts what replays."""
        return self._x.engine.length

    def should_continue(self) -> bool:
        """Reports whether the run should soon end with continue_as, because its log gets long: it has 1,000 events or
        more, besides the messages that wait in its inboxes."""
        return self._x.engine.length - self._x.engine.unread() >= LONG_LOG

    def continue_as(self, input: Any = None) -> Any:
        """Ends the run when the workflow returns what this returns, and begins another one of the same workflow, which
        goes on with its work: return run.continue_as(state).

        One transaction does both. The next run has the input, and takes over key, attributes, store, deadline, slots of
        limits, and the inboxes with the messages that the workflow has not received. Who waits for the run waits for the
        next one. All else ends as at any end of a run: continue when nothing is in progress."""
        return Continuation(codec.checked("the input of the next run", input))

    @overload
    def hook(
        self,
        name: str,
        type: type[T],
        *,
        token: str = "",
        metadata: Any = None,
        webhook: Mapping[str, Any] | None = None,
    ) -> Hook[T]:
        ...

    @overload
    def hook(self, name: str, type: Any = Any, **options: Any) -> Hook[Any]:
        ...

    def hook(self, name: str, type: Any = Any, **options: Any) -> Hook[Any]:
        """Opens a hook for payloads of a type. Whoever knows the token can resume it; by default it cannot be guessed,
        and the workflow does not know it. `metadata` is for those who look at it; `webhook`: {"verify", "secret",
        "respond"}, see docs/webhooks.md."""
        if unknown := options.keys() - {"token", "metadata", "webhook"}:
            raise TypeError(f"a hook has no option {min(unknown)}")
        return self._asking.hook(name, type, options)

    @overload
    def signal(self, name: str, type: type[T], *, condition: str = "", look_back: Seconds = 0) -> Hook[Signal[T]]:
        ...

    @overload
    def signal(self, name: str, type: Any = Any, *, condition: str = "", look_back: Seconds = 0) -> Hook[Signal[Any]]:
        ...

    def signal(self, name: str, type: Any = Any, *, condition: str = "", look_back: Seconds = 0) -> Hook[Signal[Any]]:
        """Opens a hook for signals with a name, and data of a type. The condition is CEL; put values into it by cel().
        With look_back, it also receives signals that were sent so long before and kept by their sender."""
        return self._asking.signal(name, type, condition, look_back)

    @overload
    def inbox(self, name: str, type: type[T]) -> Hook[T]:
        ...

    @overload
    def inbox(self, name: str, type: Any = Any) -> Hook[Any]:
        ...

    def inbox(self, name: str, type: Any = Any) -> Hook[Any]:
        """Returns an inbox, which the start of the run has opened, or opens it now. The n-th receive gets the n-th
        message."""
        return self._asking.inbox(name, type)

    @overload
    def updates(self, name: str, type: type[T]) -> Hook[Update[T]]:
        ...

    @overload
    def updates(self, name: str, type: Any = Any) -> Hook[Update[Any]]:
        ...

    def updates(self, name: str, type: Any = Any) -> Hook[Update[Any]]:
        """Returns an inbox whose messages the run answers, with inputs of a type. See Update and RunHandle.ask."""
        return self._asking.updates(name, type)


class Run(_Handle):
    """The handle of a workflow that is an async function. asyncio.gather, TaskGroup, wait_for and timeout work, and
    asyncio.sleep is a durable wait. Lengths of time are seconds, or timedeltas.
    """

    @overload
    def step(self, step: Step[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        ...

    @overload
    def step(self, step: str, /, input: Any = None, **options: Any) -> Future[Any]:
        ...

    def step(self, step: Step[Any, Any] | str, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Starts a step, at once and in parallel with others, and returns its future. Raises StepFailed there. A step
        of
        another program is started by its name: run.step("label", parcel, deployment="labels")."""
        return self._asking.step(step, args, kwargs)

    def do(self, fn: Callable[[], R], *, name: str = "", retries: int = 4, backoff: Seconds = 1) -> Future[R]:
        """Executes a function right here, in the call of the workflow, and records its result, which must be plain
        JSON.
        It is for what is quick: an attempt that fails is repeated after its pause, with the whole workflow."""
        return self._asking.do(fn, name, retries, backoff)

    def sleep(self, length: Seconds) -> Future[None]:
        """Waits, for up to ten years. No process waits meanwhile."""
        return self._asking.sleep(length)

    def sleep_until(self, at: datetime) -> Future[None]:
        """Waits until a time, which has a time zone."""
        return self._asking.sleep_until(at)

    def approval(self, title: str, **options: Any) -> Future[Approval]:
        """Asks people: see SyncRun.approval."""
        return self._asking.approval(title, **options)

    @overload
    def child(self, workflow: Workflow[R], input: Any = None, **options: Any) -> Future[R]:
        ...

    @overload
    def child(self, workflow: str, input: Any = None, **options: Any) -> Future[Any]:
        ...

    def child(self, workflow: Workflow[Any] | str, input: Any = None, **options: Any) -> Future[Any]:
        """Starts a child run, and returns the future of its output. Raises ChildFailed there. Options: ChildOptions."""
        return self._asking.child(workflow, input, options)

    def start_run(self, workflow: Workflow[Any] | str, input: Any = None, **options: Any) -> Future[str]:
        """Starts a run that is no child, and returns the future of its ID. Options: those of a child, and delay."""
        return self._asking.start_run(workflow, input, options)

    def emit(self, signal: str, data: Any = None, *, keep_for: Seconds = 0) -> Future[None]:
        """Sends a signal. Its future is done when it is on disk."""
        return self._asking.emit(signal, data, keep_for)

    async def map(
        self, items: Sequence[T], fn: Callable[[T], Awaitable[R]], *, key: Callable[[T], str] | None = None,
        concurrency: int = 100,
    ) -> list[R]:  # fmt: skip
        """Calls fn for each item, some at a time, and returns the results in the order of the items. At the first
        error it
        cancels the others. IDs contain the item's index, or its key: then items may be inserted later."""
        left = iter(enumerate(items))
        results: dict[int, R] = {}
        loop = self._x.loop
        scope = loop.scope().child("map")

        async def one(index: int, item: T) -> None:
            results[index] = await fn(item)

        async def work() -> None:
            for index, item in left:
                name = key(item) if key else str(index)
                await loop.spawn(one(index, item), scope.child(name))

        workers = [loop.spawn(work(), scope) for _ in range(min(concurrency, len(items)))]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
        return [results[i] for i in range(len(items))]


class SyncRun(_Handle):
    """The handle of a workflow that is a plain function. Its methods wait. What start… returns does not: call get.
    Lengths of time are seconds, or timedeltas.
    """

    @overload
    def start(self, step: Step[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        ...

    @overload
    def start(self, step: str, /, input: Any = None, **options: Any) -> Future[Any]:
        ...

    def start(self, step: Step[Any, Any] | str, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Starts a step, in parallel with others: see Run.step."""
        return self._asking.step(step, args, kwargs)

    @overload
    def step(self, step: Step[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        ...

    @overload
    def step(self, step: str, /, input: Any = None, **options: Any) -> Any:
        ...

    def step(self, step: Step[Any, Any] | str, /, *args: Any, **kwargs: Any) -> Any:
        """Executes a step, and returns its output. Raises StepFailed."""
        return self._asking.step(step, args, kwargs).get()

    def do(self, fn: Callable[[], R], *, name: str = "", retries: int = 4, backoff: Seconds = 1) -> R:
        """Executes a function right here: see Run.do."""
        output: R = self._asking.do(fn, name, retries, backoff).get()
        return output

    def sleep(self, length: Seconds) -> None:
        """Waits, for up to ten years. No process waits meanwhile."""
        self._asking.sleep(length).get()

    def sleep_until(self, at: datetime) -> None:
        """Waits until a time, which has a time zone."""
        self._asking.sleep_until(at).get()

    def approval(self, title: str, **options: Any) -> Approval:
        """Asks people, and waits until as many as the `quorum` (1) have approved, or one has rejected. `by` are the
        names
        and "role:…" of those who may vote; empty: all. `form` is the JSON Schema of what an approval brings. With
        `distinct_keys`, each API key counts once. With a `timeout`, TimeoutError is raised after it."""
        return self._asking.approval(title, **options).get()

    @overload
    def start_child(self, workflow: Workflow[R], input: Any = None, **options: Any) -> Future[R]:
        ...

    @overload
    def start_child(self, workflow: str, input: Any = None, **options: Any) -> Future[Any]:
        ...

    def start_child(self, workflow: Workflow[Any] | str, input: Any = None, **options: Any) -> Future[Any]:
        """Starts a child run, in parallel with others: see Run.child."""
        return self._asking.child(workflow, input, options)

    def child(self, workflow: Workflow[R], input: Any = None, **options: Any) -> R:
        """Executes a child run, and returns its output. Raises ChildFailed."""
        output: R = self._asking.child(workflow, input, options).get()
        return output

    def start_run(self, workflow: Workflow[Any] | str, input: Any = None, **options: Any) -> str:
        """Starts a run that is no child, and returns its ID."""
        return self._asking.start_run(workflow, input, options).get()

    def emit(self, signal: str, data: Any = None, *, keep_for: Seconds = 0) -> None:
        """Sends a signal."""
        self._asking.emit(signal, data, keep_for).get()


if TYPE_CHECKING:
    LoggerAdapter = logging.LoggerAdapter[logging.Logger]
else:
    LoggerAdapter = logging.LoggerAdapter


class _LiveLogger(LoggerAdapter):
    def __init__(self, execution: Execution) -> None:
        extra = {"run": execution.info.id, "workflow": execution.info.workflow}
        super().__init__(logging.getLogger("stepwell.workflow"), extra)
        self._engine = execution.engine

    def isEnabledFor(self, level: int) -> bool:
        return self._engine.live and super().isEnabledFor(level)


def cel(value: str | int | float | bool) -> str:
    """Returns a value as a literal of CEL, whatever it contains: f"data.order == {cel(order_id)}"."""
    if isinstance(value, (str, bool)):
        return codec.dumps(codec.to_json(value)).decode()
    return f"({float(value)!r})" if isinstance(value, float) else f"({value})"

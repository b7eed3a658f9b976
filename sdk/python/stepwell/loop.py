"""An event loop for workflows: asyncio's own tasks, futures and timeouts, in the order of the run's log.

Callbacks run in the order in which they were scheduled, on nobody's clock. Timers are waits of the run. What would
reach outside, such as sockets and threads, is refused.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Any, Callable, Coroutine, TypeVar

from .engine import CANCEL_WAIT, WAIT, Engine, Operation
from .errors import Misuse
from .places import caller
from .scope import Scope

T = TypeVar("T")
logger = logging.getLogger("stepwell")


class Future(asyncio.Future[T]):
    """The result of something that a workflow has asked for. Await it, also by asyncio.gather and asyncio.wait_for;
    in a plain function, call get. Cancelling it cancels what was asked for.
    """

    abandon: Callable[[], None] | None = None  # cancels what was asked for
    waiters = 0  # how many wait for it
    drive: Callable[[asyncio.Future[Any]], None] | None = None  # waits, in a plain function

    def get(self) -> T:
        """Waits for the result in a workflow that is a plain function."""
        if self.drive is None:
            raise Misuse("get is for workflows that are plain functions: use await")
        if not self.done():
            self.drive(self)
        return self.result()

    def add_done_callback(self, fn: Callable[[Any], object], /, *, context: Any = None) -> None:
        self.waiters += 1
        super().add_done_callback(fn, context=context)

    def remove_done_callback(self, fn: Callable[[Any], object], /) -> int:
        removed = super().remove_done_callback(fn)
        self.waiters -= removed
        return removed

    def cancel(self, msg: Any | None = None) -> bool:
        if not super().cancel(msg):
            return False
        if self.abandon:
            self.abandon()
        return True

    def resolve(self, value: T) -> None:
        """Sets the result, unless it was cancelled."""
        if not self.done():
            self.set_result(value)

    def reject(self, error: BaseException) -> None:
        """Sets the error, unless it was cancelled."""
        if not self.done():
            self.set_exception(error)
            self._log_traceback = False  # whoever does not wait for it does not want to know


class Loop(asyncio.AbstractEventLoop):
    """The loop of one invocation."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.scopes: dict[asyncio.Task[Any], Scope] = {}
        self.root = Scope()
        self._ready: deque[asyncio.Handle] = deque()
        self._waits: dict[asyncio.TimerHandle, Operation] = {}

    def scope(self) -> Scope:
        """Returns the scope of the task that is running."""
        task = asyncio.current_task(self)
        return self.scopes.get(task, self.root) if task else self.root

    def run_until_rest(self) -> None:
        """Runs all callbacks, and those that they schedule, until there is none."""
        outer = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            while self._ready:
                handle = self._ready.popleft()
                if not handle.cancelled():
                    handle._run()
        finally:
            asyncio._set_running_loop(outer)

    def abandon(self) -> None:
        """Ends all tasks. Their finally blocks run, and cannot ask for anything any more."""
        self._ready.clear()
        for task in reversed(list(self.scopes)):
            if task.done():
                continue
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            try:
                coroutine: Any = task.get_coro()
                coroutine.close()
            except BaseException as e:  # what it does while it ends changes nothing
                logger.debug("a task of a workflow has raised while it was put aside: %r", e)
        self._ready.clear()

    # What asyncio needs of a loop:

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def time(self) -> float:
        return self.engine.now.timestamp()

    def create_future(self) -> Future[Any]:
        return Future(loop=self)

    def create_task(self, coro: Coroutine[Any, Any, T], **options: Any) -> asyncio.Task[T]:  # type: ignore[override]
        """Starts a task. Its name is part of the IDs of what it asks for; by default, that of its function."""
        name = str(options.get("name") or getattr(coro, "__name__", "task"))
        return self.spawn(coro, self.scope().child(name), **options)

    def spawn(self, coro: Coroutine[Any, Any, T], scope: Scope, **options: Any) -> asyncio.Task[T]:
        """Starts a task in a scope."""
        task = asyncio.Task(coro, loop=self, **options)
        self.scopes[task] = scope
        return task

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Any = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        handle._scheduled = True  # type: ignore[attr-defined]
        op = ask_wait(self.engine, self.scope().id("wait"), when - self.time(), lambda: self._ready.append(handle))
        self._waits[handle] = op
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        cancel_wait(self.engine, self._waits[handle])

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if self.engine.live and not self.engine.ended and error is not None:
            logger.warning("%s", context.get("message"), exc_info=error)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)


def ask_wait(engine: Engine, id: str, seconds: float, done: Callable[[], None]) -> Operation:
    """Asks for a wait."""
    place = caller()
    command = {"type": "wait", "id": id, "for": duration(max(seconds, 0)), "at": place}
    op = Operation(WAIT, id, command, place=place, received=lambda event: done())
    engine.ask(op)
    return op


def cancel_wait(engine: Engine, op: Operation) -> None:
    """Cancels a wait that has not ended."""
    if not (op.ended or op.cancelled or engine.ended):
        op.cancelled = True
        engine.ask(Operation(CANCEL_WAIT, op.id, {"type": "cancelWait", "id": op.id}, place=caller()))


LONGEST_WAIT = 10 * 365 * 24 * 3600  # seconds


def duration(seconds: float) -> str:
    """Returns a number of seconds as the contract has it, down to microseconds."""
    if not 0 <= seconds <= LONGEST_WAIT:
        raise ValueError(f"a time of {seconds} seconds: the longest is ten years")
    return f"{seconds:.6f}".rstrip("0").rstrip(".") + "s"


def _refused(name: str) -> Callable[..., Any]:
    def refuse(self: Loop, *args: Any, **kwargs: Any) -> Any:
        raise self.engine.fail(Misuse(
            f"{caller()}: {name} reaches outside, or starts a thread: do it in a step, or with run.do"
        ))  # fmt: skip

    return refuse


for _name in (
    "run_in_executor", "call_soon_threadsafe", "getaddrinfo", "getnameinfo", "create_connection", "create_server",
    "create_datagram_endpoint", "create_unix_connection", "create_unix_server", "connect_read_pipe",
    "connect_write_pipe",
    "subprocess_exec", "subprocess_shell", "sock_recv", "sock_sendall", "sock_connect", "add_reader", "add_writer",
    "add_signal_handler", "run_forever", "run_until_complete",
):  # fmt: skip
    setattr(Loop, _name, _refused(_name))

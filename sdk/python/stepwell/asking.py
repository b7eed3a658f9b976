"""Turns what a workflow asks for into operations, and their events into results."""

from __future__ import annotations

import hashlib
import traceback
import typing
from datetime import datetime
from typing import Any, Callable, Mapping, Sequence

from . import codec
from .definition import Seconds, Step, StepOptions, Workflow, decode_output, seconds, step_fields

from .engine import (
    ATTRIBUTES, CHILD, EMIT, HOOK, INBOX, INLINE, MARK, OPEN_INBOX, REPLY, START, STEP, WAIT, Event, Operation,
)  # fmt: skip
from .errors import ChildFailed, FatalError, RetryableError, StepFailed, StepwellError, as_json
from .execution import Execution, now
from .hooks import Approval, Ballot, Hook, Signal, Update, reader
from .loop import Future, ask_wait, cancel_wait, duration
from .places import caller


class ChildOptions(typing.TypedDict, total=False):
    """Options of a child: its `id` in the log; a `key` that one live run of the workflow has; `timeout` and
    `timeout_grace`; `attributes`; `deployment`, or "latest"; `on_parent_end`: "cancel" (default) or "leave"; `grace`:
    how long it may take to end when its future is cancelled. Of a run that is no child also `delay`.
    """

    id: str
    key: str
    timeout: Seconds
    timeout_grace: Seconds
    attributes: Mapping[str, str]
    deployment: str
    on_parent_end: str
    grace: Seconds
    delay: Seconds


_FIELDS = {"timeout_grace": "timeoutGrace", "on_parent_end": "onParentEnd"}


class Asking:
    """Asks for operations on behalf of a handle."""

    def __init__(self, execution: Execution) -> None:
        self._x = execution

    def _id(self, name: str) -> str:
        return self._x.loop.scope().id(name)

    def _ask(
        self, kind: str, id: str, name: str, command: dict[str, Any], read: Callable[[Event], Any], *,
        grace: float = 0, execute: Callable[[int], dict[str, Any]] | None = None,
    ) -> Future[Any]:  # fmt: skip
        """Asks for what ends with one event. The future's result is what read returns for it, or its error what it
        raises."""
        f = self._x.future()
        place = caller()

        def received(event: Event) -> None:
            try:
                f.resolve(read(event))
            except StepwellError as e:
                f.reject(e)

        op = Operation(kind, id, {**command, "at": place}, name=name, place=place, received=received, execute=execute)
        op.awaited = lambda: f.waiters > 0
        self._x.engine.ask(op)
        f.abandon = lambda: self._x.cancel_step(op, grace)
        return f

    def step(self, step: Step[Any, Any] | str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Future[Any]:
        if isinstance(step, str):
            return self._named_step(step, *args, **kwargs)
        return self._step(
            step.name, step.signature.encode(args, kwargs), step.fields, step.options, step.signature.result
        )

    def _named_step(self, name: str, input: Any = None, **options: Any) -> Future[Any]:
        made = typing.cast(StepOptions, options)
        return self._step(name, input, step_fields(made), made, Any)

    def _step(self, name: str, input: Any, fields: dict[str, Any], options: StepOptions, hint: Any) -> Future[Any]:
        id = options.get("id") or self._id(name)
        command = {
            "type": "runStep",
            "id": id,
            "name": name,
            "input": codec.checked(f"the input of step {name}", input),
            **fields,
        }

        def read(event: Event) -> Any:
            if event.type == "step_completed":
                return decode_output(f"step {id}", hint, event.payload)
            raise _failed(
                event, lambda message, code, details: StepFailed(name, id, message, code=code, details=details)
            )

        return self._ask(STEP, id, name, command, read)

    def do(self, fn: Callable[[], Any], name: str, retries: int, backoff: Seconds) -> Future[Any]:
        name = name or getattr(fn, "__name__", "do").replace("<lambda>", "do")
        id, place, pause, hint = self._id(name), caller(), seconds(backoff), _result_of(fn)
        duration(pause)  # checks it

        def execute(attempt: int) -> dict[str, Any]:
            begun = now()
            command = {"type": "recordStep", "id": id, "name": name, "at": place, "startedAt": begun}

            def observed() -> Any:
                with self._x.observed(id, name, attempt):
                    return fn()

            pause_before = min(pause * 2 ** (attempt - 1), 300)
            command.update(_outcome(observed, f"run.do {name}", attempt <= retries, pause_before))
            return {**command, "endedAt": now()}

        def read(event: Event) -> Any:
            if event.type == "step_completed":
                return decode_output(f"run.do {id}", hint, event.payload)
            raise _failed(
                event, lambda message, code, details: StepFailed(name, id, message, code=code, details=details)
            )

        return self._ask(INLINE, id, name, {"type": "recordStep"}, read, execute=execute)

    def patched(self, id: str) -> bool:
        id = self._id("patch:" + id)
        engine = self._x.engine
        if not engine.live and not engine.has(MARK, id):
            return False
        place = caller()
        engine.ask(Operation(MARK, id, {"type": "recordStep", "id": id, "name": id, "at": place}, name=id, place=place))
        return True

    def sleep(self, length: Seconds) -> Future[None]:
        return self._wait({"for": duration(max(seconds(length), 0))})

    def sleep_until(self, at: datetime) -> Future[None]:
        if at.utcoffset() is None:
            raise ValueError(f"{at} has no time zone")
        return self._wait({"until": at.isoformat()})

    def _wait(self, when: dict[str, str]) -> Future[None]:
        f, place, id = self._x.future(), caller(), self._id("wait")
        command = {"type": "wait", "id": id, "at": place, **when}
        op = Operation(WAIT, id, command, place=place, received=lambda event: f.resolve(None))
        op.awaited = lambda: f.waiters > 0
        self._x.engine.ask(op)
        f.abandon = lambda: cancel_wait(self._x.engine, op)
        return f

    def attributes(self, attributes: Mapping[str, str | None]) -> None:
        id = self._id("attributes")
        command = {"type": "setAttributes", "id": id, "attributes": codec.to_json(dict(attributes)), "at": caller()}
        self._x.engine.ask(Operation(ATTRIBUTES, id, command, place=caller()))

    def hook(
        self, name: str, hint: Any, fields: Mapping[str, Any], read: Callable[[Event], Any] | None = None
    ) -> Hook[Any]:
        id, place = self._id(name), caller()
        set_fields = {key: codec.to_json(value) for key, value in fields.items() if value not in (None, "")}
        op = Operation(HOOK, id, {"type": "openHook", "id": id, "at": place, **set_fields}, place=place)
        hook = Hook(self._x, op, read or reader(hint), fields.get("token") or "")
        self._x.engine.ask(op)
        return hook

    def signal(self, name: str, hint: Any, condition: str, look_back: Seconds) -> Hook[Any]:
        fields: dict[str, Any] = {"name": name}
        if condition:
            fields["condition"] = condition
        if length := seconds(look_back):
            fields["lookBack"] = duration(length)

        def read(event: Event) -> Any:
            got = event.payload or {}
            return Signal(got.get("signal", name), got.get("id", ""), codec.from_json(hint, got.get("data")))

        return self.hook(name, hint, {"signal": fields}, read)

    def updates(self, name: str, hint: Any) -> Hook[Update[Any]]:
        def read(event: Event) -> Any:
            input = codec.from_json(hint, event.payload)
            return Update(name, event.data.get("messageId") or "", input, self._reply)

        return self.inbox(name, hint, read)

    def _reply(self, update: Update[Any], answer: dict[str, Any]) -> None:
        if not update.id:  # it was sent without one: nobody can ask for the answer
            return
        digest = hashlib.sha256(f"{INBOX}{update.inbox} {update.id}".encode()).hexdigest()
        id, place = "reply:" + digest[:32], caller()
        if self._x.engine.operation(REPLY, id):
            raise StepwellError(f"update {update.id} is answered already", code="already_answered")
        command = {"type": "reply", "inbox": update.inbox, "message": update.id, "at": place, **answer}
        op = Operation(REPLY, id, command, name="reply", place=place)
        op.awaited = lambda: False
        self._x.engine.ask(op)

    def inbox(self, name: str, hint: Any, read: Callable[[Event], Any] | None = None) -> Hook[Any]:
        engine, id = self._x.engine, INBOX + name
        if id in self._x.inboxes:
            return self._x.inboxes[id]
        op = engine.inbox(id)
        if not engine.has(HOOK, id):
            engine.ask(Operation(OPEN_INBOX, id, {"type": "openHook", "id": id}, place=caller()))
        hook = self._x.inboxes[id] = Hook(self._x, op, read or reader(hint))
        for event in op.early:
            hook.feed(event)
        op.early = []
        return hook

    def approval(
        self, title: str, *, by: Sequence[str] = (), quorum: int = 1, form: Any = None, distinct_keys: bool = False,
        timeout: Seconds | None = None, name: str = "approval",
    ) -> Future[Approval]:  # fmt: skip
        settings: dict[str, Any] = {"title": title, "quorum": quorum}
        settings.update({key: v for key, v in (("by", list(by)), ("form", form), ("distinctKeys", distinct_keys)) if v})
        f: Future[Approval] = self._x.future()
        ballot = Ballot(quorum, distinct_keys)
        hook = self.hook(name, Any, {"approval": settings})

        def vote(event: Event) -> None:
            if not f.done() and (decision := ballot.add(event.payload)):
                end()
                f.resolve(decision)

        def end() -> None:
            hook.close()
            if wait:
                cancel_wait(self._x.engine, wait)

        def over() -> None:
            hook.close()
            f.reject(TimeoutError(f"nobody has decided in time: {title}"))

        hook.operation.received = vote
        wait = ask_wait(self._x.engine, self._id("wait"), seconds(timeout), over) if timeout is not None else None
        f.abandon = end
        return f

    def child(self, workflow: Workflow[Any] | str, input: Any, options: Mapping[str, Any]) -> Future[Any]:
        name, hint = _target(workflow)
        id, grace = options.get("id") or self._id(name), seconds(options.get("grace", 0))

        def read(event: Event) -> Any:
            if event.type == "step_completed":
                return decode_output(f"child {id}", hint, event.payload)
            code = event.data.get("errorCode")
            raise _failed(event, lambda message, own, details: ChildFailed(
                id, self._child_run(id), message, code=code or own, details=details
            ))  # fmt: skip

        return self._ask(CHILD, id, name, self._start("startChild", id, name, input, options), read, grace=grace)

    def _child_run(self, id: str) -> str:
        op = self._x.engine.operation(CHILD, id)
        run: str = (op.created.data.get("step") or {}).get("childId", "") if op and op.created else ""
        return run

    def start_run(self, workflow: Workflow[Any] | str, input: Any, options: Mapping[str, Any]) -> Future[str]:
        name, _ = _target(workflow)
        id = options.get("id") or self._id(name)

        def read(event: Event) -> Any:
            if event.type == "step_completed":
                return event.payload["runId"]
            raise _failed(
                event, lambda message, code, details: StepFailed(name, id, message, code=code, details=details)
            )

        return self._ask(START, id, name, self._start("startRun", id, name, input, options), read)

    def _start(self, kind: str, id: str, name: str, input: Any, options: Mapping[str, Any]) -> dict[str, Any]:
        if unknown := options.keys() - ChildOptions.__annotations__.keys():
            raise TypeError(f"a child has no option {min(unknown)}")
        command: dict[str, Any] = {
            "type": kind, "id": id, "workflow": name, "input": codec.checked(f"the input of workflow {name}", input)
        }  # fmt: skip
        for option, value in options.items():
            if option in ("timeout", "timeout_grace", "delay"):
                command[_FIELDS.get(option, option)] = duration(seconds(value))
            elif option not in ("id", "grace"):
                command[_FIELDS.get(option, option)] = codec.to_json(value)
        return command

    def emit(self, signal: str, data: Any, keep_for: Seconds) -> Future[None]:
        id = self._id("emit:" + signal)
        command = {
            "type": "emit",
            "id": id,
            "signal": signal,
            "data": codec.checked(f"the data of signal {signal}", data),
        }
        if length := seconds(keep_for):
            command["keepFor"] = duration(length)
        return self._ask(EMIT, id, signal, command, lambda event: None)


def _result_of(fn: Callable[[], Any]) -> Any:
    """Returns the type of what a function returns, as it says itself."""
    try:
        return typing.get_type_hints(fn).get("return", Any)
    except (NameError, TypeError):  # types of a block, or a built-in function
        return Any


def _target(workflow: Workflow[Any] | str) -> tuple[str, Any]:
    if isinstance(workflow, str):
        return workflow, Any
    return workflow.name, workflow.signature.result


def _failed(event: Event, make: Callable[[str, str, Any], StepwellError]) -> StepwellError:
    error = event.payload if isinstance(event.payload, dict) else {}
    code = error.get("code") or event.data.get("errorCode") or ""
    return make(error.get("message") or "it has failed", code, error.get("details"))


def _outcome(fn: Callable[[], Any], what: str, again: bool, pause: float) -> dict[str, Any]:
    """Executes a function of run.do, and returns what is to be recorded."""
    try:
        return {"output": codec.checked(f"the result of {what}", fn())}
    except FatalError as e:
        return {"error": e.as_json()}
    except Exception as e:
        error = step_error(e)
        if not again:
            return {"error": error}
        return {
            "error": error,
            "retryAfter": duration(min(max(pause, e.after if isinstance(e, RetryableError) else 0, 0.001), 86400)),
        }


def step_error(e: BaseException) -> dict[str, Any]:
    """Returns the error of an attempt, with the code of its own or the name of its class, and where it came from."""
    if isinstance(e, StepwellError):
        return e.as_json()
    frames = traceback.extract_tb(e.__traceback__)
    where = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames[-8:]]
    return as_json(f"{type(e).__name__}: {e}", type(e).__name__, {"stack": "\n".join(where)})

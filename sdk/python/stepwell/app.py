"""An app: workflows and steps, and how calls of the server are answered."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import math
import os
import threading
import time
import typing
from dataclasses import dataclass, field
from typing import Any, Callable, ContextManager, Coroutine, Mapping, Sequence, TypeVar, overload

from . import codec, contract, signature
from .definition import P, R, Step, StepDecorator, StepOptions, Workflow, decorate
from .engine import Engine, Event
from .errors import Blocked, FatalError, RetryableError, StepOver, StepwellError, Unencodable, as_json
from .execution import Execution, RunInfo
from .asking import step_error
from .observing import Observe, Work, observed
from .sealing import Codec, CodecFailed, Sealer, opened
from .steps import Tell, perform
from .stream import Send, Sender, Writes

O = TypeVar("O")
logger = logging.getLogger("stepwell")

# BEGINNING is for how many seconds of an invocation functions of run.do begin. The server waits for 4½ minutes.
BEGINNING = 120

STEP_OUTPUT = "application/vnd.stepwell.step+json"


@dataclass
class Response:
    """The answer to a call."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})


class App:
    """Workflows and steps that a server calls. Serve it by `wsgi`, `asgi` or `serve`, or call `handle` yourself.

    Calls must be signed with one of `signing_keys`: up to two, separated by a comma, by default those of
    STEPWELL_SIGNING_KEYS. Without any, `unsigned` must say why that is right; a worker needs neither. `server` is the
    server's address, for logs of more than 1,000 events; by default that of STEPWELL_URL. With `strict_inputs`, a run
    is blocked if a step's input is not the one in its log; otherwise that is logged. A `codec` transforms payloads before
    they leave the app, such as by encryption: see sealing.Codec. What `observe` has is called with each call of a workflow
    and each attempt of a step, for traces and metrics: see observing.Observe, and otlp.Exporter.
    """

    def __init__(
        self, name: str, *, signing_keys: str | None = None, unsigned: str = "", server: str = "",
        strict_inputs: bool = False, codec: Codec | None = None, observe: Sequence[Observe] = (),
    ) -> None:  # fmt: skip
        keys = signing_keys if signing_keys is not None else os.environ.get("STEPWELL_SIGNING_KEYS", "")
        self.name, self.server, self.strict_inputs, self.codec = name, server, strict_inputs, codec
        self.observers = list(observe)
        self.keys = signature.parse_keys(keys) if keys else []
        self.unsigned = unsigned
        self.workflows: dict[str, Workflow[Any]] = {}
        self.steps: dict[str, Step[..., Any]] = {}
        self.stopping = False  # calls that have not begun are refused, and made again elsewhere
        self.copies = 0  # calls that were copies of one under way
        self.clock: Callable[[], float] = time.time  # by which signatures are checked
        self._under_way: dict[tuple[str, int], concurrent.futures.Future[Response]] = {}
        self._lock = threading.Lock()

    def add(self, *definitions: Step[..., Any] | Workflow[Any]) -> None:
        """Adds steps that were made with step(), and workflows of other apps."""
        for d in definitions:
            known = typing.cast(dict[str, Any], self.steps if isinstance(d, Step) else self.workflows)
            if known.get(d.name, d) is not d:
                raise ValueError(f"app {self.name} has {d.name} already")
            known[d.name] = d

    @overload
    def workflow(self, fn: Callable[..., Coroutine[Any, Any, O]], /) -> Workflow[O]:
        ...

    @overload
    def workflow(self, fn: Callable[..., O], /) -> Workflow[O]:
        ...

    @overload
    def workflow(
        self, *, name: str | None = None, fail_on: tuple[type[Exception], ...] = ()
    ) -> Callable[[Callable[..., Any]], Workflow[Any]]:
        ...

    def workflow(
        self, fn: Callable[..., Any] | None = None, *, name: str | None = None,
        fail_on: tuple[type[Exception], ...] = (),
    ) -> Any:  # fmt: skip
        """Makes a workflow of a function, and adds it. Its exceptions of fail_on fail the run, as a StepwellError does;
        others block it."""

        def made(fn: Callable[..., Any]) -> Workflow[Any]:
            w: Workflow[Any] = Workflow(fn, name or fn.__name__, fail_on)
            self.add(w)
            return w

        return made if fn is None else made(fn)

    @overload
    def step(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Step[P, R]:
        ...

    @overload
    def step(self, fn: Callable[P, R], /) -> Step[P, R]:
        ...

    @overload
    def step(self, *, name: str | None = None, **options: Any) -> StepDecorator:
        ...

    def step(self, fn: Callable[..., Any] | None = None, *, name: str | None = None, **options: Any) -> Any:
        """Makes a step of a function, as step() does, and adds it."""
        return decorate(fn, name, typing.cast(StepOptions, options), self.add)

    def check_served(self) -> None:
        """Raises ValueError if anybody could call the app, or with everything that cannot work."""
        if not self.keys and not self.unsigned:
            raise ValueError(
                f"app {self.name} has no signing keys: create one with stepwell signing-keys create, and set "
                "STEPWELL_SIGNING_KEYS; or say why calls are unsigned"
            )
        self.check()

    def check(self) -> None:
        """Raises ValueError with everything that cannot work."""
        problems = [p for w in self.workflows.values() for p in w.problems()]
        problems += [p for s in self.steps.values() for p in s.signature.problems()]
        if problems:
            raise ValueError(f"app {self.name}: " + "; ".join(problems))

    def handle(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Response:
        """Answers a call. The target is the path and query as sent; headers are found by their names in lower case."""
        if method not in ("POST", "OPTIONS"):
            return refusal(405, "the server calls by POST")
        try:
            if self.keys or not self.unsigned:
                signature.verify(method, target, headers, body, self.keys, self.clock())
        except signature.Refused as e:
            return refusal(401, str(e.args[1]), "wrong_signature", retryable=True)
        if method == "OPTIONS":  # the server asks what it may call the app with
            return Response(200, headers={"Stepwell-Features": "check"})
        trace = headers.get("traceparent", ""), headers.get("tracestate", "")
        return self.answer(body, trace=trace)

    def answer(
        self, body: bytes, in_time: Callable[[], bool] | None = None, tell: Tell | None = None, send: Send | None = None,
        trace: tuple[str, str] = ("", ""),
    ) -> Response:  # fmt: skip
        """Answers a call whose sender is known. No function of run.do begins when in_time returns False; heartbeats of
        steps go to tell, and what is written to streams to send, by default to the server. Trace has the traceparent and
        the tracestate of the call."""
        if self.stopping:
            return refusal(503, "the app is stopping", "shutdown")
        try:
            call = codec.loads(body)
            if b'"$codec"' in body:
                call = opened(self.codec, call)
            call["trace"] = trace
            r = self._answer(call, in_time, tell, send)
            writes = r.headers["Content-Type"] == STEP_OUTPUT
            return Response(r.status, Sealer(self.codec).answer(call, r.status, r.body, writes), r.headers)
        except CodecFailed as e:  # the server calls again, and counts no attempt of a step
            logger.error("a call cannot be answered: %s", e.message)
            return refusal(503 if call["type"] == "step" else 500, e.message, e.code)
        except (StepwellError, KeyError, TypeError) as e:
            return refusal(400, f"this is no call of the function contract: {e!r}")

    def _answer(
        self, call: dict[str, Any], in_time: Callable[[], bool] | None, tell: Tell | None, send: Send | None
    ) -> Response:
        kind = call["type"]
        if kind == "step":
            tell = tell or contract.heartbeats(call, self.server, bool(self.keys), self.codec)
            return self._perform(call, tell, self._sender(call, send))
        if kind == "workflow":
            limit = in_time or _for(BEGINNING)
            return self._shared((call["invocation"], call.get("attempt") or 1), lambda: self._invoke(call, limit, send))
        if kind == "check":
            return self._check(call)
        return refusal(400, f"unknown type of call {kind!r}")

    def _sender(self, call: dict[str, Any], send: Send | None) -> Sender:
        if send:
            return Sender(send, every=0)
        return Sender(contract.stream_sender(call, self.server, bool(self.keys), self.codec))

    def _shared(self, id: tuple[str, int], invoke: Callable[[], Response]) -> Response:
        """Lets copies of one call, which proxies may send, share one execution and its answer."""
        with self._lock:
            if other := self._under_way.get(id):
                self.copies += 1
            else:
                own = self._under_way[id] = concurrent.futures.Future()
        if other:
            return other.result()
        try:
            own.set_result(invoke())
        except BaseException as e:
            own.set_exception(e)
        finally:
            with self._lock:
                del self._under_way[id]
        return own.result()

    def _check(self, call: dict[str, Any]) -> Response:
        """Replays the log of an open run, which the code is to go on with later. No step or function of run.do is executed."""
        try:
            self._advance(call, lambda: False, lambda write: None)
        except Blocked as e:
            return refusal(500, e.message, e.code)
        except (Exception, SystemExit) as e:
            return reply(500, {"error": step_error(e)})
        return reply(200, {"replayed": len(call["events"])})

    def _invoke(self, call: dict[str, Any], in_time: Callable[[], bool], send: Send | None) -> Response:
        run = call["run"]
        try:
            with self._observed("workflow", call, run["workflow"]):
                return Response(200, self._advance(call, in_time, send))
        except StepOver as e:
            return refusal(409, str(e), "stale_invocation")
        except Blocked as e:
            logger.error("run %s of %s is blocked: %s", run["id"], run["workflow"], e.message)
            return refusal(500, e.message, e.code)
        except (Exception, SystemExit) as e:
            logger.exception("run %s of %s is blocked", run["id"], run["workflow"])
            return reply(500, {"error": step_error(e)})

    def _advance(self, call: dict[str, Any], in_time: Callable[[], bool], send: Send | None) -> bytes:
        workflow = self.workflows.get(call["run"]["workflow"])
        if workflow is None:
            raise Blocked(f"app {self.name} has no workflow {call['run']['workflow']!r}", "unknown_workflow")
        contract.check_features(call)
        server = contract.server_of(call, self.server, bool(self.keys))
        events = [Event(e) for e in contract.whole_log(call, server, self.codec)]
        engine = Engine(events, call.get("known") or 0, self.strict_inputs)
        execution = Execution(engine, RunInfo.of(call), call["server"]["features"])
        execution.observed = lambda id, name, attempt: self._observed("step", call, name, id, attempt)
        got = execution.run(workflow, call["run"].get("input"), in_time)
        self._write(execution.writes, send or contract.stream_sender(call, self.server, bool(self.keys), self.codec))
        for op, logged in engine.differing:
            logger.warning(
                "run %s: the input of %s at %s is not the one in the log: make it from the input and results only",
                execution.info.id, logged.id, op.place,
            )  # fmt: skip
        body = codec.dumps(got)
        if len(body) > 16 << 20:
            raise Blocked(f"the workflow asks for {len(body)} bytes at once; the limit is 16 MiB", "answer_too_large")
        return body

    def _observed(
        self, kind: str, call: dict[str, Any], name: str, id: str = "", inline: int = 0
    ) -> ContextManager[None]:
        """Returns what is entered around work; inline is the number of an attempt that the call of a workflow makes."""
        if not self.observers:
            return contextlib.nullcontext()
        run = RunInfo.of(call)
        trace = call.get("trace", ("", ""))
        return observed(self.observers, Work(kind, name, run, id, inline or run.attempt, inline > 0, *trace))

    def _write(self, writes: Writes, send: Send) -> None:
        """Sends what a workflow has written to streams."""
        try:
            while writes.waiting:
                send(writes.take().as_json())
        except FatalError as e:
            raise Blocked(e.message, e.code) from None

    def _perform(self, call: dict[str, Any], tell: Tell, sender: Sender) -> Response:
        """Executes a step."""
        step = self.steps.get(call["step"]["name"])
        if step is None:
            return refusal(503, f"app {self.name} has no step {call['step']['name']!r}", "unknown_step")
        try:
            with self._observed("step", call, step.name, call["step"]["id"]):
                output, written = perform(step, call, tell, sender)
        except FatalError as e:
            return reply(422, {"error": e.as_json()})
        except (Exception, asyncio.CancelledError, SystemExit) as e:
            failed = reply(500, {"error": step_error(e)})
            if isinstance(e, RetryableError) and e.after > 0:
                failed.headers["Retry-After"] = str(math.ceil(e.after))
            return failed
        if not written:
            return reply(200, output)
        done = reply(200, {"output": output, "store": written})
        done.headers["Content-Type"] = STEP_OUTPUT
        return done


def _for(seconds: float) -> Callable[[], bool]:
    began = time.monotonic()
    return lambda: time.monotonic() - began < seconds


def reply(status: int, plain: Any) -> Response:
    """Returns an answer with JSON."""
    return Response(status, codec.dumps(plain))


def refusal(status: int, message: str, code: str = "", **more: Any) -> Response:
    """Returns an answer with an error."""
    return reply(status, {"error": {**as_json(message, code), **more}})

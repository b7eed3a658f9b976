"""An environment of a test: an app, the server in memory, and everything that happens outside."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any, Callable, Sequence

from .. import codec
from ..app import App
from ..definition import Seconds, Workflow, seconds
from ..errors import StepwellError
from ..sealing import opened
from .memory import FEATURES, Memory, OpenHook, OpenStep, Rejected, Run, length

# GIVEN_UP is after how many failed invocations in a row a run is called no more: the real server goes on.
GIVEN_UP = 3
_START = datetime(2026, 1, 1, tzinfo=timezone.utc)


class TestRun:
    """A run of a test."""

    __test__ = False  # for pytest

    def __init__(self, environment: Environment, run: Run) -> None:
        self._environment, self._run = environment, run

    @property
    def id(self) -> str:
        return self._run.id

    @property
    def status(self) -> str:
        """running, completed, failed or cancelled."""
        return self._run.status

    @property
    def error(self) -> dict[str, Any]:
        """The error of a run that has failed, as JSON."""
        if self._run.status != "failed":
            raise AssertionError(f"run {self.id} is {self.status}: {self._run.last_error}")
        error: dict[str, Any] = self._opened(self._run.output)
        return error

    @property
    def blocked(self) -> str:
        """Why the last invocation failed; empty if it did not."""
        return self._run.last_error

    @property
    def store(self) -> dict[str, Any]:
        return {key: self._opened(value) for key, value in self._run.store.items()}

    @property
    def attributes(self) -> dict[str, str]:
        return dict(self._run.attributes)

    @property
    def log(self) -> list[dict[str, Any]]:
        """The events, as the API shows them."""
        return self._run.log

    def export(self) -> dict[str, Any]:
        """Returns the run with its log, as a line of `stepwell runs export` has it."""
        run = {"id": self.id, "workflow": self._run.workflow, "deployment": "tests", "attributes": self.attributes}
        return {"run": run, "events": self._run.log}

    @property
    def invocations(self) -> int:
        return self._run.invocations

    def result(self, type: Any = Any) -> Any:
        """Lets everything happen, and returns the output: of the last run, if it goes on as others. Raises
        AssertionError if that does not complete."""
        self._environment.run_until_done()
        run = self._run
        while run.next:
            run = run.next
        if run.status != "completed":
            waits = [*run.steps, *run.waits, *run.hooks]
            why = run.last_error or run.output or f"it waits for {', '.join(waits) or 'nothing'}"
            raise AssertionError(f"run {run.id} of {run.workflow} is {run.status}: {why}")
        return codec.from_json(type, self._opened(run.output))

    @property
    def continued(self) -> TestRun | None:
        """The run as which it goes on; None if it does not."""
        return TestRun(self._environment, self._run.next) if self._run.next else None

    def stream(self, name: str, type: Any = Any) -> list[Any]:
        """Returns what the run has written to a stream."""
        stream = self._run.streams.get(name)
        return [codec.from_json(type, self._opened(chunk)) for chunk in stream.chunks] if stream else []

    def _opened(self, plain: Any) -> Any:
        return opened(self._environment.app.codec, plain)


class Environment:
    """Executes the runs of an app in virtual time, and calls each workflow twice to see that it does the same.

    Nothing happens by itself: call run_until_idle, run_until_done, advance, or result of a run. Conditions of signals
    are not evaluated.
    """

    def __init__(self, app: App) -> None:
        app.check()
        self.app = app
        self.memory = Memory(_START)
        self.executed: list[tuple[str, str]] = []  # idempotency keys and inputs (JSON) of steps, in order
        self.lose: Callable[[str], bool] = lambda what: False  # whether an answer is lost

    @property
    def now(self) -> datetime:
        return self.memory.now

    def start(
        self, workflow: Workflow[Any] | str, input: Any = None, *, inbox: Sequence[str] = (), attributes: dict[str,
        str] | None = None
    ) -> TestRun:  # fmt: skip
        """Starts a run."""
        name = workflow if isinstance(workflow, str) else workflow.name
        run = self.memory.start(name, codec.to_json(input), attributes or {})
        for box in inbox:
            self.memory.write(run, "hook_created", "inbox:" + box, {"token": f"{run.id}-{box}"})
            run.hooks["inbox:" + box] = OpenHook("inbox:" + box, f"{run.id}-{box}", {})
        return TestRun(self, run)

    def resume(self, token: str, payload: Any = None) -> None:
        """Sends a payload to the hook with the token. Raises LookupError if none is open."""
        found = self.memory.holder(token)
        if found is None:
            raise LookupError(f"no open hook has the token {token!r}")
        self.memory.write(found[0], "hook_received", found[1].id, {"via": "api"}, codec.to_json(payload))

    def send(self, run: TestRun, inbox: str, payload: Any, *, id: str = "") -> None:
        """Sends a message to an inbox. One with the ID of an earlier one is ignored."""
        hook = self._hook(run, "inbox:" + inbox)
        if id not in hook.messages:
            hook.messages.update({id} - {""})
            self.memory.write(run._run, "hook_received", hook.id, {"messageId": id}, codec.to_json(payload))

    def answer(self, run: TestRun, inbox: str, id: str) -> dict[str, Any] | None:
        """Returns the run's answer to an update, as {"output": …} or {"error": …}; None if there is none yet."""
        for event in run._run.log:
            if event["type"] == "step_created" and (event.get("data") or {}).get("stepName") == "reply":
                given = event["payload"]
                if (given["inbox"], given["message"]) == (inbox, id):
                    return {key: given[key] for key in ("output", "error") if key in given}
        return None

    def vote(
        self, run: TestRun, approval: str, decision: str, *, by: str = "ann", key: str = "key_1", comment: str = "",
        form: Any = None
    ) -> None:  # fmt: skip
        """Votes on an approval by the ID of its hook: "approve" or "reject"."""
        vote = {"decision": decision, "by": by, "key": key, "comment": comment, "form": codec.to_json(form)}
        self.memory.write(run._run, "hook_received", self._hook(run, approval).id, {"via": "api"}, vote)

    def signal(
        self, name: str, data: Any = None, *, id: str = "sig_1", matches: Callable[[str], bool] = lambda _: True
    ) -> int:
        """Sends a signal to all hooks that wait for it and whose condition matches. Returns how many receive it."""
        received = 0
        for run in self.memory.runs:
            for hook in run.hooks.values() if run.status == "running" else ():
                wanted = hook.command.get("signal") or {}
                if wanted.get("name") == name and matches(wanted.get("condition", "")):
                    payload = {"signal": name, "id": id, "data": codec.to_json(data)}
                    self.memory.write(run, "hook_received", hook.id, {"via": "signal"}, payload)
                    received += 1
        return received

    def cancel(self, run: TestRun, reason: str = "", *, grace: Seconds = 0) -> None:
        """Cancels a run: at once, or by asking it first."""
        self.memory.cancel(run._run, reason, timedelta(seconds=seconds(grace)))

    def _hook(self, run: TestRun, id: str) -> OpenHook:
        if id not in run._run.hooks:
            raise LookupError(f"run {run.id} has no open hook {id!r}, but {list(run._run.hooks)}")
        return run._run.hooks[id]

    def run_until_idle(self) -> None:
        """Does everything that can be done now."""
        while any(self._act(run) for run in list(self.memory.runs) if run.status == "running"):
            pass

    def run_until_done(self) -> None:
        """Does everything, and lets the time pass until nothing is left that would happen by itself."""
        self.run_until_idle()
        while times := self._times():
            self.memory.now = max(self.now, min(times))
            self.run_until_idle()

    def advance(self, length: Seconds) -> None:
        """Lets time pass, in seconds or as a timedelta, and does what becomes due."""
        end = self.now + timedelta(seconds=seconds(length))
        self.run_until_idle()
        while (times := self._times()) and min(times) <= end:
            self.memory.now = max(self.now, min(times))
            self.run_until_idle()
        self.memory.now = end
        self.run_until_idle()

    def _times(self) -> list[datetime]:
        times: list[datetime] = []
        for run in self.memory.runs:
            if run.status == "running":
                times += [s.due for s in run.steps.values() if not s.child]
                times += [*run.waits.values(), *(at for at in run.pauses.values() if at)]
                times += [run.forced_at] if run.forced_at else []
                times += [run.due] if run.wanted and run.due and run.failed < GIVEN_UP else []
        return times

    def _act(self, run: Run) -> bool:
        """Does one thing that is due, and reports whether there was one."""
        if run.forced_at and run.forced_at <= self.now:
            self.memory.end(run, "cancelled", None)
            return True
        for id, due in run.waits.items():
            if due <= self.now:
                del run.waits[id]
                self.memory.write(run, "wait_completed", id)
                return True
        for id, at in run.pauses.items():
            if at and at <= self.now:
                run.pauses[id] = None
                self.memory.write(run, "step_started", id)
                run.wanted = True
                return True
        for step in run.steps.values():
            if not step.child and step.due <= self.now:
                self._execute(run, step)
                return True
        if run.wanted and run.failed < GIVEN_UP and (run.due is None or run.due <= self.now):
            self._invoke(run)
            return True
        return False

    def _about(self, run: Run) -> dict[str, Any]:
        return {
            "id": run.id, "workflow": run.workflow, "deployment": self.app.name, "attributes": run.attributes,
            "createdAt": run.log[0]["createdAt"], "parentId": run.parent[0].id if run.parent else "",
            "store": run.store,
        }  # fmt: skip

    def _invoke(self, run: Run) -> None:
        run.wanted, run.due = False, None
        run.invocations += 1
        call = codec.dumps({
            "type": "workflow", "invocation": f"rh_{run.id}_{run.invocations}", "attempt": run.failed + 1,
            "token": "token",
            "server": {"contract": 2, "features": FEATURES}, "run": {**self._about(run), "input": run.input},
            "known": run.known, "hooksUrl": "https://stepwell.test/hooks/", "events": run.log,
        })  # fmt: skip
        writes: list[Any] = []

        def send(write: dict[str, Any]) -> None:
            writes.append(write)
            self.memory.write_stream(run, write)

        first = self.app.answer(call, send=send)
        repeated: list[Any] = []
        again = self.app.answer(call, in_time=lambda: False, send=repeated.append)
        problem = ""
        if first.status != 200:
            error = codec.loads(first.body)["error"]
            problem = f"{error.get('code', '')}: {error['message']}"
        elif _asked(first.body) != _asked(again.body):
            problem = (
                f"two calls with the same log had different answers:\n{first.body.decode()}\n{again.body.decode()}"
            )
        elif writes != repeated:
            problem = f"two calls with the same log write differently to streams:\n{writes}\n{repeated}"
        elif self.lose(f"an answer of run {run.id}"):
            run.wanted = True
            return
        try:
            if not problem:
                self.memory.apply(run, codec.loads(first.body))
                run.last_error, run.failed = "", 0
        except Rejected as e:
            problem = f"the server would reject the answer: {e}"
        if problem:
            run.last_error, run.wanted, run.failed = problem, True, run.failed + 1
            run.due = self.now + timedelta(seconds=2 ** (run.failed - 1))

    def _execute(self, run: Run, step: OpenStep) -> None:
        """Makes one attempt of a step."""
        id, command = step.command["id"], step.command
        if step.attempt == 0 and not run.has("step_started", id):
            self.memory.write(run, "step_started", id)
        call = str(len(self.executed))

        def send(write: dict[str, Any]) -> None:
            self.memory.write_stream(run, write, id, call)

        self.executed.append((f"{run.id}/{id}", codec.dumps(command.get("input")).decode()))
        r = self.app.answer(codec.dumps({
            "type": "step", "invocation": f"rh_{run.id}_{id}", "attempt": step.attempt + 1, "run": self._about(run),
            "step": {
                "id": id, "name": command.get("name", id), "input": command.get("input"), "progress": step.progress
            },
        }), tell=lambda progress: setattr(step, "progress", progress), send=send)  # fmt: skip
        if self.lose(f"the result of step {id} of run {run.id}"):
            return
        step.attempt += 1
        body = codec.loads(r.body)
        if r.status == 200:
            del run.steps[id]
            if r.headers["Content-Type"] != "application/json":
                self.memory.set_store(run, id, {"stepName": command["name"]}, body["store"])
                body = body["output"]
            self.memory.write(run, "step_completed", id, {}, body)
        elif body["error"].get("code") == "unknown_step":
            raise AssertionError(body["error"]["message"])
        else:
            self._failed(run, step, body["error"], r.status < 500, float(r.headers.get("Retry-After", "0")))

    def _failed(self, run: Run, step: OpenStep, error: dict[str, Any], fatal: bool, after: float) -> None:
        retry = step.command.get("retry") or {}
        if fatal or step.attempt >= retry.get("maxAttempts", 5):
            del run.steps[step.command["id"]]
            self.memory.write(run, "step_failed", step.command["id"], {}, error)
            return
        pause = length(retry.get("backoff"), 1) * retry.get("factor", 2) ** (step.attempt - 1)
        pause = min(pause, length(retry.get("maxBackoff"), 300))
        step.due = self.now + max(pause, timedelta(seconds=after))
        self.memory.write(run, "step_retrying", step.command["id"], {}, error)


def _asked(body: bytes) -> Any:
    """Returns the commands of an answer, except what functions of run.do have done."""
    try:
        return [c for c in codec.loads(body)["commands"] if "endedAt" not in c]
    except (StepwellError, KeyError):
        return body

"""The function contract's server in memory and in virtual time: it keeps logs and carries out commands."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from ..codec import parse_time
from ..errors import FatalError

FEATURES = [
    "seen", "at", "known", "retryAfter", "cancelStep", "cancelWait", "cancel", "store", "inbox", "await", "emit", "startRun",
    "undo", "reply", "stream", "continueAs",
]  # fmt: skip
_WAKES = {"hook_received", "hook_conflict", "cancel_requested"}
_ENDS = {"step_completed", "step_failed", "wait_completed"}  # these do if they are awaited


class Rejected(Exception):
    """The server would refuse an answer, for the reason that the exception gives."""


@dataclass
class OpenStep:
    command: dict[str, Any]
    due: datetime
    attempt: int = 0
    progress: Any = None  # of its last heartbeat
    child: Run | None = None


@dataclass
class OpenHook:
    id: str
    token: str
    command: dict[str, Any]
    messages: set[str] = field(default_factory=set)


@dataclass
class OpenStream:
    chunks: list[Any] = field(default_factory=list)
    closed: bool = False
    writers: dict[str, tuple[str, int]] = field(default_factory=dict)  # the last attempt, and its next index


@dataclass
class Run:
    """A run. Its status is running, completed, failed or cancelled; output is that of a run that has ended, or its
    error."""

    id: str
    workflow: str
    input: Any
    created_at: datetime
    attributes: dict[str, str]
    status: str = "running"
    output: Any = None
    log: list[dict[str, Any]] = field(default_factory=list)
    store: dict[str, Any] = field(default_factory=dict)
    invocations: int = 0
    last_error: str = ""  # why the last invocation failed; empty if it did not
    parent: tuple[Run, str] | None = None
    next: Run | None = None  # as which it goes on
    streams: dict[str, OpenStream] = field(default_factory=dict)
    wanted: bool = True
    due: datetime | None = None  # when it is called again after a failure
    failed: int = 0
    known: int = 0
    steps: dict[str, OpenStep] = field(default_factory=dict)
    waits: dict[str, datetime] = field(default_factory=dict)
    hooks: dict[str, OpenHook] = field(default_factory=dict)
    pauses: dict[str, datetime | None] = field(default_factory=dict)  # of functions of run.do that are repeated
    forced_at: datetime | None = None
    awaits: list[str] | None = None  # what the last answer waits for; None: everything

    def has(self, type: str, id: str) -> bool:
        return any(e["type"] == type and e.get("correlationId", "") == id for e in self.log)

    def has_result(self, id: str) -> bool:
        return self.has("step_completed", id) or self.has("step_failed", id)


def length(text: str | None, default: float = 0) -> timedelta:
    """Returns a length of time of the contract."""
    if not text:
        return timedelta(seconds=default)
    units = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}
    parts = re.findall(r"([0-9.]+)(ms|s|m|h)", text)
    if "".join(n + u for n, u in parts) != text:
        raise Rejected(f"{text!r} is no duration")
    return timedelta(seconds=sum(float(n) * units[u] for n, u in parts))


class Memory:
    """Runs, and what happens to them."""

    def __init__(self, now: datetime) -> None:
        self.now = now
        self.runs: list[Run] = []
        self.signals: list[tuple[str, Any]] = []  # that workflows have sent

    def start(
        self, workflow: str, input: Any, attributes: dict[str, str], parent: tuple[Run, str] | None = None
    ) -> Run:
        run = Run(f"wrun_{len(self.runs) + 1:026d}", workflow, input, self.now, dict(attributes), parent=parent)
        self.runs.append(run)
        self.write(run, "run_created", "", {"workflowName": workflow, "attributes": attributes}, input)
        self.write(run, "run_started", "")
        return run

    def write(self, run: Run, type: str, id: str, data: dict[str, Any] | None = None, payload: Any = None) -> None:
        """Appends an event, and wakes the run if the event calls for it."""
        data = dict(data or {})
        if type in ("step_failed", "step_retrying") and isinstance(payload, dict) and payload.get("code"):
            data.setdefault("errorCode", payload["code"])
        at = self.now.isoformat(timespec="milliseconds")
        e = {"runId": run.id, "seq": len(run.log) + 1, "type": type, "createdAt": at, "data": data, "payload": payload}
        run.log.append({**e, "correlationId": id} if id else e)
        if type in _WAKES or type in _ENDS and (run.awaits is None or self._met(run)):
            run.wanted, run.failed, run.due = True, 0, None

    def write_stream(self, run: Run, write: dict[str, Any], writer: str = "", attempt: str = "") -> None:
        """Writes what a writer has not written yet: the attempt of a step, or the code of a workflow."""
        stream = run.streams.setdefault(write["stream"], OpenStream())
        last, next = stream.writers.get(writer, ("", 0))
        known = max(0, (next if last == attempt else 0) - write["from"])
        if fresh := write["chunks"][known:]:
            if stream.closed:
                raise FatalError(f"stream {write['stream']!r} takes no more chunks", code="stream_closed")
            stream.chunks += json.loads(json.dumps(fresh))
            next = write["from"] + len(write["chunks"])
            stream.writers[writer] = (attempt, next)
        stream.closed = stream.closed or write["close"]

    def apply(self, run: Run, answer: dict[str, Any]) -> None:
        """Carries out the commands of an answer: all of them, or none. Raises Rejected."""
        commands = json.loads(json.dumps(answer.get("commands", [])))
        for i, c in enumerate(commands):
            self._check(run, c, commands[:i], i == len(commands) - 1)
        before, awaits = len(run.log), answer.get("await")
        run.awaits = None if awaits is None else []  # what the answer itself records wakes nobody
        for c in commands:
            getattr(self, "_" + c["type"])(run, c)
        if awaits is not None:
            run.awaits = awaits["any"]
            run.wanted = run.wanted or self._met(run)
            if not (run.wanted or run.awaits or run.hooks or run.pauses) and run.status == "running":
                raise Rejected("the run waits for nothing that can come")
        if answer.get("open") and len(run.log) > before:
            run.log[before]["data"]["open"] = answer["open"]
        run.known = max(run.known, answer.get("seen") or before)
        if run.status == "running" and not (run.wanted or run.steps or run.waits or run.hooks or run.pauses):
            raise Rejected("the run has nothing to wait for")

    def _met(self, run: Run) -> bool:
        """Reports whether anything that is awaited has ended."""
        still_open = {f"step:{id}" for id in (*run.steps, *run.pauses)} | {f"wait:{id}" for id in run.waits}
        return any(ref not in still_open for ref in run.awaits or ())

    def _check(self, run: Run, c: dict[str, Any], earlier: list[dict[str, Any]], last: bool) -> None:
        kind, id = c["type"], c.get("id", "")
        if id and (not re.fullmatch(r"[!-.0-~]{1,256}", id)):
            raise Rejected(f"{kind}: {id!r} is no ID")
        if kind in ("complete", "fail", "cancelled", "continueAs") and not last:
            raise Rejected(f"{kind} is not the last command")
        if kind == "cancelled" and not run.forced_at:
            raise Rejected("nobody has asked to cancel the run")
        name = c.get("name", id)
        for e in run.log:
            if e["type"] == "step_created" and e.get("correlationId") == id and kind in ("runStep", "recordStep"):
                if e["data"]["stepName"] != name:
                    raise Rejected(f"the log has step {id} as {e['data']['stepName']}")
        made = {"closeHook": ("hook_created", "openHook"), "cancelWait": ("wait_created", "wait")}.get(kind)
        if kind == "cancelStep":
            made = ("step_created", "runStep")
        if made and not run.has(made[0], id) and not run.has("hook_conflict", id):
            if not any(e.get("id") == id and e["type"] in (made[1], "recordStep", "startChild") for e in earlier):
                raise Rejected(f"{kind} {id}: there is no such thing")

    def _data(self, c: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {**({"at": c["at"]} if "at" in c else {}), **more}

    def _runStep(self, run: Run, c: dict[str, Any]) -> None:
        if not run.has("step_created", c["id"]):
            self.write(run, "step_created", c["id"], self._data(c, stepName=c.get("name", c["id"])), c.get("input"))
            run.steps[c["id"]] = OpenStep(c, self.now)

    def _recordStep(self, run: Run, c: dict[str, Any]) -> None:
        id = c["id"]
        if run.has_result(id):
            return
        fresh = not run.has("step_created", id)
        if fresh:
            self.write(run, "step_created", id, self._data(c, stepName=c.get("name", id)), c.get("input"))
        if "retryAfter" in c:
            if not (at := run.pauses.get(id)) or at <= self.now:
                if fresh:
                    self.write(run, "step_started", id)
                run.pauses[id] = self.now + length(c["retryAfter"])
                self.write(run, "step_retrying", id, {}, c["error"])
            return
        run.pauses.pop(id, None)
        failed = c.get("error") is not None
        self.write(
            run, "step_failed" if failed else "step_completed", id, {}, c["error"] if failed else c.get("output")
        )

    def _cancelStep(self, run: Run, c: dict[str, Any]) -> None:
        step = run.steps.get(c["id"])
        if step and step.child:
            self.cancel(step.child, c.get("reason", ""), length(c.get("grace")))
        elif step or c["id"] in run.pauses:
            run.steps.pop(c["id"], None)
            run.pauses.pop(c["id"], None)
            wanted = run.wanted
            self.write(run, "step_failed", c["id"], {}, {"message": c.get("reason", ""), "code": "cancelled"})
            run.wanted = wanted

    def _wait(self, run: Run, c: dict[str, Any]) -> None:
        if not run.has("wait_created", c["id"]):
            self.write(run, "wait_created", c["id"], self._data(c))
            run.waits[c["id"]] = parse_time(c["until"]) if "until" in c else self.now + length(c["for"])

    def _cancelWait(self, run: Run, c: dict[str, Any]) -> None:
        if run.waits.pop(c["id"], None):
            self.write(run, "wait_cancelled", c["id"])

    def _openHook(self, run: Run, c: dict[str, Any]) -> None:
        id, token = c["id"], c.get("token") or f"{run.id}-{c['id']}"
        if run.has("hook_created", id) or run.has("hook_conflict", id):
            return
        if other := self.holder(token):
            self.write(run, "hook_conflict", id, self._data(c, token=token, conflictingRunId=other[0].id))
            return
        self.write(run, "hook_created", id, self._data(c, token=token), c.get("metadata"))
        run.hooks[id] = OpenHook(id, token, c)

    def holder(self, token: str) -> tuple[Run, OpenHook] | None:
        """Returns the run with the open hook of a token."""
        found = ((r, h) for r in self.runs if r.status == "running" for h in r.hooks.values() if h.token == token)
        return next(found, None)

    def _closeHook(self, run: Run, c: dict[str, Any]) -> None:
        if run.hooks.pop(c["id"], None):
            self.write(run, "hook_disposed", c["id"])

    def _setAttributes(self, run: Run, c: dict[str, Any]) -> None:
        changed = [{"key": k, "value": v} for k, v in c["attributes"].items() if run.attributes.get(k) != v]
        if run.has("attr_set", "attr_" + c["id"]) or not changed:
            return
        for change in changed:
            if change["value"] is None:
                run.attributes.pop(change["key"], None)
            else:
                run.attributes[change["key"]] = change["value"]
        self.write(run, "attr_set", "attr_" + c["id"], {"changes": changed})

    def _setStore(self, run: Run, c: dict[str, Any]) -> None:
        if not run.has("store_set", c["id"]):
            self.set_store(run, c["id"], {}, c["values"])

    def set_store(self, run: Run, id: str, data: dict[str, Any], values: dict[str, Any]) -> None:
        self.write(run, "store_set", id, data, values)
        run.store.update(values)
        run.store = {key: value for key, value in run.store.items() if value is not None}

    def _startChild(self, run: Run, c: dict[str, Any]) -> None:
        if run.has("step_created", c["id"]):
            return
        child = self.start(c["workflow"], c.get("input"), c.get("attributes") or {}, (run, c["id"]))
        data = self._data(c, stepName=c["workflow"], step={"childId": child.id})
        self.write(run, "step_created", c["id"], data, c.get("input"))
        run.steps[c["id"]] = OpenStep(c, self.now, child=child)

    def _startRun(self, run: Run, c: dict[str, Any]) -> None:
        if not run.has("step_created", c["id"]):
            started = self.start(c["workflow"], c.get("input"), c.get("attributes") or {})
            self._at_once(run, c, c["workflow"], c.get("input"), {"runId": started.id})

    def _emit(self, run: Run, c: dict[str, Any]) -> None:
        if not run.has("step_created", c["id"]):
            self._at_once(run, c, c["signal"], c.get("data"), None)
            self.signals.append((c["signal"], c.get("data")))

    def _reply(self, run: Run, c: dict[str, Any]) -> None:
        digest = hashlib.sha256(f"inbox:{c['inbox']} {c['message']}".encode()).hexdigest()
        id = "reply:" + digest[:32]
        if not run.has("step_created", id):
            answer = {key: c[key] for key in ("inbox", "message", "output", "error") if key in c}
            self._at_once(run, {**c, "id": id}, "reply", answer, None)

    def _at_once(self, run: Run, c: dict[str, Any], name: str, input: Any, output: Any) -> None:
        self.write(run, "step_created", c["id"], self._data(c, stepName=name), input)
        self.write(run, "step_completed", c["id"], {}, output)

    def _complete(self, run: Run, c: dict[str, Any]) -> None:
        self.end(run, "completed", c.get("output"))

    def _fail(self, run: Run, c: dict[str, Any]) -> None:
        self.end(run, "failed", c["error"])

    def _cancelled(self, run: Run, c: dict[str, Any]) -> None:
        self.end(run, "cancelled", None)

    def _continueAs(self, run: Run, c: dict[str, Any]) -> None:
        """Ends a run, and begins another one that goes on with its work. One that was asked to cancel ends so."""
        if run.forced_at:
            self.end(run, "cancelled", None)
            return
        next = self.start(run.workflow, c.get("input"), run.attributes, run.parent)
        next.log[0]["data"]["continuedFrom"] = run.id
        for hook in list(run.hooks.values()):
            if hook.id.startswith("inbox:"):
                self.write(next, "hook_created", hook.id, {"token": hook.token})
                next.hooks[hook.id] = OpenHook(hook.id, hook.token, hook.command, hook.messages)
        for e in run.log:
            id = e.get("correlationId", "")
            read = (c.get("read") or {}).get(id.removeprefix("inbox:"), 0)
            if e["type"] == "hook_received" and id in next.hooks and e["seq"] > read:
                self.write(next, "hook_received", id, e["data"], e["payload"])
        if run.store:
            self.set_store(next, run.id, {}, dict(run.store))
        if run.parent:
            run.parent[0].steps[run.parent[1]].child = next
        run.next, run.parent = next, None  # it has nothing to report
        self.end(run, "completed", None)
        run.log[-1]["data"]["continuedAs"] = next.id

    def cancel(self, run: Run, reason: str, grace: timedelta) -> None:
        """Cancels a run: at once, or by asking it first."""
        if run.status != "running":
            return
        if not grace or run.invocations == 0:
            self.end(run, "cancelled", None)
        elif not run.forced_at:
            run.forced_at = self.now + grace
            self.write(run, "cancel_requested", "", {"reason": reason})

    def end(self, run: Run, status: str, output: Any) -> None:
        """Ends a run, and tells its parent."""
        run.status, run.output, run.wanted = status, output, False
        self.write(run, "run_" + status, "", {}, output)
        for step in run.steps.values():
            if step.child and step.command.get("onParentEnd") != "leave":
                step.child.parent = None
                self.cancel(step.child, "", timedelta())
        if not run.parent or run.parent[0].status != "running":
            return
        parent, id = run.parent
        parent.steps.pop(id, None)
        if status == "completed":
            self.write(parent, "step_completed", id, {}, output)
        else:
            code = "child_" + status
            error = output or {"message": f"run {run.id} was cancelled", "code": code}
            self.write(parent, "step_failed", id, {"errorCode": code}, error)

"""Replays a workflow against the log of its run.

It knows no clock and does no I/O. Events that others cause are delivered one at a time, in the order of the log, and
all code runs until it rests in between. So the same log gives the same commands, however the run was divided into
invocations. A result that an invocation records itself is delivered by the next one, from its place in the log.
"""

from __future__ import annotations

import threading
from collections import deque
from datetime import datetime
from typing import Any, Callable

from .codec import parse_time
from .divergence import Divergence
from .errors import Blocked, Misuse, Suspended
from .places import caller

STEP, INLINE, MARK, CHILD = "step", "inline step", "mark", "child run"
EMIT, START, REPLY = "signal", "start of a run", "reply"
WAIT, HOOK = "wait", "hook"
CLOSE_HOOK, ATTRIBUTES, STORE, OPEN_INBOX = "closing of a hook", "attributes", "store", "inbox"
CANCEL_STEP, CANCEL_WAIT, RESPOND = "cancellation of a step", "cancellation of a wait", "response"

# Operations of these kinds share a space of IDs.
_SPACES = {INLINE: STEP, MARK: STEP, CHILD: STEP, EMIT: STEP, START: STEP, REPLY: STEP}
# Commands of these kinds may leave no event, because they changed nothing.
_IDEMPOTENT = {CLOSE_HOOK, ATTRIBUTES, STORE, OPEN_INBOX, CANCEL_STEP, CANCEL_WAIT, RESPOND}
_CREATES = {"step_created": STEP, "wait_created": WAIT, "hook_created": HOOK, "hook_conflict": HOOK}
_DELIVERED = {
    "step_completed": STEP, "step_failed": STEP, "wait_completed": WAIT, "hook_received": HOOK, "hook_conflict": HOOK,
    "cancel_requested": "",
}  # fmt: skip
INBOX = "inbox:"  # what the IDs of inboxes begin with

# MOST_COMMANDS is how many commands the server takes at once.
MOST_COMMANDS = 1000


class Event:
    """An event of a run's log; see docs/function-contract.md."""

    __slots__ = ("seq", "type", "id", "at", "data", "payload")

    def __init__(self, logged: dict[str, Any]) -> None:
        self.seq: int = logged["seq"]
        self.type: str = logged["type"]
        self.id: str = logged.get("correlationId") or ""
        self.at: str = logged["createdAt"]
        self.data: dict[str, Any] = logged.get("data") or {}
        self.payload: Any = logged.get("payload")


class Operation:
    """Something that a workflow asks for. `received` is called with each event that is delivered for it."""

    def __init__(
        self, kind: str, id: str, command: dict[str, Any] | None = None, *, name: str = "", place: str = "",
        received: Callable[[Event], None] | None = None, execute: Callable[[int], dict[str, Any]] | None = None,
    ) -> None:  # fmt: skip
        self.kind, self.id, self.command, self.name, self.place = kind, id, command, name, place
        self.received, self.execute = received, execute
        self.ended = False  # its result was delivered
        self.cancelled = False
        self.replayed = False  # an earlier invocation has asked for it, and was answered
        self.created: Event | None = None
        self.awaited: Callable[[], bool] = lambda: True  # whether the code goes on when it ends
        self.early: list[Event] = []  # what an inbox has got before the code asked for it
        self.received_count = 0  # payloads that were delivered
        self.taken_count, self.taken = 0, 0  # those that the code has taken, and the position of the last of them

    @property
    def space(self) -> str:
        return _SPACES.get(self.kind, self.kind)


class Engine:
    """Matches what one invocation asks for with the log, and delivers the log's events."""

    def __init__(self, events: list[Event], known: int, strict: bool = False) -> None:
        self.events, self.known, self.strict = events, known, strict
        self.now: datetime = parse_time(events[0].at)
        self.live = known == 0  # the code does something for the first time
        self.commands: list[dict[str, Any]] = []
        self.differing: list[tuple[Operation, Event]] = []  # operations whose input is not the one in the log
        self.failure: Blocked | None = None
        self.ended = False  # nothing that is asked for counts any more
        self.length = 0  # operations that were asked for, and events that were delivered: the same in each replay
        self.on_cancel: Callable[[Event], None] = lambda event: None
        self.on_store: Callable[[Event], None] = lambda event: None
        self._thread = threading.get_ident()
        self._executing = False
        self._operations: dict[tuple[str, str], Operation] = {}
        self._asked: list[Operation] = []
        self._idle: list[Operation] = []  # inline steps that have no result
        self._latest: Operation | None = None
        self._agreed: Event | None = None
        self._read(events)

    def _read(self, events: list[Event]) -> None:
        self._created: dict[tuple[str, str], Event] = {}
        self._unclaimed: dict[tuple[str, str], Event] = {}  # what the log has created and nobody has asked for yet
        self._deliveries: deque[Event] = deque()
        self._begun: set[str] = set()  # inline steps that an earlier invocation has asked for and not recorded
        self._attempts: dict[str, list[Event]] = {}
        self._stored: dict[str, Event] = {}
        for e in events:
            self._begun.update(e.data.get("open") or [])
            space = _CREATES.get(e.type)
            if space and (space, e.id) not in self._created:
                self._created[space, e.id] = e
                if not e.id.startswith(INBOX):
                    self._unclaimed[space, e.id] = e
            if e.type in _DELIVERED:
                self._deliveries.append(e)
            elif e.type in ("step_started", "step_retrying"):
                self._attempts.setdefault(e.id, []).append(e)
            elif e.type == "store_set":
                self._stored.setdefault(e.id, e)

    def has(self, kind: str, id: str) -> bool:
        """Reports whether the log has created an operation."""
        return (_SPACES.get(kind, kind), id) in self._created

    def stored_at(self, id: str) -> int:
        """Returns the position of a write to the store; beyond all others until it is in the log."""
        return self._stored[id].seq if id in self._stored else 1 << 62

    def operation(self, kind: str, id: str) -> Operation | None:
        return self._operations.get((_SPACES.get(kind, kind), id))

    def ask(self, op: Operation) -> None:
        """Asks for an operation. A second one with the same ID is a mistake."""
        if self._executing or threading.get_ident() != self._thread:
            raise self.fail(
                Misuse(f"{caller()}: the run was used in a step, in the function of run.do, or in another thread")
            )
        if self.ended:
            raise Suspended
        if other := self._operations.get((op.space, op.id)):
            text = f"{op.place}: the {op.kind} {op.id!r} has the ID of the {other.kind} at {other.place}"
            raise self.fail(Misuse(text + ": give it another name"))
        self._operations[op.space, op.id] = op
        op.replayed = not self.live
        self.length += 1
        self._asked.append(op)
        if op.kind not in _IDEMPOTENT:
            self._latest = op

    def fail(self, failure: Blocked) -> Blocked:
        """Ends the invocation with a failure, whatever the code does about it."""
        self.failure = self.failure or failure
        return failure

    def match(self) -> None:
        """Compares what was asked for since the last rest with the log. What is new becomes commands."""
        try:
            self._match()
        except Blocked as e:
            raise self.fail(e) from None

    def _match(self) -> None:
        if self.failure:
            raise self.failure
        asked, self._asked = self._asked, []
        fresh = [op for op in asked if not self._claim(op)]
        for op in fresh:
            if op.kind in _IDEMPOTENT:
                if not op.replayed and op.command:
                    self.commands.append(op.command)
                continue
            if self._unclaimed and not (op.space == STEP and op.id in self._begun):
                raise Divergence(self._agreed, next(iter(self._unclaimed.values())), code=op)
            if op.execute:
                self._idle.append(op)
            elif op.command:
                self.commands.append(op.command)

    def _claim(self, op: Operation) -> bool:
        """Finds an operation in the log."""
        e = self._created.get((op.space, op.id))
        if e is None or op.kind in _IDEMPOTENT:
            return False
        name = e.data.get("stepName")
        if op.space == STEP and name and name != op.name:
            raise Divergence(self._agreed, e, code=op)
        given = op.command.get("input") if op.command else None
        if op.kind in (STEP, CHILD) and given != e.payload:
            if self.strict:
                raise Divergence(self._agreed, e, code=op)
            self.differing.append((op, e))
        op.created = self._agreed = e
        self._unclaimed.pop((op.space, op.id), None)
        if op.execute:
            self._idle.append(op)
        return True

    def deliver(self) -> bool:
        """Delivers the next event; False if there is none. Everything was matched before."""
        try:
            return self._deliver()
        except Blocked as e:
            raise self.fail(e) from None

    def _deliver(self) -> bool:
        if not self._deliveries:
            return False
        e = self._deliveries.popleft()
        self.now = max(self.now, parse_time(e.at))
        self.live = self.live or e.seq > self.known
        self.length += 1
        if e.type == "cancel_requested":
            self.on_cancel(e)
            return True
        op = self._operations.get((_DELIVERED[e.type], e.id))
        if op is None:
            if e.id.startswith(INBOX):
                op = self.inbox(e.id)
            else:
                raise self._left_over(e)
        if e.type == "step_completed" and e.id in self._stored:
            self.on_store(self._stored[e.id])
        op.ended = op.kind != HOOK
        op.received_count += 1
        if op.ended and op in self._idle:
            self._idle.remove(op)
        if op.received:
            op.received(e)
        else:
            op.early.append(e)
        return True

    def inbox(self, id: str) -> Operation:
        """Returns an inbox, which exists without being asked for. It keeps what comes before it is read."""
        if (HOOK, id) not in self._operations:
            self._operations[HOOK, id] = Operation(HOOK, id)
        return self._operations[HOOK, id]

    def _inboxes(self) -> list[Operation]:
        return [op for op in self._operations.values() if op.kind == HOOK and op.id.startswith(INBOX)]

    def unread(self) -> int:
        """Returns how many messages of inboxes were delivered that the code has not taken."""
        return sum(op.received_count - op.taken_count for op in self._inboxes())

    def taken(self) -> dict[str, int]:
        """Returns the position of the last message that the code has taken, by the name of the inbox."""
        return {op.id.removeprefix(INBOX): op.taken for op in self._inboxes() if op.taken}

    def claimed(self, returned: bool) -> None:
        """Checks that the code has asked for everything that the log has created."""
        if self._unclaimed:
            raise self._left_over(next(iter(self._unclaimed.values())), returned)

    def _left_over(self, e: Event, returned: bool = False) -> Divergence:
        created = self._created.get((_DELIVERED.get(e.type, ""), e.id), e)
        return Divergence(self._agreed, e, last=self._latest, returned=returned, place=created.data.get("at", ""))

    def execute(self, in_time: Callable[[], bool]) -> list[str]:
        """Executes the inline steps that can begin, as long as there is time. Returns the IDs of those that have
        begun to be asked for and are not in the log."""
        left = []
        for op in self._idle:
            attempts = self._attempts.get(op.id, [])
            resting = bool(attempts) and attempts[-1].type == "step_retrying"  # its pause is not over
            if op.execute and not (op.cancelled or resting) and in_time():
                failed = sum(e.type == "step_retrying" for e in attempts)
                self._executing = True
                self.commands.append(op.execute(failed + 1))
                self._executing = False
                if self.failure:
                    raise self.failure
            elif op.created is None:
                left.append(op.id)
        return left

    def awaits(self) -> list[str]:
        """Returns references to the steps, children and waits of which any may bring the code on when it ends."""
        return [
            f"{op.space}:{op.id}"
            for op in self._operations.values()
            if op.space in (STEP, WAIT) and op.kind != MARK and not (op.ended or op.cancelled) and op.awaited()
        ]

    def receives(self) -> bool:
        """Reports whether a hook is open."""
        return any(op.kind == HOOK and not op.cancelled for op in self._operations.values())

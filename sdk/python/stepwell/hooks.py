"""What receives payloads from outside: hooks, inboxes, signals and approvals."""

from __future__ import annotations

import typing
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Callable, Generic, TypeVar

from . import codec
from .definition import Seconds, seconds
from .engine import CLOSE_HOOK, Event, Operation
from .errors import StepwellError, TokenTaken, Undecodable
from .loop import Future, ask_wait, cancel_wait
from .places import caller

if typing.TYPE_CHECKING:
    from .execution import Execution

T = TypeVar("T")


class Hook(Generic[T]):
    """Receives payloads of type T until it is closed or the run ends."""

    def __init__(self, execution: Execution, op: Operation, read: Callable[[Event], T], token: str = "") -> None:
        self._x, self.operation, self._read = execution, op, read
        self.token = token  # under which it can be resumed; empty if the server has chosen it
        self._payloads: deque[Event] = deque()
        self._waiting: deque[Future[T]] = deque()
        self._taken: TokenTaken | None = None
        op.received = self.feed

    def receive(self, timeout: Seconds | None = None) -> Future[T]:
        """Returns the future of the next payload: the n-th call gets the n-th one. In a plain function, call its get.

        Raises there: TokenTaken if another run has the token, Undecodable if the payload has another type, and
        TimeoutError after the timeout; then the hook stays open.
        """
        f: Future[T] = self._x.future()
        self._waiting.append(f)
        self._hand_out()
        if timeout is not None and not f.done():
            self._limit(f, seconds(timeout))
        return f

    def _limit(self, f: Future[T], length: float) -> None:
        loop, engine = self._x.loop, self._x.engine
        wait = ask_wait(
            engine, loop.scope().id("wait"), length, lambda: f.reject(TimeoutError("nothing has come in time"))
        )
        f.abandon = lambda: cancel_wait(engine, wait)

    def feed(self, event: Event) -> None:
        """Takes a payload from the log."""
        self._payloads.append(event)
        self._hand_out()

    def _hand_out(self) -> None:
        while self._waiting and (self._payloads or self._taken):
            f = self._waiting.popleft()
            if f.done():  # it was cancelled, or its time is over
                continue
            if f.abandon:
                f.abandon()
            try:
                f.resolve(self._next())
            except StepwellError as e:
                f.reject(e)

    def _next(self) -> T:
        if self._taken:
            raise self._taken
        event = self._payloads.popleft()
        self.operation.taken_count, self.operation.taken = self.operation.taken_count + 1, event.seq
        if event.type == "hook_conflict":
            self._taken = TokenTaken(self.token, event.data.get("conflictingRunId", ""))
            raise self._taken
        try:
            return self._read(event)
        except Undecodable as e:
            raise Undecodable(f"a payload of hook {self.operation.id}: {e.message}") from None

    def close(self) -> None:
        """Closes the hook. Later payloads are refused."""
        if not (self.operation.cancelled or self._x.engine.ended):
            self.operation.cancelled = True
            self._x.engine.ask(
                Operation(CLOSE_HOOK, self.operation.id, {"type": "closeHook", "id": self.operation.id}, place=caller())
            )


@dataclass(frozen=True)
class Signal(Generic[T]):
    """A signal as a run receives it."""

    name: str
    id: str  # that the server gave it
    data: T


@dataclass(frozen=True)
class Update(Generic[T]):
    """A message that the run answers, once. Whoever has sent it waits for the answer."""

    inbox: str
    id: str  # the sender's, which counts once in the inbox
    input: T
    _answer: Callable[[Update[T], dict[str, Any]], None] = field(repr=False, compare=False)

    def reply(self, output: Any = None) -> None:
        """Answers with an output. It is written with what the workflow asks for at the same time. Raises StepwellError
        with the code already_answered at the second answer."""
        self._answer(self, {"output": codec.checked(f"the answer to update {self.id}", output)})

    def reject(self, error: StepwellError) -> None:
        """Refuses the update, before anything is done. The sender gets message, code and details of the error."""
        self._answer(self, {"error": error.as_json()})


@dataclass(frozen=True)
class Vote:
    """A vote on an approval."""

    decision: str  # "approve" or "reject"
    by: str  # the name of who voted; `key`, the credential that sent the vote, answers for it
    key: str
    comment: str = ""
    form: Any = None  # plain JSON


@dataclass(frozen=True)
class Approval:
    """What people have decided."""

    approved: bool
    votes: list[Vote] = field(default_factory=list)


class Ballot:
    """Counts the votes on an approval: decided by the first rejection, or as many approvals as the quorum."""

    def __init__(self, quorum: int, distinct_keys: bool) -> None:
        self._quorum, self._distinct_keys = quorum, distinct_keys
        self.votes: list[Vote] = []

    def add(self, payload: Any) -> Approval | None:
        """Counts a vote. Returns the decision, if it makes one."""
        vote = Vote(
            payload["decision"], payload.get("by") or "", payload.get("key") or "", payload.get("comment") or "",
            payload.get("form"),
        )  # fmt: skip
        self.votes.append(vote)
        if vote.decision == "reject":
            return Approval(False, list(self.votes))
        voters = len({v.by.strip().casefold() for v in self.votes})
        if self._distinct_keys:
            voters = min(voters, len({v.key for v in self.votes}))
        return Approval(True, list(self.votes)) if voters >= self._quorum else None


def reader(hint: Any) -> Callable[[Event], Any]:
    """Returns what decodes payloads of a type."""
    return lambda event: codec.from_json(hint, event.payload)

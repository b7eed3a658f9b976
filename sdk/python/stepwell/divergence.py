"""What is said if the code of a workflow does not fit the log of its run."""

from __future__ import annotations

import typing
from typing import Any

from .errors import Blocked

if typing.TYPE_CHECKING:
    from .engine import Event, Operation

_CREATIONS = {"step_created": "a step", "wait_created": "a wait", "hook_created": "a hook", "hook_conflict": "a hook"}


class Divergence(Blocked):
    """The code has changed since the log was written. Nothing that it asked for afterwards was written or executed.

    `log` is what the log has. `code` is what the code asks for instead; None if it asks for nothing. Then `last` is
    what it asked for last, and `returned` whether it has returned.
    """

    def __init__(
        self, agreed: Event | None, log: Event, *, code: Operation | None = None, last: Operation | None = None,
        returned: bool = False, place: str = "",
    ) -> None:  # fmt: skip
        self.agreed, self.log, self.operation, self.last, self.returned = agreed, log, code, last, returned
        self.place = place or log.data.get("at", "")
        super().__init__(self._text(), "diverged")

    def _text(self) -> str:
        lines = ["the run no longer fits its log (blocked; nothing was written)", ""]
        if self.agreed:
            lines.append(_event("agreed up to", self.agreed, self.agreed.data.get("at", "")))
        lines.append(_event("the log has", self.log, self.place))
        if self.operation:
            lines.append(_asked("the code asks", self.operation))
        elif self.last:
            lines.append(f"  {'the code':13} {'':5}  {'returns' if self.returned else 'only waits'}")
            lines.append(_asked("it asked last", self.last))
        else:
            lines.append(f"  {'the code asks':13} {'':5}  for nothing")
        return "\n".join(lines + ["", *self._advice()])

    def _advice(self) -> list[str]:
        op, id = self.operation, self.log.id
        if op is None and self.log.type in _CREATIONS:
            return [
                f"  {id!r} was removed. Keep it for runs like this one:",
                f"      if not run.patched('without {id}'): …",
            ]
        if op is None:
            return [
                f"  The code has not asked for {id!r} here: it was removed, or moved behind something else.",
                "  Put it back where it was for runs like this one:  if not run.patched('new order'): …",
            ]
        name = self.log.data.get("stepName")
        if op.id == id and op.name and name != op.name:
            return [f"  In the log {id!r} is the ID of {describe(self.log)}. Give what is new another name or ID."]
        if op.id == id:
            return [
                f"  The input of {id!r} was another one:",
                f"      was {_shown(self.log.payload)}",
                f"      is  {_shown((op.command or {}).get('input'))}",
                "  Make it from the workflow's input and results only: no clock, no random numbers, no sets.",
            ]
        return [f"  Something was inserted before {id!r}. Guard it:", f"      if run.patched({op.id!r}): …"]


def describe(event: Event) -> str:
    """Says what an event has created."""
    name = event.data.get("stepName")
    return f"step {name!r}" if name else _CREATIONS[event.type]


def _event(what: str, event: Event, place: str) -> str:
    return f"  {what:13} {f'#{event.seq}':>5}  {event.type:16} {event.id:20} {place}".rstrip()


def _asked(what: str, op: Operation) -> str:
    return f"  {what:13} {'':5}  {op.kind:16} {op.id:20} {op.place}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:80] + "…"

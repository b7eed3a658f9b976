"""Replays the logs of real runs with an app's code, before it is deployed."""

from __future__ import annotations

from typing import Any, Mapping

from .. import codec
from ..app import App
from ..sealing import opened
from .memory import FEATURES

_ENDS = ("run_completed", "run_failed", "run_cancelled")
_CALLS = (
    "run_started", "step_completed", "step_failed", "wait_completed", "hook_received", "hook_conflict", "cancel_requested",
)  # fmt: skip

# MOST_PREFIXES limits how many invocations of one run are replayed.
MOST_PREFIXES = 100


def replay(app: App, log: Mapping[str, Any]) -> None:
    """Replays a run: with each prefix of its log at which an invocation can have begun, up to a hundred, and with the
    whole log. The log is a line of `stepwell runs export`, parsed: the run and its events. No step or function of run.do
    is executed.

    Raises AssertionError if the code does not fit the log, or completes the run with another output than it did.
    """
    run, all_events = log["run"], opened(app.codec, list(log["events"]))
    if [e["seq"] for e in all_events] != list(range(1, len(all_events) + 1)) or not all_events:
        raise ValueError(f"events of run {run['id']} are missing")
    length = next((i for i, e in enumerate(all_events) if e["type"] in _ENDS), len(all_events))
    events, end = all_events[:length], all_events[length : length + 1]
    for n in _prefixes(events):
        known = n + len(end) if n == length else n
        commands = _invoke(app, run, events[:n], known, len(all_events))
        if n == length and end and end[0]["type"] == "run_completed":
            want = {"type": "complete", "output": end[0].get("payload")}
            if (end[0].get("data") or {}).get("continuedAs"):
                want = {**(commands or [{}])[-1], "type": "continueAs"}  # whatever the input of the next run is
            if not commands or commands[-1] != want:
                raise AssertionError(f"run {run['id']} ended with {want}, but the code answers {commands}")


def _prefixes(events: list[dict[str, Any]]) -> list[int]:
    """Returns the lengths of the prefixes. The last one is the whole log."""
    lengths = [i + 1 for i, e in enumerate(events[:-1]) if e["type"] in _CALLS]
    if (n := len(lengths)) > MOST_PREFIXES:
        lengths = [lengths[i * n // MOST_PREFIXES] for i in range(MOST_PREFIXES)]
    return [*lengths, len(events)]


def _invoke(
    app: App, run: Mapping[str, Any], events: list[dict[str, Any]], known: int, of: int
) -> list[dict[str, Any]]:
    about = {name: run.get(name) for name in ("id", "workflow", "deployment", "attributes", "key", "parentId")}
    about.update(createdAt=events[0]["createdAt"], input=events[0].get("payload"))
    call = {
        "type": "workflow", "invocation": f"replay of {run['id']} with {len(events)}", "attempt": 1, "run": about,
        "server": {"features": FEATURES}, "known": known, "events": events,
    }  # fmt: skip
    r = app.answer(codec.dumps(call), in_time=lambda: False)
    body = opened(app.codec, codec.loads(r.body))
    if r.status != 200:
        error = body["error"]
        raise AssertionError(
            f"run {run['id']} of {run['workflow']} does not replay with the first {len(events)} of its {of} events: "
            f"{error.get('code', '')}: {error['message']}"
        )
    commands: list[dict[str, Any]] = body["commands"]
    return commands

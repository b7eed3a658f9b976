"""Hooks around what an app executes, for traces and metrics of any kind; and the trace context that goes with it."""

from __future__ import annotations

import contextlib
import contextvars
from dataclasses import dataclass
from typing import Any, Callable, ContextManager, Iterator, Sequence

from .execution import RunInfo


@dataclass(frozen=True)
class Work:
    """A call of a workflow, or an attempt of a step or of a function of run.do. What a replay repeats is none."""

    kind: str  # "workflow" or "step"
    name: str
    run: RunInfo
    id: str  # of the step in its run; empty for a workflow
    attempt: int
    inline: bool  # it is executed where its workflow runs: within that one's call
    traceparent: str  # of the call, as W3C Trace Context has it; empty if the server sends no traces
    tracestate: str


# Observe is called with work that begins, and returns what is entered before it and left after it. An exception of the
# work goes through it. It is called in several threads at once.
Observe = Callable[[Work], ContextManager[Any]]

current: contextvars.ContextVar[str] = contextvars.ContextVar("stepwell_traceparent", default="")


def traceparent() -> str:
    """Returns the traceparent of the span of otlp.Exporter in which the code is executed; empty outside of one. Send it as
    a header, and what is called joins the trace. A Client does so by itself."""
    return current.get()


def trace_headers() -> dict[str, str]:
    """Returns the headers with which a request joins the trace."""
    return {"traceparent": traceparent()} if traceparent() else {}


@contextlib.contextmanager
def observed(observers: Sequence[Observe], work: Work) -> Iterator[None]:
    """Lets work be observed, by the first observer outermost."""
    with contextlib.ExitStack() as entered:
        for observe in observers:
            entered.enter_context(observe(work))
        yield

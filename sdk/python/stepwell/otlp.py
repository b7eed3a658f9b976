"""Sends the spans of an app to an OpenTelemetry collector: OTLP over HTTP, as JSON. It needs no other package.

    exporter = otlp.Exporter()
    app = stepwell.App("orders", observe=[exporter])

A program that has OpenTelemetry's own SDK observes with its tracer instead: see docs/observability.md.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import re
import secrets
import threading
import time
import urllib.parse
import urllib.request
from typing import Any, Iterator, Mapping

from .observing import Work, current

logger = logging.getLogger("stepwell")

_KINDS = {"internal": 1, "server": 2}
_PARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_MOST = 2048  # spans that wait; more are lost
_TIMEOUT = 10.0  # seconds of a request


class Exporter:
    """Makes a span of each call of a workflow and each attempt of a step, in the trace of the run if the server sends
    traces, and sends them in the background. The endpoint, the headers and the name of the service are by default those
    of OTEL_EXPORTER_OTLP_ENDPOINT (http://localhost:4318), OTEL_EXPORTER_OTLP_HEADERS and OTEL_SERVICE_NAME. Spans that
    no collector takes are counted by `lost`; the work goes on."""

    def __init__(
        self, endpoint: str = "", *, service: str = "", headers: Mapping[str, str] | None = None, every: float = 1
    ) -> None:  # fmt: skip
        endpoint = endpoint or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "") or "http://localhost:4318"
        pairs = [p.partition("=") for p in os.environ.get("OTEL_EXPORTER_OTLP_HEADERS", "").split(",") if "=" in p]
        named = {name.strip(): urllib.parse.unquote(value.strip()) for name, _, value in pairs}
        self._headers = {**(named if headers is None else headers), "Content-Type": "application/json"}
        self._url, self._every = endpoint.rstrip("/") + "/v1/traces", every
        service = service or os.environ.get("OTEL_SERVICE_NAME", "") or "unknown_service"
        self._resource = {"attributes": _attributes({"service.name": service})}
        self._spans: list[dict[str, Any]] = []
        self._lock, self._sending, self._wake = threading.Lock(), threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None
        self.lost = 0
        atexit.register(self.flush)

    @contextlib.contextmanager
    def __call__(self, work: Work) -> Iterator[None]:
        about = {
            "stepwell.run_id": work.run.id, "stepwell.workflow": work.run.workflow,
            "stepwell.deployment_id": work.run.deployment, "stepwell.attempt": work.attempt,
        }  # fmt: skip
        if work.id:
            about["stepwell.subject_id"] = work.id
        parent, kind = (current.get(), "internal") if work.inline else (work.traceparent, "server")
        with self._span(f"{work.kind} {work.name}", parent, work.tracestate, kind, about):
            yield

    @contextlib.contextmanager
    def span(self, name: str, traceparent: str = "", **attributes: Any) -> Iterator[None]:
        """Makes a span of anything else, such as a request that starts runs, to whose trace those of the runs are linked.
        It is below the span that the traceparent of a caller names, or below the current one."""
        with self._span(name, traceparent or current.get(), "", "internal", attributes):
            yield

    @contextlib.contextmanager
    def _span(self, name: str, parent: str, state: str, kind: str, attributes: Mapping[str, Any]) -> Iterator[None]:
        trace, above, flags = _parsed(parent)
        id = secrets.token_hex(8)
        token = current.set(f"00-{trace}-{id}-{flags}")
        span: dict[str, Any] = {
            "traceId": trace, "spanId": id, "parentSpanId": above, "traceState": state, "name": name,
            "kind": _KINDS[kind], "startTimeUnixNano": str(time.time_ns()),
        }  # fmt: skip
        try:
            yield
        except BaseException as e:
            span["status"] = {"code": 2, "message": str(e)[:1024]}
            attributes = {**attributes, "error.type": type(e).__name__}
            raise
        finally:
            current.reset(token)
            span.update(endTimeUnixNano=str(time.time_ns()), attributes=_attributes(attributes))
            if int(flags, 16) & 1:
                self._add(span)

    def _add(self, span: dict[str, Any]) -> None:
        with self._lock:
            if len(self._spans) >= _MOST:
                self.lost += 1
                return
            self._spans.append(span)
            if self._thread is None or not self._thread.is_alive():  # also after a fork
                self._thread = threading.Thread(target=self._run, name="stepwell spans", daemon=True)
                self._thread.start()
        self._wake.set()

    def _run(self) -> None:
        while True:
            self._wake.wait()
            time.sleep(self._every)
            self._wake.clear()
            self.flush()

    def flush(self) -> None:
        """Sends the spans that wait."""
        with self._sending:
            with self._lock:
                spans, self._spans = self._spans, []
            if not spans:
                return
            of = {"resource": self._resource, "scopeSpans": [{"scope": {"name": "stepwell"}, "spans": spans}]}
            data = json.dumps({"resourceSpans": [of]}).encode()
            try:
                urllib.request.urlopen(
                    urllib.request.Request(self._url, data, dict(self._headers), method="POST"), timeout=_TIMEOUT
                ).close()
            except (OSError, ValueError) as e:
                self.lost += len(spans)
                logger.warning("%d spans were lost: %s does not take them: %s", len(spans), self._url, e)


def _parsed(traceparent: str) -> tuple[str, str, str]:
    """Returns the trace, the span and the flags of a traceparent; those of a new trace if it is none."""
    match = _PARENT.fullmatch(traceparent)
    if match and match[1].strip("0") and match[2].strip("0"):
        return match[1], match[2], match[3]
    return secrets.token_hex(16), "", "01"


def _attributes(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {"key": key, "value": {"intValue": str(v)} if type(v) is int else {"stringValue": str(v)}}
        for key, v in values.items()
    ]

"""The calls of the server, and the rest of a log that is too long for one; see docs/function-contract.md."""

from __future__ import annotations

import os
import time
import urllib.error
import urllib.request
from typing import Any, Callable, Iterator
from urllib.parse import urlencode

from . import codec
from .errors import Blocked, FatalError, StepOver, StepwellError
from .sealing import Codec, Sealer, opened
from .stream import Send

# LONGEST_CALL is the size limit of a call in bytes: a log of 1,000 events and an input of 16 MiB fit into it.
LONGEST_CALL = 64 << 20

# REQUIRED are the features that a server must have.
REQUIRED = ("seen", "at", "known", "retryAfter", "cancelStep", "cancelWait", "cancel", "store", "inbox")

TIMEOUT = 30  # seconds of a request that reads the log


def check_features(call: dict[str, Any]) -> None:
    """Raises Blocked if the server lacks what the SDK needs."""
    offered = (call.get("server") or {}).get("features") or []
    if missing := [feature for feature in REQUIRED if feature not in offered]:
        raise Blocked(
            f"the server does not offer {', '.join(missing)}, which this SDK needs: upgrade it", "unsupported"
        )


def whole_log(call: dict[str, Any], server: str, sealing: Codec | None = None) -> list[dict[str, Any]]:
    """Returns all events of a call's log. What does not fit into the call is read from the server."""
    events = list(call["events"])
    if call.get("after"):
        if not server:
            raise Blocked(
                "the log is longer than the call: set STEPWELL_URL, so that the rest can be read", "unsupported"
            )
        events.extend(opened(sealing, list(_rest(call, server))))
    return events


def _rest(call: dict[str, Any], server: str) -> Iterator[dict[str, Any]]:
    run = f"{server.rstrip('/')}/v1/runs/{call['run']['id']}/events"
    query = {"after": call["after"], "limit": 1000, "payloads": "true"}
    while True:
        page = _read(f"{run}?{urlencode(query)}", call["token"])
        for event in page["data"]:
            if event.get("truncated"):
                event["payload"] = _read(f"{run}/{event['seq']}/payload", call["token"])
            yield event
        if not page.get("cursor"):
            return
        query["cursor"] = page["cursor"]


def _read(url: str, token: str) -> Any:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
            return codec.loads(response.read())
    except (OSError, StepwellError) as e:
        raise Blocked(f"the rest of the log cannot be read from {url}: {e}", "log_unreadable") from None


def heartbeats(
    call: dict[str, Any], configured: str, signed: bool, sealing: Codec | None = None
) -> Callable[[Any], None]:
    """Returns what sends heartbeats of a step's call. It raises StepOver if the server says that the call is over."""
    server = server_of(call, configured, signed)
    offered = (call.get("server") or {}).get("features") or []

    def tell(progress: Any) -> None:
        if not server or "heartbeat" not in offered:
            return
        url = f"{server.rstrip('/')}/v1/runs/{call['run']['id']}/call/heartbeat"
        headers = {"Authorization": f"Bearer {call['token']}", "Content-Type": "application/json"}
        data = codec.dumps(Sealer(sealing).request(url, {"progress": progress}))
        request = urllib.request.Request(url, data, headers, method="POST")
        try:
            urllib.request.urlopen(request, timeout=HEARTBEAT_TIMEOUT).close()
        except urllib.error.HTTPError as e:
            e.close()
            if e.code in (401, 409, 410):
                raise StepOver(
                    f"nobody waits for step {call['step']['id']} of run {call['run']['id']} any more"
                ) from None
        except OSError:
            pass  # the next one may reach a server

    return tell


def stream_sender(call: dict[str, Any], configured: str, signed: bool, sealing: Codec | None = None) -> Send:
    """Returns what writes to streams of a call's run."""
    server = server_of(call, configured, signed)
    offered = (call.get("server") or {}).get("features") or []

    def send(write: dict[str, Any]) -> None:
        if not server or "stream" not in offered:
            raise FatalError(
                "no server takes what is written to streams: set STEPWELL_URL, or upgrade the server",
                code="unsupported",
            )
        url = f"{server.rstrip('/')}/v1/runs/{call['run']['id']}/call/stream"
        headers = {"Authorization": f"Bearer {call['token']}", "Content-Type": "application/json"}
        data = codec.dumps(Sealer(sealing).request(url, write))
        for attempt in range(1, _ATTEMPTS + 1):
            request = urllib.request.Request(url, data, headers, method="POST")
            try:
                urllib.request.urlopen(request, timeout=TIMEOUT).close()
                return
            except urllib.error.HTTPError as e:
                if e.code not in (408, 429) and e.code < 500:
                    raise _refused_write(call, e) from None
                if attempt == _ATTEMPTS:
                    raise
            except OSError:
                if attempt == _ATTEMPTS:
                    raise
            time.sleep(min(0.1 * 2**attempt, 5))

    return send


_ATTEMPTS = 8  # of a request that writes to a stream: a server may restart meanwhile


def _refused_write(call: dict[str, Any], e: urllib.error.HTTPError) -> Exception:
    try:
        error = codec.loads(e.read())["error"]
        code, message = error["code"], error["message"]
    except (StepwellError, KeyError, TypeError):
        code, message = "", e.reason
    if e.code in (401, 410) or code == "stale_invocation":
        return StepOver(f"the call of run {call['run']['id']} is over: {message}")
    return FatalError(message, code=code)


HEARTBEAT_TIMEOUT = 3  # seconds of a heartbeat's request


def server_of(call: dict[str, Any], configured: str, signed: bool) -> str:
    """Returns the server's address: a configured one, or that of a signed call. Empty if none is known."""
    hooks: str = call.get("hooksUrl") or ""
    return configured or os.environ.get("STEPWELL_URL", "") or (hooks.removesuffix("hooks/") if signed else "")

"""A client of the server's API: starts runs, waits for them, and sends them what they wait for."""

from __future__ import annotations

import http.client
import importlib.metadata
import os
import secrets
import time
import typing
import urllib.error
import urllib.request
from typing import Any, Callable, Generic, Iterator, Mapping, Sequence, TypeVar, overload
from urllib.parse import quote, urlencode

from . import codec
from .definition import Seconds, Workflow, seconds
from .errors import StepwellError
from .loop import duration
from .observing import trace_headers
from .sealing import Codec, Sealer, opened

O = TypeVar("O")
T = TypeVar("T")

_ATTEMPTS = 5  # of a request that gets no answer, or one that asks for repetition
_FOLLOW_ATTEMPTS = 12  # in a row that fail while a stream is followed
_TIMEOUT = 30.0  # seconds of a request, beside those that the server waits
_POLL = 30  # seconds for which the server waits for the end of a run


def _user_agent() -> str:
    """The name of this package, with its version if it is installed."""
    try:
        return "stepwell-python/" + importlib.metadata.version("stepwell")
    except importlib.metadata.PackageNotFoundError:
        return "stepwell-python"


_USER_AGENT = _user_agent()


class APIError(StepwellError):
    """The server has refused a request: its status, and the code and details of docs/api.md."""

    def __init__(self, status: int, message: str, *, code: str = "", details: Any = None) -> None:
        super().__init__(f"{status} {message}", code=code, details=details)
        self.status = status


class RunFailed(StepwellError):
    """A run has failed, with the error of its workflow; code `timeout` if its time was over."""


class RunCancelled(StepwellError):
    """A run was cancelled."""


class StartOptions(typing.TypedDict, total=False):
    """Options of a start. idempotency_key: repeats of the start are one run; by default a random one. key: one
    unfinished run of the workflow has it; with join, the start returns that run. inbox: names of inboxes that are
    opened with the run. send: messages to them, as {"inbox", "id", "payload"}. delay, timeout, timeout_grace: lengths
    of time.
    """

    idempotency_key: str
    key: str
    join: bool
    attributes: Mapping[str, str]
    deployment: str
    inbox: Sequence[str]
    send: Sequence[Mapping[str, Any]]
    delay: Seconds
    timeout: Seconds
    timeout_grace: Seconds
    limits: Sequence[Mapping[str, Any]]


_START_FIELDS = {"idempotency_key": "idempotencyKey", "timeout_grace": "timeoutGrace"}


class Rejected(StepwellError):
    """A run has refused an update, for the reason that message, code and details give."""


class RunHandle(Generic[O]):
    """A run with output O, for code outside of workflows."""

    def __init__(self, client: Client, id: str, result: Any = Any) -> None:
        self._client, self.id, self._result = client, id, result

    def get(self) -> dict[str, Any]:
        """Returns the run, as GET /v1/runs/{id} does."""
        run: dict[str, Any] = self._client.request("GET", self._path())
        return run

    def wait(self, timeout: Seconds | None = None) -> O:
        """Waits for the end of the run, and returns its output. Raises RunFailed, RunCancelled, or TimeoutError."""
        end = None if timeout is None else time.monotonic() + seconds(timeout)
        while True:
            left = _POLL if end is None else min(_POLL, end - time.monotonic())
            if left <= 0:
                raise TimeoutError(f"run {self.id} has not ended in time")
            run = self._client.request("GET", self._path("wait"), query={"timeout": duration(left)}, poll=left)
            if (status := run.get("status")) == "completed":
                output: O = codec.from_json(self._result, run.get("output"))
                return output
            if status == "failed":
                error = run.get("error") or {}
                raise RunFailed(error.get("message", ""), code=error.get("code", ""), details=error.get("details"))
            if status == "cancelled":
                raise RunCancelled(f"run {self.id} was cancelled: {run.get('cancelReason', '')}", code="cancelled")

    def cancel(self, reason: str = "", *, grace: Seconds = 0) -> None:
        """Cancels the run: at once, or by asking it first, so that it can clean up until the grace is over."""
        body = {"reason": reason, **({"grace": duration(seconds(grace))} if grace else {})}
        self._client.request("POST", self._path("cancel"), body)

    def send(self, inbox: str, payload: Any, *, id: str = "") -> None:
        """Sends a message to an inbox. One with the same ID counts once; by default the ID is random."""
        message = {"id": id or secrets.token_hex(16), "payload": codec.to_json(payload)}
        self._client.request("POST", self._path("inbox", inbox), message)

    def ask(
        self, inbox: str, input: Any = None, *, id: str = "", type: Any = Any, timeout: Seconds | None = None
    ) -> Any:
        """Sends an update, and waits for the run's answer, whose output has the type. Ask again by the same ID and input
        for the answer to the same update; by default the ID is random. If the run continues as others, their answer
        counts. Raises Rejected, TimeoutError, or APIError with the code unanswered if they have ended without one."""
        message = {"id": id or secrets.token_hex(16), "payload": codec.to_json(input)}
        end = None if timeout is None else time.monotonic() + seconds(timeout)
        while True:
            begun = time.monotonic()
            left = _POLL if end is None else min(_POLL, end - begun)
            if left <= 0:
                raise TimeoutError(f"run {self.id} has not answered update {message['id']} in time")
            prefer = {"Prefer": f"wait={max(1, round(left))}"}
            sent = self._client.request("POST", self._path("inbox", inbox), message, poll=left, headers=prefer)
            if answer := sent.get("answer"):
                if error := answer.get("error"):
                    raise Rejected(error.get("message", ""), code=error.get("code", ""), details=error.get("details"))
                return codec.from_json(type, answer.get("output"))
            time.sleep(max(0.0, min(left, 1 - (time.monotonic() - begun))))  # a server that stops answers at once

    def vote(self, approval: str, decision: str, *, by: str = "", comment: str = "", form: Any = None) -> None:
        """Votes on an approval by the ID of its hook: "approve" or "reject"."""
        vote = {"decision": decision, "as": by, "comment": comment, "form": codec.to_json(form)}
        body = {"payload": {name: value for name, value in vote.items() if value}}
        self._client.send("POST", self._path("hooks", approval, "resume"), body, repeat=False)  # the server counts votes

    def store(self) -> dict[str, Any]:
        """Returns the values of the run's store."""
        data = self._client.request("GET", self._path("store"))["data"]
        return {key: entry["value"] for key, entry in data.items()}

    def events(self) -> Iterator[dict[str, Any]]:
        """Yields the events of the run's log, with payloads of up to 1 MiB."""
        query = {"payloads": "true", "limit": "1000"}
        while True:
            page = self._client.request("GET", self._path("events"), query=query)
            yield from page["data"]
            if not page.get("cursor"):
                return
            query["cursor"] = page["cursor"]

    @overload
    def stream(self, name: str, type: type[T], *, begin: int = 0) -> Iterator[T]:
        ...

    @overload
    def stream(self, name: str, type: Any = Any, *, begin: int = 0) -> Iterator[Any]:
        ...

    def stream(self, name: str, type: Any = Any, *, begin: int = 0) -> Iterator[Any]:
        """Yields the chunks of a stream as they are written, until it is closed: at the end of the run at the latest. It
        waits for one that nobody has written yet. Begin is an index; a negative one counts from the present end."""
        query = {"decoded": "true", "wait": "true", "from": str(begin)}
        for chunk in self._client.follow(self._path("streams", name, "tail"), query):
            yield codec.from_json(type, chunk["value"] if "value" in chunk else chunk.get("text"))

    def _path(self, *more: str) -> str:
        return "/v1/runs/" + "/".join(quote(part, safe="") for part in (self.id, *more))


class Client:
    """A client. The address and the key are by default those of STEPWELL_URL and STEPWELL_API_KEY.

    Requests that get no answer are repeated, if that is safe. Raises APIError if the server refuses one, and OSError if
    none can be reached. It may be used by several threads. The `codec` is that of the app, if it has one. `headers` gives
    each request more headers, by default those of the trace in which the code is executed.
    """

    def __init__(
        self, url: str = "", api_key: str = "", *, codec: Codec | None = None,
        headers: Callable[[], Mapping[str, str]] = trace_headers,
    ) -> None:  # fmt: skip
        self.url = (url or os.environ.get("STEPWELL_URL", "http://127.0.0.1:8788")).rstrip("/")
        self.api_key = api_key or os.environ.get("STEPWELL_API_KEY", "")
        self.codec, self._more = codec, headers

    @overload
    def start(self, workflow: Workflow[O], input: Any = None, **options: Any) -> RunHandle[O]:
        ...

    @overload
    def start(self, workflow: str, input: Any = None, **options: Any) -> RunHandle[Any]:
        ...

    def start(self, workflow: Workflow[Any] | str, input: Any = None, **options: Any) -> RunHandle[Any]:
        """Starts a run, or finds the one that the options name: see StartOptions."""
        if unknown := options.keys() - StartOptions.__annotations__.keys():
            raise TypeError(f"a start has no option {min(unknown)}")
        name, result = (workflow, Any) if isinstance(workflow, str) else (workflow.name, workflow.signature.result)
        body: dict[str, Any] = {"workflow": name, "input": codec.checked("the input", input)}
        body["idempotencyKey"] = options.pop("idempotency_key", "") or secrets.token_hex(16)
        if options.pop("join", False):
            body["onConflict"] = "join"
        for option, value in options.items():
            is_time = option in ("delay", "timeout", "timeout_grace")
            body[_START_FIELDS.get(option, option)] = duration(seconds(value)) if is_time else codec.to_json(value)
        return RunHandle(self, self.request("POST", "/v1/runs", body)["id"], result)

    def run(self, id: str, workflow: Workflow[O] | None = None) -> RunHandle[O]:
        """Returns the handle of any run."""
        return RunHandle(self, id, workflow.signature.result if workflow else Any)

    def resume(self, token: str, payload: Any = None) -> None:
        """Sends a payload to the hook with the token."""
        path = f"/v1/hooks/{quote(token, safe='')}/resume"
        self.request("POST", path, {"payload": codec.to_json(payload)}, repeat=False)

    def signal(self, name: str, data: Any = None, *, id: str = "", keep_for: Seconds = 0) -> None:
        """Sends a signal to all runs that wait for it. One with the same ID counts once; by default the ID is
        random."""
        body: dict[str, Any] = {"id": id or secrets.token_hex(16), "data": codec.to_json(data)}
        if length := seconds(keep_for):
            body["keepFor"] = duration(length)
        self.request("POST", f"/v1/signals/{quote(name, safe='')}", body)

    def register(self, deployment: str, url: str, workflows: Sequence[str] = ()) -> None:
        """Registers an app: the server calls it at the URL, for runs of these workflows; empty: of all."""
        body: dict[str, Any] = {"url": url, **({"workflows": list(workflows)} if workflows else {})}
        self.request("PUT", f"/v1/deployments/{quote(deployment, safe='')}", body)

    def follow(self, path: str, query: Mapping[str, str]) -> Iterator[Any]:
        """Yields the data of server-sent events, until the event `end`. It outlives restarts of the server."""
        last, failures = "", 0
        while True:
            request = urllib.request.Request(f"{self.url}{path}?{urlencode(query)}")
            request.add_header("Accept", "text/event-stream")
            if self.api_key:
                request.add_header("Authorization", f"Bearer {self.api_key}")
            if last:
                request.add_header("Last-Event-ID", last)
            try:
                with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:
                    for line in response:
                        if not line.endswith(b"\n"):
                            break  # it was cut off
                        field, _, value = line.decode().rstrip("\n").partition(": ")
                        if field == "event" and value == "end":
                            return
                        if field == "id":
                            id = value
                        elif field == "data":
                            yield opened(self.codec, codec.loads(value.encode()))
                            last, failures = id, 0
                failures += 1  # it ended without the event
            except urllib.error.HTTPError as e:
                if e.code not in (408, 429, 502, 503, 504):
                    raise _refused(e) from None
                failures += 1
            except TimeoutError:
                continue  # nothing was written for long
            except (OSError, http.client.HTTPException):
                failures += 1
            if failures > _FOLLOW_ATTEMPTS:
                raise ConnectionError(f"GET {path}: no answer of {self.url}")
            time.sleep(min(0.1 * 2**failures, 2))

    def request(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        """Sends any request of docs/api.md, and returns the JSON of its answer. The options are those of send."""
        return opened(self.codec, self.send(method, path, Sealer(self.codec).request(path, body), **options))

    def send(
        self, method: str, path: str, body: Any = None, *, query: Mapping[str, str] | None = None, poll: float = 0,
        repeat: bool = True,
        timeout: float = _TIMEOUT, headers: Mapping[str, str] | None = None,
    ) -> Any:  # fmt: skip
        """Is request, but leaves payloads as they are."""
        url = f"{self.url}{path}" + (f"?{urlencode(query)}" if query else "")
        headers = {"Content-Type": "application/json", "User-Agent": _USER_AGENT, **self._more(), **(headers or {})}
        if self.api_key:
            headers["Authorization"] = f"Bearer {self.api_key}"
        data = codec.dumps(body) if body is not None else None
        attempts = _ATTEMPTS if repeat else 1
        for attempt in range(1, attempts + 1):
            request = urllib.request.Request(url, data, headers, method=method)
            try:
                with urllib.request.urlopen(request, timeout=timeout + poll) as response:
                    text = response.read()
                    return codec.loads(text) if text else None
            except urllib.error.HTTPError as e:
                if attempt == attempts or e.code not in (408, 429, 502, 503, 504):
                    raise _refused(e) from None
            except (OSError, http.client.HTTPException) as e:
                if attempt == attempts:
                    raise ConnectionError(f"{method} {path}: no answer of {self.url}: {e}") from e
            time.sleep(min(0.1 * 2**attempt, 2) * (0.75 + secrets.randbelow(250) / 1000))
        raise AssertionError("unreachable")


def _refused(e: urllib.error.HTTPError) -> APIError:
    try:
        error = codec.loads(e.read())["error"]
        return APIError(e.code, error.get("message", ""), code=error.get("code", ""), details=error.get("details"))
    except (StepwellError, KeyError, TypeError, AttributeError):
        return APIError(e.code, e.reason)

"""A worker: asks the server for the calls of an app, so that nothing has to reach the process."""

from __future__ import annotations

import logging
import secrets
import signal
import threading
import time
from typing import Any

from . import codec
from .app import App, Response
from .client import APIError, Client
from .loop import duration

logger = logging.getLogger("stepwell")

_IDLE = 20.0  # seconds for which the server waits for a call while none is in hand
_PATIENCE = 10.0  # seconds for an answer beyond that
_PAUSE = 1.0  # seconds between attempts while no server answers: one must be asked every three
_FINISH = 20.0  # seconds that calls in hand may take when the worker ends


def work(app: App, *, deployment: str = "", slots: int = 20, client: Client | None = None) -> None:
    """Makes the process a worker, until SIGTERM or Ctrl-C: it takes calls of the deployment, by default of the app's name,
    and makes up to `slots` at a time, in threads. The key of the client, STEPWELL_API_KEY, has the role worker.

    The calls of a worker that dies, or is silent for three seconds, are made by another one. A worker that ends lets its
    calls finish for 20 seconds. Raises APIError if the server refuses it.
    """
    app.check()
    worker = Worker(app, deployment or app.name, slots, client or Client())
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: threading.Thread(target=worker.stop).start())
    worker.run()


class Worker:
    """What work() does, for programs that end it themselves."""

    def __init__(self, app: App, deployment: str, slots: int, client: Client) -> None:
        self._app, self._deployment, self._slots, self._client = app, deployment, slots, client
        self._name = secrets.token_hex(8)
        self._registration: dict[str, Any] | None = {"workflows": sorted(app.workflows)}
        if not app.workflows:
            self._registration = {"stepsOnly": True}
        self._hand: dict[str, bool] = {}  # the calls in hand, by invocation, and whether they are wanted
        self._changed = threading.Condition()
        self._stopping = False
        self._asked = threading.Event()  # set when it asks for no more calls

    def run(self) -> None:
        """Works until it is stopped."""
        try:
            while not self._stopping:
                for call in self._take():  # threads that take too long keep no process from ending
                    threading.Thread(target=self._make, args=(call["body"], call["seen"], call.get("headers") or {}), daemon=True).start()
        finally:
            self._asked.set()
        self._finish()

    def _take(self) -> list[dict[str, Any]]:
        """Asks for calls once; the first request registers the deployment. If no server answers, it waits a moment."""
        try:
            taken = self._ask(0 if self._registration else _IDLE, self._registration)
            self._registration = None
            return taken
        except (OSError, APIError) as e:
            if isinstance(e, APIError) and e.status < 500 and e.status not in (408, 429):
                raise
            logger.warning("no server gives calls of %s: %s", self._deployment, e)
            time.sleep(_PAUSE)
            return []

    def stop(self) -> None:
        """Takes no more calls, and ends the request that waits for some."""
        self._stopping = True
        while not self._asked.is_set():
            try:
                self._ask(0, None)
            except (OSError, APIError) as e:
                logger.warning("the server does not know that the worker ends: %s", e)
            self._asked.wait(_PAUSE)  # a request may have been under way that the server got later

    def _finish(self) -> None:
        """Says that it takes no more calls, and lets those in hand finish."""
        end = time.monotonic() + _FINISH
        while True:
            try:
                self._ask(0, None)
            except (OSError, APIError) as e:
                logger.warning("the server does not know that the worker ends: %s", e)
            with self._changed:
                if self._changed.wait_for(lambda: not self._hand, _PAUSE) or time.monotonic() > end:
                    return

    def _ask(self, wait: float, registration: dict[str, Any] | None) -> list[dict[str, Any]]:
        """Asks for calls, and says which are in hand. What it takes is in hand then."""
        with self._changed:
            hand = list(self._hand)
        body: dict[str, Any] = {
            "deployment": self._deployment, "worker": self._name, "slots": 0 if self._stopping else self._slots,
            "wait": duration(wait), "calls": hand,
        }  # fmt: skip
        if registration is not None:
            body["registration"] = registration
        timeout = _PATIENCE if hand else wait + _PATIENCE
        got = self._client.send("POST", "/v1/work", body, repeat=False, timeout=timeout)
        with self._changed:
            for id in got["over"]:
                if id in self._hand:
                    self._hand[id] = False
            for call in got["calls"]:
                self._hand[call["body"]["invocation"]] = True
        calls: list[dict[str, Any]] = got["calls"]
        return calls

    def _make(self, call: dict[str, Any], seen: int, headers: dict[str, str]) -> None:
        """Makes a call, and gives its answer to any server."""
        id = call["invocation"]
        try:
            trace = headers.get("Traceparent", ""), headers.get("Tracestate", "")
            self._deliver(call, self._app.answer(codec.dumps(call), trace=trace), seen)
        except Exception:
            logger.exception("a call of run %s was not answered", call["run"]["id"])
        finally:
            with self._changed:
                del self._hand[id]
                self._changed.notify_all()

    def _deliver(self, call: dict[str, Any], r: Response, seen: int) -> None:
        answer: dict[str, Any] = {"status": r.status, "contentType": r.headers["Content-Type"], "seen": seen}
        answer["body"] = codec.loads(r.body)
        if "Retry-After" in r.headers:
            answer["retryAfter"] = r.headers["Retry-After"]
        server = Client(self._client.url, call["token"])
        while self._hand.get(call["invocation"]):
            try:
                server.send("POST", f"/v1/runs/{call['run']['id']}/call/answer", answer)
                return
            except APIError as e:
                if e.status < 500 and e.status not in (408, 429):
                    logger.warning("an answer for run %s was refused: %s", call["run"]["id"], e)
                    return
            except OSError:
                time.sleep(_PAUSE)

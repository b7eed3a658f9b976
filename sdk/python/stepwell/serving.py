"""Serves an app: as WSGI, as ASGI, or by http.server."""

from __future__ import annotations

import asyncio
import signal
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Awaitable, Callable, Iterable, Mapping, MutableMapping
from urllib.parse import quote

from .app import App, Response, refusal
from .contract import LONGEST_CALL

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


def wsgi(app: App) -> Any:
    """Returns the app as a WSGI application."""
    app.check_served()

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        r = _of_wsgi(app, environ)
        start_response(
            f"{r.status} {_REASONS.get(r.status, 'Error')}", [*r.headers.items(), ("Content-Length", str(len(r.body)))]
        )
        return [r.body]

    return application


_REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 413: "Payload Too Large", 422: "Unprocessable Entity"}


def _of_wsgi(app: App, environ: Mapping[str, Any]) -> Response:
    length = environ.get("CONTENT_LENGTH") or "0"
    if not length.isdigit() or int(length) > LONGEST_CALL:
        return refusal(413, f"the call has {length} bytes; the limit is {LONGEST_CALL}")
    headers = {name[5:].replace("_", "-").lower(): value for name, value in environ.items() if name.startswith("HTTP_")}
    headers["content-type"] = environ.get("CONTENT_TYPE") or ""
    return app.handle(environ["REQUEST_METHOD"], _target(environ), headers, environ["wsgi.input"].read(int(length)))


def _target(environ: Mapping[str, Any]) -> str:
    """Returns path and query as sent. Servers that do not keep them have decoded the path, which is encoded again."""
    for name in ("REQUEST_URI", "RAW_URI"):
        if raw := environ.get(name):
            return str(raw)
    path = quote(
        (environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")).encode("latin-1"), safe="/:@!$&'()*+,;=~"
    )
    query = environ.get("QUERY_STRING")
    return f"{path or '/'}?{query}" if query else path or "/"


def asgi(app: App) -> Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]:
    """Returns the app as an ASGI application. Calls are answered in threads, so steps may block."""
    app.check_served()

    async def application(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(app, receive, send)
        elif scope["type"] == "http":
            r = await _of_asgi(app, scope, receive)
            headers = [(name.lower().encode(), value.encode()) for name, value in r.headers.items()]
            headers.append((b"content-length", str(len(r.body)).encode()))
            await send({"type": "http.response.start", "status": r.status, "headers": headers})
            await send({"type": "http.response.body", "body": r.body})

    return application


async def _of_asgi(app: App, scope: Mapping[str, Any], receive: Receive) -> Response:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return Response(400)
        body += message.get("body", b"")
        if len(body) > LONGEST_CALL:
            return refusal(413, f"the call has more than {LONGEST_CALL} bytes")
        if not message.get("more_body"):
            break
    path = scope.get("raw_path") or quote(scope["path"]).encode()
    target = (path + (b"?" + scope["query_string"] if scope.get("query_string") else b"")).decode("latin-1")
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
    return await asyncio.to_thread(app.handle, scope["method"], target, headers, bytes(body))


async def _lifespan(app: App, receive: Receive, send: Send) -> None:
    while True:
        kind = (await receive())["type"]
        app.stopping = kind == "lifespan.shutdown"
        await send({"type": f"{kind}.complete"})
        if app.stopping:
            return


# GRACE is for how many seconds calls under way may finish when the process is to end.
GRACE = 20


def serve(app: App, port: int, host: str = "127.0.0.1", ready: Callable[[int], None] = lambda port: None) -> None:
    """Serves the app by http.server, until SIGTERM or Ctrl-C; calls under way may then finish within 20 seconds. For
    examples and small deployments. Port 0 is a free one, which ready gets.
    """
    app.check_served()
    server = _Server((host, port), app)

    def stop(*_: Any) -> None:
        app.stopping = True
        threading.Thread(target=server.shutdown).start()

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
    ready(server.server_port)
    server.serve_forever(poll_interval=0.1)
    server.server_close()
    with server.changed:
        server.changed.wait_for(lambda: server.under_way == 0, GRACE)


class _Server(ThreadingHTTPServer):
    daemon_threads = True  # connections that are idle keep no process from ending
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], app: App) -> None:
        super().__init__(address, _Handler)
        self.app, self.under_way, self.changed = app, 0, threading.Condition()


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    timeout = 120  # seconds that a connection may be idle

    def do_OPTIONS(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        self._count(1)
        try:
            self._post()
        finally:
            self._count(-1)

    def _count(self, calls: int) -> None:
        with self.server.changed:
            self.server.under_way += calls
            self.server.changed.notify_all()

    def _post(self) -> None:
        length = self.headers.get("Content-Length") or ("0" if self.command == "OPTIONS" else "")
        if not length.isdigit() or int(length) > LONGEST_CALL:
            self.close_connection = True
            return self._answer(refusal(413, f"a call has a length of at most {LONGEST_CALL} bytes"))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self._answer(self.server.app.handle(self.command, self.path, headers, self.rfile.read(int(length))))
        self.close_connection = self.close_connection or self.server.app.stopping

    def _answer(self, r: Response) -> None:
        self.send_response(r.status)
        for name, value in r.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(r.body)))
        self.end_headers()
        self.wfile.write(r.body)

    def log_message(self, *_: Any) -> None:
        """Calls are not logged: the server does."""

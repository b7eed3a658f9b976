"""Requests to the server: repeated if that helps, and page by page."""

from __future__ import annotations

import json
import threading
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable
from unittest import mock

import stepwell
from stepwell import APIError, Client, contract


class Server:
    """A server that gives prepared answers, in order, and keeps the requests."""

    def __init__(self, *answers: tuple[int, Any]) -> None:
        self.requests: list[tuple[str, str, Any, str]] = []
        left = list(answers)
        requests = self.requests
        self.respond: Callable[[list[Any]], tuple[int, Any]] = lambda requests: left.pop(0)
        server = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                requests.append((self.command, self.path, json.loads(body or b"null"), self.headers["Authorization"]))
                status, answer = server.respond(requests)
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(answer).encode() if answer is not None else b"")

            do_GET = do_POST = do_PUT = answer

            def log_message(self, *_: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._http.server_port}"

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: Any) -> None:
        self._http.shutdown()
        self._http.server_close()


@mock.patch("stepwell.client.time.sleep", lambda _: None)
class ClientTest(unittest.TestCase):
    def test_a_start_is_repeated_with_its_key(self) -> None:
        with Server((503, {}), (502, None), (201, {"id": "wrun_1"})) as s:
            run = Client(s.url, "key").start("order", {"id": 7}, timeout=60, delay=0.5, key="k", join=True)
        self.assertEqual((run.id, len(s.requests)), ("wrun_1", 3))
        self.assertEqual(s.requests[0], s.requests[2])
        method, path, body, credential = s.requests[0]
        self.assertEqual(
            (method, path, credential, len(body.pop("idempotencyKey"))), ("POST", "/v1/runs", "Bearer key", 32)
        )
        want = {
            "workflow": "order",
            "input": {"id": 7},
            "timeout": "60s",
            "delay": "0.5s",
            "key": "k",
            "onConflict": "join",
        }
        self.assertEqual(body, want)

    def test_what_may_happen_twice_is_not_repeated(self) -> None:
        with Server((503, {"error": {"message": "busy", "code": "overloaded"}})) as s, self.assertRaises(APIError) as e:
            Client(s.url).resume("t/1", 1)
        self.assertEqual(
            (e.exception.status, e.exception.code, s.requests[0][1]), (503, "overloaded", "/v1/hooks/t%2F1/resume")
        )

    def test_refusals_have_a_code(self) -> None:
        for answer, code in (
            ({"error": {"message": "no", "code": "run_not_found"}}, "run_not_found"),
            ([], ""),
            (None, ""),
        ):
            with Server((404, answer)) as s, self.assertRaises(APIError) as e:
                Client(s.url).run("wrun_1").get()
            self.assertEqual((e.exception.status, e.exception.code, len(s.requests)), (404, code, 1))
        with self.assertRaisesRegex(TypeError, "no option keys"):
            Client(s.url).start("order", keys="k")

    def test_ends_of_runs(self) -> None:
        failed = {"status": "failed", "error": {"message": "no", "code": "never", "details": [1]}}
        with Server((200, {"status": "running"}), (200, {"status": "completed", "output": 7})) as s:
            self.assertEqual(Client(s.url).run("wrun_1").wait(), 7)
        with Server((200, failed)) as s, self.assertRaises(stepwell.RunFailed) as e:
            Client(s.url).run("wrun_1").wait()
        self.assertEqual((e.exception.message, e.exception.code, e.exception.details), ("no", "never", [1]))
        with Server((200, {"status": "cancelled"})) as s, self.assertRaises(stepwell.RunCancelled):
            Client(s.url).run("wrun_1").wait()
        with self.assertRaises(TimeoutError):
            Client(s.url).run("wrun_1").wait(0)

    def test_the_rest_of_a_log_is_read_page_by_page(self) -> None:
        pages = ({"data": [{"seq": 2}, {"seq": 3, "truncated": True}], "cursor": "c"}, "large", {"data": [{"seq": 4}]})
        with Server(*((200, page) for page in pages)) as s:
            call = {"events": [{"seq": 1}], "after": 1, "token": "t", "run": {"id": "wrun_1"}}
            events = contract.whole_log(call, s.url)
        self.assertEqual([e["seq"] for e in events], [1, 2, 3, 4])
        self.assertEqual(events[2]["payload"], "large")
        self.assertEqual(s.requests[1][1], "/v1/runs/wrun_1/events/3/payload")
        self.assertRegex(s.requests[2][1], "[?]after=1&.*cursor=c")
        with Server((404, None)) as s, self.assertRaisesRegex(stepwell.Blocked, "cannot be read"):
            contract.whole_log({"events": [], "after": 1, "token": "t", "run": {"id": "wrun_1"}}, s.url)


if __name__ == "__main__":
    unittest.main()

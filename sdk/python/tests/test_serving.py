"""Calls over WSGI, ASGI and http.server: signed, refused, and what steps answer."""

from __future__ import annotations

import asyncio
import http.client
import io
import json
import subprocess
import sys
import threading
import unittest
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Callable, Optional

import stepwell
from stepwell import FatalError, RetryableError, SyncRun
from stepwell.contract import LONGEST_CALL
from stepwell.testing.memory import FEATURES

_VECTORS = json.loads((Path(__file__).parents[2] / "signature/testdata/vectors.json").read_text())
AT = "2026-11-21T11:20:51.835Z"


def call_of(step: Optional[str] = None, input: Any = None, **more: Any) -> bytes:
    run = {"id": "wrun_1", "workflow": "main", "deployment": "d", "createdAt": AT, "attributes": {}, "input": 3}
    call = {"invocation": "rh_1", "attempt": 1, "run": run, "server": {"features": FEATURES}, "token": "t"}
    if step:
        call.update(type="step", step={"id": step, "name": step, "input": input})
    else:
        events = [{"seq": 1, "type": "run_created", "createdAt": AT, "data": {}, "payload": 3}]
        call.update(type="workflow", events=events, known=0)
    return json.dumps({**call, **more}).encode()


def made(**options: Any) -> stepwell.App:
    app = stepwell.App("tests", **(options or {"unsigned": "a test"}))

    @app.workflow
    def main(run: SyncRun, n: int) -> int:
        return run.step(work, n)

    @app.step
    def work(what: Any) -> Any:
        at = stepwell.context()
        match what:
            case "fatal":
                raise FatalError("no", code="never", details=[1])
            case "later":
                raise RetryableError("busy", after=1.2, code="busy")
            case "bug":
                raise KeyError("x")
            case "exit":
                sys.exit(1)
            case "nan":
                return float("nan")
            case "store":
                at.store.set("balance", 75)
            case "large":
                at.store.set("x", "x" * (1 << 20))
        return at.idempotency_key

    return app


def over_wsgi(app: stepwell.App) -> Callable[..., tuple[int, dict[str, str], bytes]]:
    application = stepwell.wsgi(app)

    def post(path: str, query: str, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        got: list[Any] = []
        environ = {"HTTP_" + name.upper().replace("-", "_"): value for name, value in headers.items()}
        environ |= {
            "REQUEST_METHOD": "POST",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "CONTENT_LENGTH": str(len(body)),
        }
        environ["CONTENT_TYPE"] = headers.get("content-type", "")
        answer = b"".join(application({**environ, "wsgi.input": io.BytesIO(body)}, lambda *a: got.extend(a)))
        return int(got[0].split()[0]), dict(got[1]), answer

    return post


def over_asgi(app: stepwell.App) -> Callable[..., tuple[int, dict[str, str], bytes]]:
    application = stepwell.asgi(app)

    def post(path: str, query: str, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        sent: list[Any] = []
        parts = [
            {"type": "http.request", "body": body[:9], "more_body": True},
            {"type": "http.request", "body": body[9:]},
        ]
        scope = {
            "type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        }  # fmt: skip

        async def receive() -> Any:
            return parts.pop(0)

        async def send(message: Any) -> None:
            sent.append(message)

        asyncio.run(application(scope, receive, send))
        return sent[0]["status"], {k.decode(): v.decode() for k, v in sent[0]["headers"]}, sent[1]["body"]

    return post


class Serving(unittest.TestCase):
    def test_only_signed_calls_are_answered(self) -> None:
        app = made(signing_keys=_VECTORS["keys"][_VECTORS["verified"][0]["keys"][0]]["secret"])
        app.clock = lambda: _VECTORS["verified"][0]["now"]
        signed = _VECTORS["signed"][0]
        path, _, query = signed["url"].split("//", 1)[1].partition("/")[2].partition("?")
        headers = {name.lower(): value for name, value in {**signed["headers"], **signed["signature"]}.items()}
        for over in (over_wsgi, over_asgi):
            post = over(app)
            with self.subTest(over.__name__):
                self.assertNotEqual(post("/" + path, query, headers, signed["body"].encode())[0], 401)
                for changed in ({**headers, "signature": ""}, {}):
                    status, _, body = post("/" + path, query, changed, signed["body"].encode())
                    self.assertEqual((status, json.loads(body)["error"]["retryable"]), (401, True))
                self.assertEqual(post("/" + path, query, headers, signed["body"].encode() + b" ")[0], 401)

    def test_an_app_says_why_calls_are_unsigned(self) -> None:
        app = made(signing_keys="")
        with self.assertRaisesRegex(ValueError, "no signing keys"):
            stepwell.wsgi(app)
        self.assertEqual(app.handle("POST", "/", {}, call_of()).status, 401)

    def test_steps_answer(self) -> None:
        for over in (over_wsgi, over_asgi):
            post = over(made())
            for input, status, want in (
                (1, 200, "wrun_1/work"), ("fatal", 422, {"message": "no", "code": "never", "details": [1]}),
                ("later", 500, {"message": "busy", "code": "busy"}), ("bug", 500, {"message": "KeyError: 'x'",
                "code": "KeyError"}),
                ("exit", 500, {"message": "SystemExit: 1", "code": "SystemExit"}),
                ("nan", 422, {"message": "the output of step work: nan cannot be kept as JSON", "code": "unencodable"}),
                ("store", 200, {"output": "wrun_1/work", "store": {"balance": 75}}), ("large", 422,
                {"code": "store_limit"}),
            ):  # fmt: skip
                with self.subTest(over=over.__name__, input=input):
                    got, headers, body = post("/", "", {}, call_of("work", input))
                    answer = json.loads(body)
                    if "error" in (answer if isinstance(answer, dict) else ()):
                        answer = {name: value for name, value in answer["error"].items() if name in want}
                    self.assertEqual((got, answer), (status, want))
                    headers = {name.lower(): value for name, value in headers.items()}
                    self.assertEqual(headers.get("retry-after"), "2" if input == "later" else None)
                    kind = "application/vnd.stepwell.step+json" if input == "store" else "application/json"
                    self.assertEqual(headers["content-type"], kind)

    def test_what_is_no_call_is_refused(self) -> None:
        app = made()
        post = over_wsgi(app)
        old = {"features": [f for f in FEATURES if f != "known"]}
        for body, status, code in (
            (b"{", 400, None), (b"[]", 400, None), (b"{}", 400, None), (call_of("work", type="other"), 400, None),
            (call_of("gone"), 503, "unknown_step"), (call_of(run={"id": "wrun_1", "workflow": "gone"}), 500,
            "unknown_workflow"),
            (call_of(server=old), 500, "unsupported"), (call_of(after=1), 500, "unsupported"),
        ):  # fmt: skip
            got, _, answer = post("/", "", {}, body)
            self.assertEqual((got, json.loads(answer)["error"].get("code")), (status, code), body)
        self.assertEqual(app.handle("GET", "/", {}, b"").status, 405)
        app.stopping = True
        got, _, answer = post("/", "", {}, call_of("work"))
        self.assertEqual((got, json.loads(answer)["error"]["code"]), (503, "shutdown"))

    def test_a_lifespan_that_ends_stops_the_app(self) -> None:
        app = made()
        received, sent = ["lifespan.startup", "lifespan.shutdown"], list[str]()

        async def receive() -> Any:
            return {"type": received.pop(0)}

        async def send(message: Any) -> None:
            sent.append(f"{message['type']} {app.stopping}")

        asyncio.run(stepwell.asgi(app)({"type": "lifespan"}, receive, send))
        self.assertEqual(sent, ["lifespan.startup.complete False", "lifespan.shutdown.complete True"])

    def test_over_http(self) -> None:
        app, port = made(), threading.Event()
        ports: list[int] = []
        server = threading.Thread(
            target=stepwell.serve, args=(app, 0), kwargs={"ready": lambda p: (ports.append(p), port.set())}
        )
        server.daemon = True
        server.start()
        self.assertTrue(port.wait(10))
        url = f"http://127.0.0.1:{ports[0]}/"
        with urllib.request.urlopen(urllib.request.Request(url, call_of(), method="POST")) as response:
            answer = json.load(response)
        self.assertEqual([(c["type"], c["input"]) for c in answer["commands"]], [("runStep", 3)])
        request = urllib.request.Request(url, b"", {"Content-Length": str(LONGEST_CALL + 1)}, method="POST")
        with self.assertRaises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request)
        self.assertEqual(refused.exception.code, 413)
        refused.exception.close()

    def test_a_process_that_ends_finishes_what_is_under_way(self) -> None:
        program = """
import stepwell, time
app = stepwell.App("tests", unsigned="a test")
@app.step
def work(seconds: float) -> str:
    print("begun", flush=True)
    time.sleep(seconds)
    return "done"
stepwell.serve(app, 0, ready=lambda port: print(port, flush=True))
"""
        folder = str(Path(__file__).parents[1])
        with subprocess.Popen(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=folder, text=True
        ) as process:
            assert process.stdout
            port = int(process.stdout.readline())
            idle = http.client.HTTPConnection("127.0.0.1", port)
            idle.request("POST", "/", call_of("gone"))
            self.assertEqual(json.load(idle.getresponse())["error"]["code"], "unknown_step")
            busy = http.client.HTTPConnection("127.0.0.1", port)
            busy.request("POST", "/", call_of("work", 0.3))
            self.assertEqual(process.stdout.readline(), "begun\n")
            process.terminate()
            self.assertEqual(busy.getresponse().read(), b'"done"')
            self.assertEqual(process.wait(10), 0)
            idle.close()
            busy.close()

    def test_copies_of_a_call_share_one_execution(self) -> None:
        executed: list[int] = []
        begun, go_on = threading.Event(), threading.Event()
        app = stepwell.App("tests", unsigned="a test")

        @app.workflow
        def main(run: SyncRun, n: int) -> int:
            def slow() -> int:
                executed.append(n)
                begun.set()
                go_on.wait(10)
                return n

            return run.do(slow)

        answers: list[bytes] = []
        copies = [threading.Thread(target=lambda: answers.append(app.answer(call_of()).body)) for _ in range(4)]
        copies[0].start()
        begun.wait(10)
        for copy in copies[1:]:
            copy.start()
        while app.copies < 3 and copies[0].is_alive():
            pass
        go_on.set()
        for copy in copies:
            copy.join()
        self.assertEqual((executed, len(set(answers))), ([3], 1))

    def test_what_cannot_work_is_named(self) -> None:
        app = stepwell.App("tests", unsigned="a test")

        @app.workflow
        async def main(run: SyncRun) -> set[int]:
            return set()

        @app.step
        def work(*args: int) -> threading.Thread:
            return threading.Thread()

        with self.assertRaises(ValueError) as raised:
            stepwell.wsgi(app)
        for part in ("main is an async function, which gets a Run", "parameters need names", "Thread cannot be kept"):
            self.assertIn(part, str(raised.exception))


if __name__ == "__main__":
    unittest.main()

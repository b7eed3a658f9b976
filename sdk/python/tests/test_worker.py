"""A worker on a server that hands it calls."""

from __future__ import annotations

import json
import threading
import unittest
from typing import Any, Callable
from unittest import mock

import stepwell
from stepwell import APIError, Client

from .test_client import Server
from .test_serving import call_of, made


def taken(*calls: bytes, over: tuple[str, ...] = ()) -> dict[str, Any]:
    bodies = [json.loads(call) for call in calls]
    return {
        "calls": [{"headers": {}, "seen": 3, "body": {**body, "token": "t"}} for body in bodies],
        "over": list(over),
    }


class Handing(Server):
    """A server that answers each request by a function of its path and body."""

    def __init__(self, answer: Callable[[str, Any], tuple[int, Any]]) -> None:
        super().__init__()
        self.respond = lambda requests: answer(requests[-1][1], requests[-1][2])


@mock.patch("stepwell.worker._PAUSE", 0.01)
class WorkerTest(unittest.TestCase):
    def work(self, *polls: Any, answers: tuple[int, ...] = ()) -> list[tuple[str, str, Any, str]]:
        """Lets a worker ask, with these results, until all were given. Returns its requests."""
        left, answered = list(polls), list(answers)

        def answer(path: str, body: Any) -> tuple[int, Any]:
            if path != "/v1/work":
                return (answered.pop(0) if answered else 204), None
            if left:
                result = left.pop(0)
                return result if isinstance(result, tuple) else (200, result)
            if not worker._stopping:
                threading.Thread(target=worker.stop).start()
            return 200, taken()

        with Handing(answer) as s:
            worker = stepwell.Worker(made(signing_keys=""), "orders", 4, Client(s.url, "key"))
            worker.run()
        return s.requests

    def test_makes_calls_and_answers_them(self) -> None:
        requests = self.work(taken(call_of("work", 1), call_of("work", "later", invocation="rh_2")), taken())
        first = requests[0][2]
        self.assertEqual((first["deployment"], first["slots"], first["wait"]), ("orders", 4, "0s"))
        self.assertEqual(first["registration"], {"workflows": ["main"]})
        polls = [r[2] for r in requests if r[1] == "/v1/work"]
        self.assertEqual(["registration" in p for p in polls], [True] + [False] * (len(polls) - 1))
        self.assertIn(0, [p["slots"] for p in polls])
        answers = [(r[2], r[3]) for r in requests if r[1] == "/v1/runs/wrun_1/call/answer"]
        want = [
            {"status": 200, "contentType": "application/json", "seen": 3, "body": "wrun_1/work"},
            {
                "status": 500,
                "contentType": "application/json",
                "seen": 3,
                "body": {"error": {"message": "busy", "code": "busy"}},
                "retryAfter": "2",
            },
        ]
        self.assertEqual(sorted(answers, key=lambda a: a[0]["status"]), [(w, "Bearer t") for w in want])

    def test_goes_on_while_no_server_answers(self) -> None:
        requests = self.work((503, {}), taken(call_of("work", 1)), answers=(503, 204))
        self.assertEqual(sum(r[1].endswith("/call/answer") for r in requests), 2)

    def test_does_not_repeat_what_is_refused(self) -> None:
        requests = self.work(taken(call_of("work", 1)), answers=(409,))
        self.assertEqual(sum(r[1].endswith("/call/answer") for r in requests), 1)

    def test_ends_if_it_is_refused(self) -> None:
        with self.assertRaises(APIError) as e:
            self.work((403, {"error": {"message": "no", "code": "forbidden"}}))
        self.assertEqual(e.exception.code, "forbidden")

    def test_answers_nothing_that_is_over(self) -> None:
        app = stepwell.App("tests")
        begun, go_on, asked = threading.Event(), threading.Event(), [0]

        @app.step
        def work() -> None:
            begun.set()
            go_on.wait(10)

        def answer(path: str, body: Any) -> tuple[int, Any]:
            asked[0] += 1
            if asked[0] == 1:
                return 200, taken(call_of("work"))
            begun.wait(10)
            if body["calls"]:
                threading.Thread(target=go_on.set).start() if asked[0] > 2 else None
                return 200, taken(over=("rh_1",))
            if not worker._stopping:
                threading.Thread(target=worker.stop).start()
            return 200, taken()

        with Handing(answer) as s:
            worker = stepwell.Worker(app, "orders", 1, Client(s.url))
            worker.run()
        self.assertEqual({r[1] for r in s.requests}, {"/v1/work"})
        self.assertEqual(s.requests[0][2]["registration"], {"stepsOnly": True})


if __name__ == "__main__":
    unittest.main()

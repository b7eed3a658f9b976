"""Streams that steps and workflows write, and runs that go on as others."""

from __future__ import annotations

import threading
import unittest
from unittest import mock
from typing import Any

import stepwell
from stepwell import FatalError, Run, SyncRun, contract
from stepwell.stream import MOST_UNSENT, Sender
from stepwell.testing import Environment, every_crash, replay

from .test_client import Server


class StreamTest(unittest.TestCase):
    def test_crashes_write_nothing_twice(self) -> None:
        attempts: list[int] = []

        @stepwell.step
        def poem(lines: int) -> int:
            attempts.append(len(attempts))
            tokens = stepwell.context().stream("tokens")
            for n in range(lines):
                tokens.write(f"step {len(attempts)}.{n}")
            return lines

        app = stepwell.App("streams", unsigned="a test")
        app.add(poem)

        @app.workflow
        async def poems(run: Run) -> str:
            tokens = run.stream("tokens")
            tokens.write("body 0")
            await run.step(poem, 3)
            tokens.write("body 1")
            await run.sleep(1)
            tokens.write("body 2")
            tokens.close()
            return "written"

        def scenario(env: Environment) -> None:
            run = env.start(poems)
            self.assertEqual(run.result(), "written")
            chunks = run.stream("tokens", str)
            self.assertEqual([c for c in chunks if c.startswith("body")], ["body 0", "body 1", "body 2"])
            self.assertEqual(len(set(chunks)), len(chunks))
            self.assertEqual([c[-1] for c in chunks if c.startswith("step")][-3:], ["0", "1", "2"])

        self.assertGreater(every_crash(app, scenario), 3)

    def test_what_is_closed_takes_nothing(self) -> None:
        app = stepwell.App("streams", unsigned="a test")

        @app.step
        def late() -> None:
            tokens = stepwell.context().stream("tokens")
            tokens.close()
            tokens.write(1)

        @app.workflow
        def main(run: SyncRun) -> str:
            try:
                run.step(late)
            except stepwell.StepFailed as e:
                return e.code
            return ""

        self.assertEqual(Environment(app).start(main).result(), "stream_closed")

    def test_writers_send_together_and_wait_for_the_server(self) -> None:
        sent: list[dict[str, Any]] = []
        arrived, go_on = threading.Event(), threading.Event()

        def send(write: dict[str, Any]) -> None:
            sent.append(write)
            arrived.set()
            self.assertTrue(go_on.wait(60))

        sender = Sender(send, every=0.001)
        sender.add("a", (0, 1))
        self.assertTrue(arrived.wait(60))
        for n in range(1, 5):
            sender.add("a", (n, MOST_UNSENT // 4))
        sender.add("a", (5, 1))  # the last one that does not wait
        waits = threading.Thread(target=sender.add, args=("a", None))
        waits.start()
        go_on.set()
        waits.join(60)
        sender.end()
        self.assertEqual([c for w in sent for c in w["chunks"]], list(range(6)))
        closes = [6] if len(sent) == 5 else []  # alone, if what waited begins late
        self.assertEqual([w["from"] for w in sent], [0, 1, 3, 5, *closes])
        self.assertEqual([w["close"] for w in sent], [False] * (len(sent) - 1) + [True])

    def test_refusals_end_the_writer(self) -> None:
        call = {"server": {"features": ["stream"]}, "run": {"id": "r"}, "step": {"id": "s"}, "token": "t"}
        write = {"stream": "s", "from": 0, "chunks": [1], "close": False}
        for status, code, want in ((409, "stream_limit", FatalError), (409, "stale_invocation", stepwell.StepOver),
                                   (410, "run_ended", stepwell.StepOver)):  # fmt: skip
            with Server((503, None), (status, {"error": {"code": code, "message": "no"}})) as s:
                sender = Sender(contract.stream_sender(call, s.url, False), every=0.001)
                sender.add("s", (1, 1))
                self.assertRaises(want, sender.end)
                self.assertRaises(want, sender.add, "s", (2, 1))
            self.assertEqual(s.requests, [("POST", "/v1/runs/r/call/stream", write, "Bearer t")] * 2)
        without = Sender(contract.stream_sender({**call, "server": {}}, "http://127.0.0.1:1", False), every=0.001)
        without.add("s", (1, 1))
        self.assertRaises(FatalError, without.end)


class ContinuationTest(unittest.TestCase):
    def test_work_goes_on_after_every_crash(self) -> None:
        app = stepwell.App("endless", unsigned="a test")

        @app.workflow
        async def account(run: Run, rounds: int) -> list[Any]:
            run.store.set("total", run.store.get("total", int, 0))
            deposits = run.inbox("deposits", int)
            for _ in range(2):
                run.store.set("total", run.store.get("total", int, 0) + await deposits.receive())
            if rounds > 1:
                return run.continue_as(rounds - 1)  # type: ignore[no-any-return]
            return [run.store.get("total", int), run.info.attributes["owner"], run.should_continue()]

        @app.workflow
        def parent(run: SyncRun) -> Any:
            return run.child(account, 3, attributes={"owner": "ann"})

        def scenario(env: Environment) -> None:
            run = env.start(account, 3, inbox=["deposits"], attributes={"owner": "ann"})
            for n in range(6):
                env.send(run, "deposits", 10**n, id=f"m{n}")
            self.assertEqual(run.result(), [111111, "ann", False])
            assert run.continued and run.continued.continued
            self.assertIsNone(run.continued.continued.continued)
            self.assertEqual(run.status, "completed")
            replay(app, run.continued.export())

        self.assertGreater(every_crash(app, scenario), 2)
        env = Environment(app)
        run = env.start(parent)
        for _ in range(3):
            env.run_until_idle()
            child = env.memory.runs[-1]
            for n in range(2):
                env.memory.write(child, "hook_received", "inbox:deposits", {}, 5)
        self.assertEqual(run.result(), [30, "ann", False])

    def test_long_logs_should_continue(self) -> None:
        app = stepwell.App("endless", unsigned="a test")

        @app.workflow
        async def ticking(run: Run, rounds: int) -> int:
            ticks = 0
            while not run.should_continue():
                await run.sleep(1)
                ticks += 1
            return run.continue_as(rounds - 1) if rounds > 1 else ticks

        with mock.patch("stepwell.run.LONG_LOG", 20):
            run = Environment(app).start(ticking, 2)
            self.assertEqual(run.result(), 10)  # each of them is asked for, and ends
        assert run.continued
        self.assertLess(len(run.log), 30)


if __name__ == "__main__":
    unittest.main()

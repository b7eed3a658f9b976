"""What is easily wrong: orders of writes, waiters that are gone, and what must not be asked for twice."""

from __future__ import annotations

import asyncio
import unittest
from datetime import timedelta
from typing import Any

import stepwell
from stepwell import contract, Blocked, FatalError, Run, StepFailed, SyncRun, TokenTaken
from stepwell.testing import Environment, replay

from .test_features import app_of, deposit, double, started


def count(run: Any, type: str) -> int:
    return sum(e["type"] == type for e in run.log)


class Functions(unittest.TestCase):
    def test_that_had_no_time_are_executed_later(self) -> None:
        async def main(run: Run) -> list[int]:
            late = run.do(lambda: 7)
            return [await run.step(double, 1), await run.step(double, 2), await late]

        app = app_of(main)
        answer, calls = app.answer, [0]

        def without_time(body: bytes, in_time: Any = None, tell: Any = None, send: Any = None) -> stepwell.Response:
            calls[0] += 1
            return answer(body, in_time if calls[0] > 10 else lambda: False, tell, send)

        app.answer = without_time  # type: ignore[method-assign]
        run = Environment(app).start("main")
        self.assertEqual(run.result(), [2, 4, 7])
        created = [e for e in run.log if e["type"] == "step_created"]
        self.assertEqual([e["correlationId"] for e in created], ["double", "double#2", "do"])

    def test_that_are_cancelled_at_once_are_not_executed(self) -> None:
        executed: list[int] = []

        async def main(run: Run) -> int:
            run.do(lambda: executed.append(1)).cancel()
            return await run.step(double, await run.step(double, 1))

        self.assertEqual((started(main)[1].result(), executed), (4, []))

    def test_fail_for_good_after_their_retries(self) -> None:
        executed: list[int] = []

        def broken() -> None:
            executed.append(1)
            raise ConnectionError("away")

        async def main(run: Run) -> list[Any]:
            try:
                await run.do(broken, retries=2)
            except StepFailed as e:
                return [e.id, e.code, len(executed)]
            return []

        self.assertEqual(started(main)[1].result(), ["broken", "ConnectionError", 3])


class Writes(unittest.TestCase):
    def test_the_later_one_in_the_log_counts(self) -> None:
        async def main(run: Run) -> int:
            depositing = run.step(deposit, 10)
            await run.sleep(1)
            run.store.set("balance", 100)  # the step has written before, but its result comes afterwards
            await depositing
            return run.store.get("balance", int)

        env, run = started(main)
        env._act(env.memory.runs[0])
        env.memory.now += timedelta(seconds=1)
        self.assertEqual((run.result(), run.store), (100, {"balance": 100}))

    def test_that_changed_nothing_are_not_repeated(self) -> None:
        async def main(run: Run) -> None:
            for status in ("new", "paid", "done"):
                run.set_attributes({"status": status})
                await run.sleep(1)

        env, run = started(main, attributes={"status": "new"})
        run.result()
        changes = [e["data"]["changes"][0]["value"] for e in run.log if e["type"] == "attr_set"]
        self.assertEqual(changes, ["paid", "done"])

    def test_have_limits(self) -> None:
        async def main(run: Run) -> list[str]:
            for n in range(256):
                run.store.set(f"key-{n}", n)
            codes = []
            for key, value in (("one more", 1), ("key-0", "x" * (1 << 20)), ("", 1), ("x" * 257, 1), ("a\x00", 1)):
                try:
                    run.store.set(key, value)
                except FatalError as e:
                    codes.append(e.code)
            run.store.delete("key-0")
            run.store.set("another", 1)
            await run.sleep(1)
            return codes

        self.assertEqual(started(main)[1].result(), ["store_limit"] * 5)


class Waiting(unittest.TestCase):
    def test_nobody_is_called_for_what_nobody_awaits(self) -> None:
        async def main(run: Run) -> None:
            for n in range(3):
                run.step(double, n)
            shielded = run.step(double, 13)
            try:
                await asyncio.wait_for(asyncio.shield(shielded), 1)
            except asyncio.TimeoutError:
                pass
            await run.sleep(60)

        def plain(run: SyncRun) -> None:
            started = [run.start(double, n) for n in range(3)]
            run.sleep(60)
            for f in started:
                f.get()

        for fn, calls in ((main, 3), (plain, 2)):
            env, run = started(fn)
            env.run_until_done()
            self.assertEqual((run.status, run.invocations), ("completed", calls))

    def test_a_payload_goes_to_who_still_waits(self) -> None:
        async def main(run: Run) -> list[Any]:
            hook, got = run.hook("h", int, token="t"), list[Any]()
            for give_up in (asyncio.wait_for(hook.receive(), 1), hook.receive(timeout=1)):
                try:
                    await give_up
                except (asyncio.TimeoutError, TimeoutError):
                    got.append("late")
            return [*got, await hook.receive(timeout=60)]

        env, run = started(main)
        env.advance(5)
        env.resume("t", 7)
        self.assertEqual(run.result(), ["late", "late", 7])
        self.assertEqual(count(run, "wait_cancelled"), 1)  # of the last one

    def test_a_timer_of_asyncio_is_cancelled_if_it_is_not_needed(self) -> None:
        async def main(run: Run) -> None:
            await asyncio.wait_for(run.step(double, 1), 60)
            await run.sleep(1)

        env, run = started(main)
        run.result()
        self.assertEqual(
            (count(run, "wait_cancelled"), env.now), (1, env.memory.runs[0].created_at + timedelta(seconds=1))
        )

    def test_a_token_stays_taken(self) -> None:
        async def main(run: Run) -> int:
            hook, taken = run.hook("h", token="t"), 0
            for _ in range(2):
                try:
                    await hook.receive()
                except TokenTaken:
                    taken += 1
            return taken

        env, _ = started(main)
        second = env.start("main")
        env.run_until_idle()
        self.assertEqual(second.result(), 2)

    def test_an_error_of_map_cancels_what_is_under_way(self) -> None:
        async def main(run: Run) -> None:
            try:
                await run.map([13, -1], lambda n: run.step(double, n))
            except StepFailed:
                await run.sleep(100)

        env, run = started(main)
        run.result()
        self.assertIn("cancelled", [e["data"].get("errorCode") for e in run.log if e["type"] == "step_failed"])

    def test_time_does_not_go_back(self) -> None:
        async def main(run: Run) -> bool:
            before = run.now()
            await run.step(double, 1)
            return run.now() >= before

        env, run = started(main)
        env._act(env.memory.runs[0])
        env.memory.now -= timedelta(seconds=10)
        env.memory.runs[0].steps["double"].due = env.now
        self.assertTrue(run.result())


@unittest.skipUnless(hasattr(asyncio, "TaskGroup"), "Python 3.11 has them")
class NewerAsyncio(unittest.TestCase):
    def test_groups_and_timeouts(self) -> None:
        async def main(run: Run) -> list[Any]:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(helper(run, n)) for n in range(3)]
            got: list[Any] = [t.result() for t in tasks]
            try:
                async with asyncio.timeout(5):
                    await run.hook("never").receive()
            except TimeoutError:
                got.append("late")
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(helper(run, -1))
                    group.create_task(helper(run, 13))
            except BaseExceptionGroup as e:  # noqa: F821
                got += [x.code for x in e.exceptions]
            return got

        async def helper(run: Run, n: int) -> int:
            return await run.step(double, n)

        env, run = started(main)
        self.assertEqual(run.result(), [0, 2, 4, "late", "negative"])
        self.assertIn("helper#4.double", [e.get("correlationId") for e in run.log])


class Heartbeats(unittest.TestCase):
    def test_the_next_attempt_goes_on(self) -> None:
        @stepwell.step(retries=2, heartbeat_timeout=30)
        def rows() -> list[Any]:
            at = stepwell.context()
            done = at.progress(int)
            if done is None:
                at.heartbeat(7)
                at.heartbeat(8)  # it is not sent, so soon after the other
                raise ConnectionError("away")
            return [done, at.attempt]

        async def main(run: Run) -> list[Any]:
            return await run.step(rows)

        app = app_of(main)
        app.add(rows)
        self.assertEqual(Environment(app).start("main").result(), [7, 2])

    def test_what_is_over_is_told(self) -> None:
        from .test_client import Server

        for status, over in ((204, False), (429, False), (503, False), (409, True), (410, True)):
            with Server((status, None)) as s:
                call = {"server": {"features": ["heartbeat"]}, "run": {"id": "r"}, "step": {"id": "s"}, "token": "t"}
                tell = contract.heartbeats(call, s.url, False)
                if over:
                    self.assertRaises(stepwell.StepOver, tell, 1)
                else:
                    tell(1)
            self.assertEqual(s.requests, [("POST", "/v1/runs/r/call/heartbeat", {"progress": 1}, "Bearer t")])

    def test_errors_that_cannot_be_kept_lose_their_details(self) -> None:
        error = FatalError("broken \ud800", code="c", details={1, 2})
        self.assertEqual(error.as_json(), {"message": "broken ?", "code": "c"})


class Exported(unittest.TestCase):
    def test_runs_are_replayed(self) -> None:
        version = [1]

        async def main(run: Run) -> int:
            late = run.do(lambda: 5)
            total = sum(await run.map(range(3), lambda n: run.step(double, n)))
            await run.sleep(60)
            if version[0] == 2 and run.patched("more"):
                total += await run.step(double, 1)
            return total + await late + (version[0] == 4)

        app = app_of(main)
        completed, under_way = Environment(app).start("main"), Environment(app).start("main")
        completed.result()
        under_way._environment.run_until_idle()
        logs = completed.export(), under_way.export()
        for version[0] in (1, 2):
            for log in logs:
                replay(app, log)
        version[0] = 4
        replay(app, logs[1])
        with self.assertRaisesRegex(AssertionError, "ended with .*'output': 11.*, but the code answers .*12"):
            replay(app, logs[0])
        with self.assertRaisesRegex(ValueError, "are missing"):
            replay(app, {**logs[0], "events": logs[0]["events"][1:]})

    def test_runs_that_do_not_fit_are_found_at_their_event(self) -> None:
        async def main(run: Run) -> None:
            await run.step(double, 1)

        async def changed(run: Run) -> None:
            await run.sleep(1)
            await run.step(double, 1)

        run = started(main)[1]
        run.result()
        other = app_of()
        other.workflow(name="main")(changed)
        with self.assertRaisesRegex(
            AssertionError, "with the first 5 of its 6 events: diverged: (.|\n)*inserted before"
        ):
            replay(other, run.export())


class Leaving(unittest.TestCase):
    def test_whatever_catches_everything_does_not_count(self) -> None:
        def returns(run: SyncRun) -> int:
            try:
                return run.step(double, 2)
            except BaseException:
                return -1

        def raises(run: SyncRun) -> int:
            try:
                return run.step(double, 2)
            except BaseException:
                raise FatalError("it was caught") from None

        for fn in (returns, raises):
            self.assertEqual(started(fn)[1].result(), 4)

    def test_what_blocks_is_not_a_failure(self) -> None:
        async def main(run: Run) -> None:
            raise Blocked("wait for the next version", "not_yet")

        env = Environment(app_of(main, fail_on=(Exception,)))
        run = env.start("main")
        env.run_until_idle()
        self.assertEqual((run.status, run.blocked), ("running", "not_yet: wait for the next version"))


if __name__ == "__main__":
    unittest.main()

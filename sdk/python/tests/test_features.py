"""What a workflow can ask for, in both forms."""

from __future__ import annotations

import asyncio
import unittest
from datetime import timedelta
from typing import Any, Callable

import stepwell
from stepwell import Cancelled, ChildFailed, FatalError, Run, StepFailed, SyncRun, Undecodable
from stepwell.testing import Environment, TestRun


@stepwell.step(retries=1, backoff=10)
def double(n: int) -> int:
    if n < 0:
        raise FatalError("it is negative", code="negative", details={"n": n})
    if n == 13:
        raise ValueError("it is unlucky")
    return 2 * n


@stepwell.step
def deposit(cents: int) -> None:
    store = stepwell.context().store
    store.set("balance", (store.get("balance", int) or 0) + cents)


def app_of(*workflows: Callable[..., Any], fail_on: tuple[type[Exception], ...] = ()) -> stepwell.App:
    app = stepwell.App("tests", unsigned="a test", strict_inputs=True)
    app.add(double, deposit)
    for w in workflows:
        app.workflow(fail_on=fail_on)(w)
    return app


def started(*workflows: Callable[..., Any], input: Any = None, **options: Any) -> tuple[Environment, TestRun]:
    env = Environment(app_of(*workflows))
    return env, env.start(workflows[0].__name__, input, **options)


class Steps(unittest.TestCase):
    def test_run_at_the_same_time(self) -> None:
        async def main(run: Run) -> list[int]:
            return await asyncio.gather(*(run.step(double, n) for n in range(12)))

        def plain(run: SyncRun) -> list[int]:
            return [f.get() for f in [run.start(double, n) for n in range(12)]]

        for fn in (main, plain):
            env, run = started(fn)
            env.run_until_idle()
            self.assertEqual(run.result(), [2 * n for n in range(12)])
            self.assertEqual([e["type"] for e in run.log[2:14]], ["step_created"] * 12)

    def test_fail_with_their_code_and_are_retried(self) -> None:
        async def main(run: Run) -> list[Any]:
            failed: list[Any] = []
            for n in (-1, 13):
                try:
                    await run.step(double, n)
                except StepFailed as e:
                    failed += [e.step, e.id, e.message, e.code]
            return failed

        env, run = started(main)
        self.assertEqual(
            run.result(),
            [
                "double",
                "double",
                "it is negative",
                "negative",
                "double",
                "double#2",
                "ValueError: it is unlucky",
                "ValueError",
            ],
        )
        self.assertEqual(sum(e["type"] == "step_retrying" for e in run.log), 1)
        self.assertEqual(env.now, env.memory.runs[0].created_at + timedelta(seconds=10))

    def test_fail_the_run_if_nobody_catches_it(self) -> None:
        async def main(run: Run) -> None:
            await run.step(double, -1)

        env, run = started(main)
        env.run_until_done()
        self.assertEqual(run.error, {"message": "it is negative", "code": "negative", "details": {"n": -1}})

    def test_do_is_executed_once_and_repeated_after_its_pause(self) -> None:
        calls: list[int] = []

        def flaky() -> int:
            calls.append(len(calls))
            if len(calls) < 3:
                raise ConnectionError("not yet")
            return len(calls)

        async def main(run: Run) -> list[int]:
            got = await asyncio.gather(run.do(flaky, backoff=60), run.do(lambda: 7))
            return [*got, await run.step(double, 1)]

        env, run = started(main)
        self.assertEqual(run.result(), [3, 7, 2])
        self.assertEqual(len(calls), 3)
        self.assertEqual(env.now, env.memory.runs[0].created_at + timedelta(seconds=180))


class Tasks(unittest.TestCase):
    def test_of_asyncio_work(self) -> None:
        async def one(run: Run, n: int) -> int:
            await asyncio.sleep(60 * n)
            return await run.step(double, n)

        async def main(run: Run) -> list[int]:
            a, b = asyncio.create_task(one(run, 2)), asyncio.create_task(one(run, 1), name="second")
            return [await b, await a, round(run.now().timestamp() - run.info.created_at.timestamp())]

        env, run = started(main)
        self.assertEqual(run.result(), [2, 4, 120])
        ids = [e["correlationId"] for e in run.log if e["type"] == "step_created"]
        self.assertEqual(len(ids), 2)
        self.assertIn("one.double", ids)

    def test_that_come_too_late_are_cancelled(self) -> None:
        async def main(run: Run) -> str:
            hook = run.hook("never")
            try:
                await asyncio.wait_for(hook.receive(), 60)
            except asyncio.TimeoutError:
                pass
            step = run.step(double, 13)
            try:
                await asyncio.wait_for(step, 5)
            except asyncio.TimeoutError:
                return "late"
            return "?"

        env, run = started(main)
        self.assertEqual(run.result(), "late")
        self.assertIn(("step_failed", "cancelled"), [(e["type"], e["data"].get("errorCode")) for e in run.log])

    def test_map_keeps_the_order_and_limits_what_is_open(self) -> None:
        most: list[int] = []

        async def main(run: Run, n: int) -> list[int]:
            return await run.map(range(n), lambda i: run.step(double, i), key=lambda i: f"item-{i}", concurrency=3)

        env, run = started(main, input=10)
        while run.status == "running":
            most.append(len(env.memory.runs[0].steps))
            self.assertTrue(env._act(env.memory.runs[0]))
        self.assertEqual((run.result(), max(most)), ([2 * n for n in range(10)], 3))
        self.assertTrue(run.log[-3]["correlationId"].startswith("map.item-"))
        self.assertEqual(started(main, input=0)[1].result(), [])

    def test_map_cancels_the_others_at_the_first_error(self) -> None:
        async def main(run: Run) -> None:
            await run.map([13, -1], lambda i: run.step(double, i))

        env, run = started(main)
        env.run_until_done()
        self.assertEqual(run.error["code"], "negative")


class Outside(unittest.TestCase):
    def test_nth_receive_gets_the_nth_message(self) -> None:
        async def main(run: Run) -> list[str]:
            await run.sleep(10)
            notes = run.inbox("notes", str)
            got = [await notes.receive(), await notes.receive()]
            try:
                await notes.receive()
            except Undecodable as e:
                got.append(e.code)
            try:
                await notes.receive(timeout=60)
            except TimeoutError:
                got.append("late")
            return got

        def plain(run: SyncRun) -> list[str]:
            run.sleep(10)
            notes = run.inbox("notes", str)
            got = [notes.receive().get(), notes.receive().get()]
            try:
                notes.receive().get()
            except Undecodable as e:
                got.append(e.code)
            try:
                notes.receive(timeout=60).get()
            except TimeoutError:
                got.append("late")
            return got

        for fn in (main, plain):
            for opened in (["notes"], []):
                env, run = started(fn, inbox=opened)
                if not opened:
                    env.advance(11)
                env.send(run, "notes", "a", id="1")
                env.send(run, "notes", "a again", id="1")
                env.send(run, "notes", "b")
                env.send(run, "notes", 7)
                self.assertEqual(run.result(), ["a", "b", "undecodable", "late"])

    def test_updates_are_answered_once(self) -> None:
        async def main(run: Run) -> str:
            updates, left = run.updates("withdraw", int), 100
            while (u := await updates.receive()).input:
                if u.input > left:
                    u.reject(stepwell.StepwellError("too little", code="funds"))
                    continue
                left = await run.do(lambda: left - u.input)
                u.reply(left)
                try:
                    u.reply("again")
                except stepwell.StepwellError as e:
                    return e.code if left < 60 else "early"
            return "never"

        env, run = started(main, inbox=["withdraw"])
        env.send(run, "withdraw", 110, id="1")
        env.send(run, "withdraw", 50, id="2 b")
        self.assertIsNone(env.answer(run, "withdraw", "1"))
        self.assertEqual(run.result(), "already_answered")
        self.assertEqual(env.answer(run, "withdraw", "1"), {"error": {"message": "too little", "code": "funds"}})
        self.assertEqual(env.answer(run, "withdraw", "2 b"), {"output": 50})

    def test_signals(self) -> None:
        async def main(run: Run, order: str) -> list[Any]:
            paid = run.signal("order.paid", dict, condition=f"data.order == {stepwell.cel(order)}")
            got = await paid.receive()
            paid.close()
            await run.emit("order.done", {"order": order})
            return [got.name, got.id, got.data]

        env, run = started(main, input='7"')
        env.run_until_idle()
        self.assertEqual(env.signal("order.paid", {"order": "8"}, matches=lambda c: '"8"' in c), 0)
        self.assertEqual(env.signal("order.paid", {"order": '7"'}, matches=lambda c: c == r'data.order == "7\""'), 1)
        self.assertEqual(run.result(), ["order.paid", "sig_1", {"order": '7"'}])
        self.assertEqual(env.memory.signals, [("order.done", {"order": '7"'})])

    def test_approvals(self) -> None:
        def main(run: SyncRun, timeout: float | None) -> str:
            try:
                a = run.approval("Order 7", by=["ann", "bob"], quorum=2, timeout=timeout)
            except TimeoutError:
                return "late"
            return f"{a.approved} {[v.by for v in a.votes]}"

        async def asynchronous(run: Run, timeout: float | None) -> str:
            try:
                a = await run.approval("Order 7", by=["ann", "bob"], quorum=2, timeout=timeout)
            except TimeoutError:
                return "late"
            return f"{a.approved} {[v.by for v in a.votes]}"

        for fn in (main, asynchronous):
            for votes, want in (
                ([("approve", "ann"), ("approve", "Ann "), ("approve", "bob")], "True ['ann', 'Ann ', 'bob']"),
                ([("approve", "ann"), ("reject", "bob")], "False ['ann', 'bob']"),
                ([], "late"),
            ):
                env, run = started(fn, input=3600)
                env.run_until_idle()
                for decision, by in votes:
                    env.vote(run, "approval", decision, by=by)
                self.assertEqual(run.result(), want)

    def test_a_token_that_is_taken(self) -> None:
        async def main(run: Run) -> str:
            try:
                return str(await run.hook("h", str, token="t").receive())
            except stepwell.TokenTaken as e:
                return f"taken by {e.run_id[-1]}"

        env, first = started(main)
        second = env.start("main")
        env.run_until_idle()
        env.resume("t", "mine")
        self.assertEqual((first.result(), second.result()), ("mine", "taken by 1"))

    def test_children(self) -> None:
        async def main(run: Run, n: int) -> list[Any]:
            ids = await run.start_run("child", 5)
            try:
                return [ids, await run.child("child", n, attributes={"n": str(n)})]
            except ChildFailed as e:
                return [e.code, e.run_id, e.message, e.details]

        def child(run: SyncRun, n: int) -> int:
            run.sleep(60)
            return run.step(double, n)

        env, run = started(main, child, input=4)
        self.assertEqual(run.result(), ["wrun_00000000000000000000000002", 8])
        env, run = started(main, child, input=-1)
        self.assertEqual(run.result(), ["child_failed", "wrun_00000000000000000000000003", "it is negative", {"n": -1}])

    def test_store_is_the_fold_of_what_was_delivered(self) -> None:
        async def main(run: Run) -> list[Any]:
            seen = [run.store.get("balance")]
            run.store.set("balance", 5)
            await run.step(deposit, 10)
            seen.append(run.store.get("balance", int))
            run.store.set("note", {"text": "x"})
            await run.step(deposit, 1)
            run.store.delete("note")
            await run.sleep(1)
            return [*seen, run.store.get("balance"), run.store.get("note", default="none")]

        _, run = started(main)
        self.assertEqual(run.result(), [None, 15, 16, "none"])
        self.assertEqual(run.store, {"balance": 16})

    def test_attributes_are_set_once_in_their_order(self) -> None:
        async def main(run: Run) -> None:
            for status in ("new", "paid", "new"):
                run.set_attributes({"status": status, "customer": "ann"})
                await run.sleep(1)

        env, run = started(main, attributes={"customer": "ann"})
        run.result()
        self.assertEqual(run.attributes, {"status": "new", "customer": "ann"})
        changes = [e["data"]["changes"] for e in run.log if e["type"] == "attr_set"]
        self.assertEqual([c[0]["value"] for c in changes], ["new", "paid", "new"])


class Cancelling(unittest.TestCase):
    def test_asks_and_the_workflow_cleans_up(self) -> None:
        async def main(run: Run) -> None:
            try:
                await run.sleep(3600)
            finally:
                await run.step(deposit, 1)

        def plain(run: SyncRun) -> None:
            try:
                run.sleep(3600)
            except Cancelled:
                run.step(deposit, 1)
                raise

        for fn in (main, plain):
            env, run = started(fn)
            env.run_until_idle()
            env.cancel(run, "twice", grace=60)
            env.run_until_done()
            self.assertEqual((run.status, run.store), ("cancelled", {"balance": 1}), run.blocked)
            self.assertIn("wait_cancelled", [e["type"] for e in run.log])

    def test_may_be_ignored_and_is_forced_after_the_grace(self) -> None:
        async def main(run: Run, ignore: bool) -> str:
            try:
                await run.sleep(3600)
            except Cancelled:
                if not ignore:
                    return f"done, though {run.cancel_reason}"
            await run.sleep(3600)
            return "?"

        for ignore, want in ((False, "completed"), (True, "cancelled")):
            env, run = started(main, input=ignore)
            env.run_until_idle()
            env.cancel(run, "twice", grace=60)
            env.run_until_done()
            self.assertEqual(run.status, want)


if __name__ == "__main__":
    unittest.main()

"""Replay: code that has changed is found, whatever is not deterministic too, and nothing is written for it."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
import unittest
from typing import Any, Awaitable, Callable

import stepwell
from stepwell import Cancelled, Run, StepFailed, SyncRun
from stepwell.codec import dumps, loads
from stepwell.engine import Engine, Event
from stepwell.errors import Blocked
from stepwell.execution import Execution, RunInfo
from stepwell.testing import Environment

from .test_features import app_of, double


@stepwell.step(name="echo")
def echo(text: str) -> str:
    return text


def first(run: Run) -> Awaitable[Any]:
    async def main() -> None:
        await run.step(echo, "a")
        await run.sleep(5)
        await run.step(echo, "b")
        await run.hook("h", token="t").receive()

    return main()


class Diverges(unittest.TestCase):
    def changed(self, change: Callable[[Run], Awaitable[Any]], until: int = 6) -> str:
        """Starts a run with the first version, and goes on with another one. Returns why it is blocked."""
        code: list[Callable[[Run], Awaitable[Any]]] = [first]

        async def main(run: Run) -> None:
            await code[0](run)

        app = app_of(main)
        app.add(echo)
        env = Environment(app)
        run = env.start("main")
        env.advance(until)
        code[0] = change
        before = len(run.log)
        if until >= 6:
            env.resume("t", 1)
            before += 1
        env.run_until_idle()
        self.assertEqual(len(run.log), before, "something was written")
        return run.blocked

    def test_if_a_step_was_removed(self) -> None:
        async def removed(run: Run) -> None:
            await run.sleep(5)
            await run.step(echo, "b")
            await run.hook("h", token="t").receive()

        self.assertRegex(
            self.changed(removed),
            r"(?s)diverged: .*the log has +#5  step_completed +echo .*it asked last .*wait.*it was removed",
        )

    def test_if_a_step_was_inserted(self) -> None:
        async def inserted(run: Run) -> None:
            await run.step(double, 3)
            await first(run)

        self.assertRegex(
            self.changed(inserted), r"(?s)the log has.*echo.*the code asks.*double.*run\.patched\('double'\)"
        )

    def test_if_the_input_is_another_one(self) -> None:
        async def other(run: Run) -> None:
            await run.step(echo, "x")

        self.assertRegex(self.changed(other), r"(?s)The input of 'echo' was another one:\s+was 'a'\s+is  'x'")

    def test_if_the_name_is_another_one(self) -> None:
        async def renamed(run: Run) -> None:
            await run.step(double.using(id="echo"), 1)

        self.assertIn("In the log 'echo' is the ID of step 'echo'", self.changed(renamed))

    def test_if_it_returns_too_early(self) -> None:
        async def early(run: Run) -> None:
            await run.step(echo, "a")

        self.assertRegex(self.changed(early), r"(?s)the log has.*wait_created.*the code +returns.*it asked last.*echo")

    def test_if_nobody_asks_for_a_result(self) -> None:
        async def nothing(run: Run) -> None:
            await asyncio.Event().wait()

        self.assertRegex(self.changed(nothing), r"(?s)the log has.*echo.*the code asks +for nothing")

    def test_not_if_the_change_is_patched(self) -> None:
        code: list[bool] = [False]

        async def main(run: Run) -> list[bool]:
            await run.sleep(1)
            seen = [code[0] and run.patched("early")]
            await run.sleep(1)
            if code[0] and run.patched("late"):
                await run.step(double, 2)
                seen.append(True)
            await run.sleep(1)
            return [*seen, code[0] and run.patched("late")]

        env = Environment(app_of(main))
        run = env.start("main")
        env.advance(1.5)
        code[0] = True
        self.assertEqual(run.result(), [False, True, True])
        self.assertEqual(
            [e["correlationId"] for e in run.log if e["type"] == "step_created"],
            ["patch:late", "double", "patch:late#2"],
        )


class IsBlocked(unittest.TestCase):
    def blocked(self, fn: Callable[..., Any], input: Any = None) -> str:
        env = Environment(app_of(fn))
        run = env.start(fn.__name__, input)
        env.run_until_idle()
        self.assertEqual(run.status, "running")
        return run.blocked

    def test_by_what_is_not_deterministic(self) -> None:
        async def clock(run: Run) -> None:
            await run.sleep(time.perf_counter_ns() % 1_000_003)

        async def chance(run: Run) -> None:
            await run.step(echo, str(random.random()))

        for fn in (clock, chance):
            self.assertIn("two calls with the same log had different answers", self.blocked(fn))

    def test_by_misuse_even_if_the_code_catches_it(self) -> None:
        async def called(run: Run) -> None:
            try:
                double(1)
            except Exception:
                pass

        async def thread(run: Run) -> None:
            try:
                await asyncio.to_thread(print)
            except Exception:
                pass

        def used_in_do(run: SyncRun) -> None:
            run.do(lambda: run.sleep(1))

        async def twice(run: Run) -> None:
            await asyncio.gather(*(run.step(echo.using(id="same"), "x") for _ in range(2)))

        async def got(run: Run) -> None:
            run.step(echo, "x").get()

        for fn, why in (
            (called, "use run.step(double"), (thread, "run_in_executor reaches outside"), (used_in_do,
            "in the function of run.do"),
            (twice, "give it another name"), (got, "use await"),
        ):  # fmt: skip
            self.assertRegex(self.blocked(fn), f"misuse: .*{why.replace('(', '[(]')}")

    def test_by_a_mistake_unless_it_is_to_fail(self) -> None:
        async def wrong(run: Run) -> None:
            {}["key"]  # type: ignore[index]

        self.assertEqual(self.blocked(wrong), "KeyError: KeyError: 'key'")
        env = Environment(app_of(wrong, fail_on=(KeyError,)))
        run = env.start("wrong")
        env.run_until_done()
        self.assertEqual(run.error, {"message": "KeyError: 'key'", "code": "KeyError"})

    def test_by_waiting_for_nothing(self) -> None:
        async def waits(run: Run) -> None:
            await asyncio.Event().wait()

        self.assertRegex(self.blocked(waits), "^stuck: ")

    def test_by_asking_for_too_much(self) -> None:
        async def many(run: Run) -> None:
            await asyncio.gather(*(run.step(double, n) for n in range(1001)))

        self.assertRegex(self.blocked(many), "^too_many_commands: ")

    def test_by_a_result_of_another_type(self) -> None:
        async def main(run: Run) -> None:
            await run.step(stepwell.step(name="double", retries=1)(text), 2)

        def text(n: int) -> str:
            return str(n)

        self.assertRegex(self.blocked(main), "undecodable: the log has a result of step double .* 4 is no str")


class Suspension(unittest.TestCase):
    def test_cannot_be_caught(self) -> None:
        after: list[str] = []

        def main(run: SyncRun) -> int:
            try:
                return run.step(double, 2)
            except:  # noqa: E722
                after.append("caught")
                run.sleep(1)
                return -1

        def cleaning(run: SyncRun) -> int:
            try:
                return run.step(double, 2)
            finally:
                run.set_attributes({"a": "b"})

        for fn in (main, cleaning):
            env = Environment(app_of(fn))
            self.assertEqual(env.start(fn.__name__).result(), 4)
        self.assertTrue(after)

    def test_puts_tasks_aside_in_silence(self) -> None:
        async def helper(run: Run) -> None:
            try:
                await run.hook("never").receive()
            finally:
                await run.sleep(1)  # has no effect when the invocation ends

        async def main(run: Run) -> int:
            asyncio.create_task(helper(run))
            return await run.step(double, 2)

        env = Environment(app_of(main))
        run = env.start("main")
        self.assertEqual(run.result(), 4)
        self.assertNotIn("wait_created", [e["type"] for e in run.log])


class Property(unittest.TestCase):
    """The commands are a function of the log, however it was divided into invocations."""

    def program(self, seed: int) -> Callable[[Run], Awaitable[Any]]:
        """Returns a random workflow of tasks that race, cancel, time out and decide by what came first."""

        async def part(run: Run, rng: random.Random, depth: int) -> list[Any]:
            trace: list[Any] = []
            for _ in range(rng.randint(1, 3)):
                match rng.randint(0, 6 if depth < 2 else 4):
                    case 0:
                        trace.append(await run.step(double, rng.randint(0, 9)))
                    case 1:
                        await asyncio.sleep(rng.randint(1, 20))
                    case 2:
                        try:
                            trace.append(await asyncio.wait_for(run.step(double, rng.randint(0, 9)), rng.randint(1, 4)))
                        except (asyncio.TimeoutError, StepFailed):
                            trace.append("late")
                    case 3:
                        try:
                            trace.append(await run.inbox("box", int).receive(timeout=rng.randint(1, 30)))
                        except TimeoutError:
                            trace.append("none")
                    case 4:
                        run.store.set("n", (run.store.get("n") or 0) + 1)
                        run.set_attributes({"n": str(rng.randint(0, 2))})
                        trace.append(await run.do(lambda: 5))
                    case _:
                        tasks = [
                            asyncio.create_task(part(run, random.Random(rng.random()), depth + 1)) for _ in range(2)
                        ]
                        for done in asyncio.as_completed(tasks) if rng.random() < 0.3 else tasks:
                            trace.append(await done)
            return trace

        return lambda run: part(run, random.Random(seed), 0)

    def test_replay_is_a_function_of_the_log(self) -> None:
        ended = 0
        for seed in range(100):
            code = self.program(seed)

            async def main(run: Run) -> Any:
                try:
                    return await code(run)
                except Cancelled:
                    await run.step(double, 1)
                    raise

            app = app_of(main)
            env, rng = Environment(app), random.Random(-seed)
            run = env.start("main", inbox=["box"])
            memory = env.memory.runs[0]
            for n in itertools.count():
                if run.status != "running" or n > 400:
                    break
                if rng.random() < 0.15:
                    env.send(run, "box", n)
                elif rng.random() < 0.01:
                    env.cancel(run, "why", grace=1000)
                self.happen(env, rng)
            self.assertEqual(run.blocked, "", f"seed {seed}")
            self.assertNotEqual(run.status, "running", f"seed {seed}")
            answer = self.replay(app, memory.log[:-1], seed)
            if run.status == "completed":
                ended += 1
                self.assertEqual(answer["commands"][-1], {"type": "complete", "output": memory.output}, f"seed {seed}")
        self.assertGreater(ended, 60)

    def happen(self, env: Environment, rng: random.Random) -> None:
        """Lets one thing happen: in any order, and while the run's next invocation waits."""
        run = env.memory.runs[0]
        due = [s for s in run.steps.values() if s.due <= env.now]
        if due and rng.random() < 0.5:
            env._execute(run, rng.choice(due))
        elif rng.random() < 0.5 and (times := env._times()):
            env.memory.now = max(env.now, min(times))
            wanted, run.wanted = run.wanted, False
            env._act(run)
            run.wanted = run.wanted or wanted
        elif run.wanted:
            env._invoke(run)

    def replay(self, app: stepwell.App, log: list[dict[str, Any]], seed: int) -> dict[str, Any]:
        """Replays the whole log at once, and returns the answer. It must fit."""
        engine = Engine([Event(loads(dumps(e))) for e in log], len(log), strict=True)
        info = RunInfo("wrun_" + "1".zfill(26), "main", "tests", engine.now, {})
        try:
            return Execution(engine, info).run(app.workflows["main"], None, lambda: False)
        except Blocked as e:
            self.fail(f"seed {seed}: {e.message}")


if __name__ == "__main__":
    unittest.main()

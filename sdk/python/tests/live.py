"""Runs workflows of all kinds on a real server, and compares what comes of them with what must.

With the argument encoded, payloads are. It needs the server's STEPWELL_URL, STEPWELL_API_KEY with the role admin, and its STEPWELL_SIGNING_KEYS.
"""

from __future__ import annotations

import asyncio
import functools
import secrets
import sys
import threading
import time
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, Callable

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import stepwell  # noqa: E402
from scrambling import Scrambling  # noqa: E402
from stepwell.testing import replay  # noqa: E402
from stepwell import (
    ChildFailed,
    Client,
    FatalError,
    RetryableError,
    Run,
    RunCancelled,
    RunFailed,
    SyncRun,
)  # noqa: E402

encoded = Scrambling("k2", "k1") if "encoded" in sys.argv else None
app = stepwell.App("live", strict_inputs=True, codec=encoded)
client = Client(codec=Scrambling("k1", "k2") if encoded else None)
executed: list[str] = []  # keys of attempts


@app.step(backoff=0.05, retries=2)
def work(what: Any) -> Any:
    at = stepwell.context()
    executed.append(at.idempotency_key)
    if what == "fatal":
        raise FatalError("no", code="never", details={"a": [1]})
    if what == "busy" and at.attempt < 3:
        raise RetryableError("busy", after=0.01)
    if what == "deposit":
        at.store.set("balance", at.store.get("balance", int, 0) + 10)
    return what


@app.step
async def exact(number: int, at: datetime, price: Decimal, data: bytes) -> tuple[int, datetime, Decimal, bytes]:
    return number, at, price, data


@app.step(backoff=0.05, heartbeat_timeout=5)
def rows() -> list[Any]:
    at = stepwell.context()
    if (done := at.progress(int)) is None:
        at.heartbeat(7)
        raise ConnectionError("away")
    return [done, at.attempt]


@app.workflow
async def parallel(run: Run) -> list[Any]:
    slow = asyncio.create_task(run_late(run))
    first = await asyncio.gather(*(run.step(work, n) for n in range(40)))
    mapped = await run.map(range(20), lambda n: run.step(work, n), key=str, concurrency=4)
    done, _ = await run.do(lambda: [1, 2]), await run.do(lambda: None)
    token = await run.do(secrets.token_hex)
    flaky = await run.do(functools.partial(fail_at_first, run.info.id), name="flaky", backoff=0.05)
    return [
        sum(first),
        mapped == list(range(20)),
        done,
        len(token),
        flaky,
        await slow,
        await run.step(work, "busy"),
        await run.step(rows),
    ]


async def run_late(run: Run) -> str:
    try:
        await asyncio.wait_for(run.hook("never").receive(), 0.2)
    except asyncio.TimeoutError:
        return "late"
    return "?"


failures: set[str] = set()


def fail_at_first(run_id: str) -> int:
    if run_id not in failures:
        failures.add(run_id)
        raise ConnectionError("not yet")
    return 7


@app.workflow
def values(run: SyncRun) -> list[Any]:
    at = datetime(2026, 11, 30, 1, 2, 3, 456789, timezone(timedelta(hours=5, minutes=30)))
    given = (2**77 + 1, at, Decimal("0.10"), b"\x00\xff")
    return [run.step(exact, *given) == given, run.step("work", "by name"), (run.now() - run.info.created_at).days]


@app.workflow
async def outside(run: Run, order: str) -> list[Any]:
    notes = run.inbox("notes", str)
    condition = "" if encoded else f"data.order == {stepwell.cel(order)}"  # the server evaluates it
    paid = run.signal("order.paid", dict, condition=condition)
    hook = run.hook("decision", bool, token=f"decide-{order}", metadata={"question": "?"})
    got: list[Any] = [
        await notes.receive(),
        await notes.receive(),
        await hook.receive(),
        (await paid.receive()).data["cents"],
    ]
    hook.close()
    agreed = await run.approval("ship?", by=["ann", "bob"], quorum=2, timeout=60)
    try:
        await run.approval("again?", timeout=0.1)
    except TimeoutError:
        got.append("nobody")
    later = run.inbox("later", int)  # opened by the workflow
    run.store.set("ready", True)
    last = await later.receive()
    update = await run.updates("double", int).receive()
    update.reply(2 * update.input)
    return [*got, agreed.approved, [v.by for v in agreed.votes], last]


@app.workflow
async def state(run: Run) -> list[Any]:
    run.store.set("balance", 5)
    await run.step(work, "deposit")
    run.set_attributes({"status": "new"})
    run.set_attributes({"status": "new", "customer": "ann"})
    await run.step(work, "deposit")
    started = await run.start_run("child", 4, key=f"of-{run.info.id}")
    await run.emit("state.done", {"run": run.info.id})
    children = await asyncio.gather(run.child("child", 2), run.child("child", -1), return_exceptions=True)
    failed = children[1]
    assert isinstance(failed, ChildFailed), children
    run.store.delete("nothing")
    return [
        run.store.get("balance"),
        children[0],
        failed.code,
        failed.message,
        failed.run_id != started,
        run.patched("p"),
    ]


@app.workflow
def child(run: SyncRun, n: int) -> int:
    if n < 0:
        raise FatalError("it is negative", code="negative")
    run.sleep(0.05)
    return 2 * n


@app.workflow
async def cancelled(run: Run) -> None:
    try:
        await asyncio.gather(run.sleep(3600), run.child("forever"))
    finally:
        await run.step(work, "cleaned up")


@app.workflow
async def forever(run: Run) -> None:
    await run.hook("never").receive()


@app.workflow
def failing(run: SyncRun) -> None:
    run.step(work, "fatal")


@app.workflow
async def long(run: Run) -> int:
    total = 0
    for _ in range(3):
        total += sum(await asyncio.gather(*(run.step(work, n) for n in range(150))))
    return total


@app.step
def tell(words: list[Any]) -> None:
    tokens = stepwell.context().stream("tokens")
    for word in words:
        tokens.write(word)


@app.workflow
async def endless(run: Run, rounds: int) -> str:
    run.stream("tokens").write(f"round {rounds}")
    await run.step(tell, ["a", {"b": 1}])
    note = await run.inbox("notes", str).receive()
    run.store.set("notes", run.store.get("notes", str, "") + note)
    return run.continue_as(rounds - 1) if rounds > 1 else run.store.get("notes", str)


def check(what: str, got: Any, want: Any) -> None:
    if got != want:
        raise AssertionError(f"{what}: got {got!r}, want {want!r}")
    print(f"{time.monotonic() - began:5.1f} s  {what}", flush=True)


def until(what: str, ready: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not ready():
        if time.monotonic() > end:
            raise AssertionError(f"{what} within a minute")
        time.sleep(0.02)


def meet_outside() -> None:
    run = client.start(outside, "7", inbox=["notes", "double"], send=[{"inbox": "notes", "id": "1", "payload": "a"}])
    run.send("notes", "a", id="1")
    run.send("notes", "b")
    opened = [e for e in run.events() if e["type"] == "hook_created"]
    until("the hook is open", lambda: any(e.get("correlationId") == "decision" for e in run.events()))
    if not encoded:
        client.signal("order.paid", {"order": "8", "cents": 1})
    client.signal("order.paid", {"order": "7", "cents": 25})
    client.resume("decide-7", True)
    until("the approval is open", lambda: any(e.get("correlationId") == "approval" for e in run.events()))
    run.vote("approval", "approve", by="ann")
    run.vote("approval", "approve", by="bob")
    until("the store is written", lambda: run.store() == {"ready": True})
    run.send("later", 3)
    check("an update", run.ask("double", 21, id="u", type=int), 42)
    check("outside", (run.wait(60), bool(opened)), (["a", "b", True, 25, "nobody", True, ["ann", "bob"], 3], True))
    check("asked again", run.ask("double", 21, id="u", type=int), 42)


def meet_cancel() -> None:
    run = client.start(cancelled)
    until("it has a child", lambda: any("childId" in e["data"].get("step", {}) for e in run.events()))
    run.cancel("twice", grace=60)
    try:
        run.wait(60)
    except RunCancelled:
        pass
    cleaned = [e["payload"] for e in run.events() if e["type"] == "step_completed"]
    check("cancelled", cleaned[-1:], ["cleaned up"])


@app.workflow
def waiting(run: SyncRun) -> Any:
    paid = run.step(work, "paid")
    run.do(lambda: executed.append("said"), name="say")
    run.sleep(3600)
    return paid


def meet_check(url: str) -> None:
    """Replays an open run with the code that there is, and with other code, before it goes there."""
    run = client.start(waiting)
    until("it waits", lambda: any(e["type"] == "wait_created" for e in run.events()))
    other = stepwell.App("other", codec=encoded)  # signed, as the first one
    attempts: list[str] = []

    @other.step(name="work")
    def other_work(what: Any) -> Any:
        attempts.append("step")

    @other.workflow(name="waiting")
    def other_waiting(run: SyncRun) -> Any:
        run.do(lambda: attempts.append("first"), name="first")
        return run.step(other_work, "paid")

    ports: list[int] = []
    ready = threading.Event()
    serving = {"ready": lambda port: (ports.append(port), ready.set())}
    threading.Thread(target=stepwell.serve, args=(other, 0), kwargs=serving, daemon=True).start()
    ready.wait(10)
    seen, length = len(executed), len(list(run.events()))
    got = client.request("POST", "/v1/deployments/live/check", {"url": url})
    check("its own code", [got["replayed"] == got["checked"] > 0, got["runs"]], [True, []])
    got = client.request("POST", "/v1/deployments/live/check", {"url": f"http://127.0.0.1:{ports[0]}/"})
    check("other code", [r["verdict"] for r in got["runs"] if r["runId"] == run.id], ["diverges"])
    check("what checks do", [attempts, len(executed) - seen, len(list(run.events())) - length], [[], 0, 0])
    run.cancel("checked")


def main() -> None:
    check("parallel", client.start(parallel).wait(60), [780, True, [1, 2], 64, 7, "late", "busy", [7, 2]])
    check("values", client.start(values).wait(60), [True, "by name", 0])
    meet_outside()
    run = client.start(state)
    check("state", run.wait(60), [25, 4, "child_failed", "it is negative", True, True])
    check(
        "store and attributes",
        (run.store(), run.get()["attributes"]),
        ({"balance": 25}, {"status": "new", "customer": "ann"}),
    )
    meet_cancel()
    notes = [{"inbox": "notes", "id": str(n), "payload": "abc"[n]} for n in range(3)]
    run = client.start(endless, 3, inbox=["notes"], send=notes)
    check("stream", list(run.stream("tokens")), ["round 3", "a", {"b": 1}])
    check("its end", list(run.stream("tokens", begin=-1)), [{"b": 1}])
    check("a run that goes on", run.wait(60), "abc")
    try:
        client.start(failing).wait(60)
    except RunFailed as e:
        check("failing", (e.message, e.code, e.details), ("no", "never", {"a": [1]}))
    check(
        "a key that is taken",
        client.start(forever, key="k", join=True).id,
        client.start(forever, key="k", join=True).id,
    )
    run = client.start(long)
    check("a log of more than a call", (run.wait(300), sum(1 for _ in run.events()) > 1000), (3 * 150 * 149 // 2, True))
    runs = client.request("GET", "/v1/runs", query={"limit": "1000"})["data"]
    for handle in [client.run(r["id"]) for r in runs]:
        replay(app, {"run": handle.get(), "events": list(handle.events())})
    check("replays", len(runs) > 10, True)
    check("each attempt once", len(executed) - len(set(executed)), 2)  # those of "busy"


if __name__ == "__main__":
    began = time.monotonic()
    if "pull" in sys.argv:
        worker = stepwell.Worker(app, "live", 20, client)
        working = threading.Thread(target=worker.run)
        working.start()
        until("the worker is known", lambda: client.request("GET", "/v1/deployments")["data"] != [])
        try:
            main()
        finally:
            worker.stop()
            working.join()
    else:
        ports: list[int] = []
        ready = threading.Event()
        serving = {"ready": lambda port: (ports.append(port), ready.set())}
        threading.Thread(target=stepwell.serve, args=(app, 0), kwargs=serving, daemon=True).start()
        ready.wait(10)
        client.register("live", f"http://127.0.0.1:{ports[0]}/functions/live")
        main()
        meet_check(f"http://127.0.0.1:{ports[0]}/functions/live")

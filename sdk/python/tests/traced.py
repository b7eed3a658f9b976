"""A worker whose spans go to OTEL_EXPORTER_OTLP_ENDPOINT, and the caller of its workflow. It prints the run's ID."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import stepwell  # noqa: E402
from stepwell import Run, Work, otlp  # noqa: E402

exporter = otlp.Exporter(service="python", every=0.05)
counted: list[str] = []


@contextmanager
def count(work: Work) -> Iterator[None]:
    try:
        yield
    except Exception as e:
        counted.append(f"{work.kind} {work.name} {work.attempt} {e}")
        raise
    counted.append(f"{work.kind} {work.name} {work.attempt}")


app = stepwell.App("python", observe=[exporter, count])


@app.step(backoff=0.05)
def plan(to: str) -> str:
    if stepwell.context().attempt == 1:
        raise ConnectionError(f"no map of {to}")
    return stepwell.traceparent().split("-")[1]


@app.workflow
async def trip(run: Run, to: str) -> list[str]:
    quick = await run.do(stepwell.traceparent, name="quick")
    await run.sleep(0.05)  # another call, which repeats the function
    planned = await run.step(plan, to)
    there = await run.step("reserve", to, deployment="tests", id="reserve")
    return [quick.split("-")[1], planned, there]


if __name__ == "__main__":
    client = stepwell.Client()
    worker = stepwell.Worker(app, "python", 4, client)
    working = threading.Thread(target=worker.run)
    working.start()
    while not [d for d in client.request("GET", "/v1/deployments")["data"] if d["id"] == "python"]:
        time.sleep(0.02)
    with exporter.span("checkout", "00-000102030405060708090a0b0c0d0e0f-0102030405060708-01"):
        run = client.start(trip, "Rome")
    first, second, there = run.wait(60)
    assert first == second and there == "seat to Rome", (first, second, there)
    worker.stop()
    working.join()
    exporter.flush()
    assert exporter.lost == 0 and stepwell.traceparent() == "", exporter.lost
    for once in ("step quick 1", "step plan 1 no map of Rome", "step plan 2"):
        assert counted.count(once) == 1, counted
    assert counted.count("workflow trip 1") >= 2, counted
    print("run", run.id)

"""The workflows of docs/conform.md, half of them plain functions, served on a free port that is printed."""

from __future__ import annotations

import asyncio
import secrets
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import stepwell  # noqa: E402
from stepwell import FatalError, Run, SyncRun  # noqa: E402

app = stepwell.App("conform")


@app.step(name="conform.draw")
def draw() -> int:
    return secrets.randbelow(1 << 40)


@app.step(name="conform.third", retries=4, backoff=1, max_backoff=1)
async def third() -> str:
    if stepwell.context().attempt < 3:
        raise ConnectionError("not yet")
    return "third time"


@app.workflow(name="conform.echo")
def echo(run: SyncRun, input: Any) -> Any:
    return input


@app.workflow(name="conform.steps")
def steps(run: SyncRun, n: int) -> list[int]:
    return [run.step(draw) for _ in range(n)]


@app.workflow(name="conform.parallel")
async def parallel(run: Run, n: int) -> list[int]:
    return await asyncio.gather(*(run.step(draw) for _ in range(n)))


@app.workflow(name="conform.sleep")
async def sleep(run: Run) -> str:
    await asyncio.sleep(1)
    return "awake"


@app.workflow(name="conform.retry")
def retry(run: SyncRun) -> str:
    return run.step(third)


@app.workflow(name="conform.fail")
async def fail(run: Run) -> None:
    raise FatalError("as asked", code="conform")


@app.workflow(name="conform.hook")
async def hook(run: Run, token: str) -> Any:
    return await run.hook("conform.hook", token=token).receive()


@app.workflow(name="conform.child")
def child(run: SyncRun, input: Any) -> Any:
    return run.child(echo, input)


if __name__ == "__main__":
    stepwell.serve(app, 0, ready=lambda port: print("listening", port, flush=True))

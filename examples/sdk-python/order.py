"""An order workflow on Stepwell with the Python SDK. ../function-python is the same order without the SDK."""

import asyncio
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "sdk" / "python"))  # until `pip install stepwell`

import stepwell  # noqa: E402
from stepwell import FatalError, Run, StepFailed  # noqa: E402


@dataclass
class Purchase:
    """The input of an order. The warehouse takes some seconds."""

    id: str
    item: str
    amount: float
    seconds: float = 0


@dataclass
class Payment:
    """What has been charged, under which key."""

    charged: float
    key: str


@dataclass
class Decision:
    """Answers whether an order is approved."""

    approved: bool


app = stepwell.App(
    "orders", unsigned="" if os.environ.get("STEPWELL_SIGNING_KEYS") else "an example on this machine only"
)


@app.workflow
async def order(run: Run, purchase: Purchase) -> dict[str, object]:
    charging, reserving = run.step(charge, purchase), run.step(reserve, purchase)  # both run now
    payment = await charging
    try:
        await reserving
        await asyncio.sleep(1)  # durable: it may be days as well
        decision = await run.hook("approval", Decision, token=f"approve-{purchase.id}").receive()
        if not decision.approved:
            raise FatalError("it was not approved")
    except StepFailed as e:
        await run.step(refund, payment)
        return {"status": "rejected", "reason": f"{e.id}: {e.message}"}
    except FatalError as e:
        await run.step(refund, payment)
        return {"status": "rejected", "reason": e.message}
    return {"status": "shipped", "payment": payment, "parcel": await run.step(ship, purchase.item)}


# The steps. They are ordinary functions, and may do anything.


@app.step(backoff=0.2)
def charge(purchase: Purchase) -> Payment:
    tell()
    if stepwell.context().attempt == 1:
        raise ConnectionError("the bank is busy")  # it is tried again
    return Payment(purchase.amount, stepwell.context().idempotency_key)


@app.step(attempt_timeout=30)
def reserve(purchase: Purchase) -> None:
    tell()
    if purchase.item == "unicorn":
        raise FatalError("there are no unicorns")  # it is not tried again
    time.sleep(purchase.seconds)  # the work itself


@app.step
def refund(payment: Payment) -> float:
    tell()
    return payment.charged


@app.step
def ship(item: str) -> str:
    tell()
    return f"a parcel with one {item}"


def tell() -> None:
    at = stepwell.context()
    print(f"step {at.name} attempt {at.attempt}\n", end="", flush=True)  # one write, since threads print at once


if __name__ == "__main__" and "work" in sys.argv:
    print("working", os.getpid(), flush=True)
    stepwell.work(app)  # asks the server of STEPWELL_URL for calls: nothing has to reach this process
elif __name__ == "__main__":
    stepwell.serve(app, int(os.environ.get("PORT", "3000")), ready=lambda port: print("listening", port, flush=True))

"""An order in async and in plain functions, for tests of both."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import stepwell
from stepwell import FatalError, Run, StepwellError, SyncRun


@dataclass
class Purchase:
    id: str
    items: list[str]
    cents: int = 2500


@dataclass
class Receipt:
    status: str
    payment: str = ""
    parcels: list[str] = field(default_factory=list)


@dataclass
class Decision:
    approved: bool


class Bank:
    """A bank that acts once for each key, and is busy at first."""

    def __init__(self) -> None:
        self.charged: dict[str, int] = {}
        self.refunded: dict[str, int] = {}


bank = Bank()


@stepwell.step(retries=3, backoff=0.2)
def charge(purchase: Purchase) -> str:
    at = stepwell.context()
    if at.attempt == 1:
        raise ConnectionError("the bank is busy")
    bank.charged[at.idempotency_key] = purchase.cents
    return f"payment of {purchase.cents}"


@stepwell.step
async def reserve(item: str, shelf: int = 1) -> str:
    await asyncio.sleep(0)
    if item == "unicorn":
        raise FatalError("there are no unicorns", code="sold_out", details={"item": item})
    return f"{item} of shelf {shelf}"


@stepwell.step
def refund(payment: str, cents: int) -> None:
    bank.refunded[stepwell.context().idempotency_key] = cents


def make(name: str = "orders", strict: bool = True) -> stepwell.App:
    """Returns an app with the order in both forms."""
    app = stepwell.App(name, unsigned="a test", strict_inputs=strict)
    app.add(charge, reserve, refund)

    @app.workflow
    async def order(run: Run, purchase: Purchase) -> Receipt:
        paying = run.step(charge, purchase)
        try:
            parcels = await run.map(purchase.items, lambda item: run.step(reserve, item), key=str)
            payment = await paying
            await run.sleep(1)
            decision = await run.hook("approval", Decision, token=f"approve-{purchase.id}").receive(timeout=3600)
            if not decision.approved:
                raise FatalError("it was not approved")
        except (StepwellError, TimeoutError) as e:
            await run.step(refund, await paying, purchase.cents)
            return Receipt(f"rejected: {e}")
        return Receipt("shipped", payment, parcels)

    @app.workflow
    def plain_order(run: SyncRun, purchase: Purchase) -> Receipt:
        paying = run.start(charge, purchase)
        try:
            reserving = [run.start(reserve, item) for item in purchase.items]
            parcels = [r.get() for r in reserving]
            payment = paying.get()
            run.sleep(1)
            decision = run.hook("approval", Decision, token=f"approve-{purchase.id}").receive(timeout=3600).get()
            if not decision.approved:
                raise FatalError("it was not approved")
        except (StepwellError, TimeoutError) as e:
            run.step(refund, paying.get(), purchase.cents)
            return Receipt(f"rejected: {e}")
        return Receipt("shipped", payment, parcels)

    return app

"""The order: approved, rejected, sold out, expired; and whatever is lost, nothing happens twice."""

from __future__ import annotations

import unittest

from stepwell.testing import Environment, every_crash

from . import orders
from .orders import Purchase, Receipt

FORMS = ("order", "plain_order")
TEA = Purchase("7", ["tea", "pot", "cup"])
SHIPPED = Receipt("shipped", "payment of 2500", ["tea of shelf 1", "pot of shelf 1", "cup of shelf 1"])


class OrderTest(unittest.TestCase):
    def setUp(self) -> None:
        orders.bank.__init__()  # type: ignore[misc]

    def test_is_approved(self) -> None:
        for form in FORMS:
            with self.subTest(form):
                env = Environment(orders.make())
                run = env.start(form, TEA)
                env.advance(10)
                env.resume("approve-7", {"approved": True})
                self.assertEqual(run.result(Receipt), SHIPPED)
                self.assertEqual(set(orders.bank.charged.values()), {2500})

    def test_is_rejected_and_refunded(self) -> None:
        for form in FORMS:
            for why in ("it was not approved", "nothing has come in time", "there are no unicorns"):
                with self.subTest(form, why=why):
                    orders.bank.__init__()  # type: ignore[misc]
                    env = Environment(orders.make())
                    run = env.start(form, Purchase("7", ["unicorn" if "unicorn" in why else "tea"]))
                    env.advance(10)
                    if "approved" in why:
                        env.resume("approve-7", {"approved": False})
                    self.assertEqual(run.result(Receipt), Receipt(f"rejected: {why}"))
                    self.assertEqual(list(orders.bank.refunded.values()), [2500])

    def test_every_crash_changes_nothing(self) -> None:
        for form in FORMS:
            with self.subTest(form):

                def scenario(env: Environment) -> None:
                    orders.bank.__init__()  # type: ignore[misc]
                    good, bad = env.start(form, TEA), env.start(form, Purchase("8", ["unicorn"]))
                    env.advance(10)
                    env.resume("approve-7", {"approved": True})
                    self.assertEqual(good.result(Receipt), SHIPPED)
                    self.assertEqual(bad.result(Receipt), Receipt("rejected: there are no unicorns"))
                    self.assertEqual((len(orders.bank.charged), len(orders.bank.refunded)), (2, 1))

                self.assertGreater(every_crash(orders.make, scenario), 15)

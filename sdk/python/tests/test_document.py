"""The Python of docs/sdk-python.md is executed as it stands there, with the tests that it shows."""

from __future__ import annotations

import os
import re
import sys
import types
import unittest
from pathlib import Path
from unittest import mock

from stepwell.testing import Environment

_DOCUMENT = Path(__file__).parents[3] / "docs" / "sdk-python.md"


def module(name: str, source: str) -> types.ModuleType:
    """Executes Python as a module."""
    made = types.ModuleType(name)
    sys.modules[name] = made
    with mock.patch.dict(os.environ, {"STEPWELL_SIGNING_KEYS": "swsk_" + "A" * 43 + "="}):
        exec(compile(source, name, "exec"), made.__dict__)
    return made


class DocumentTest(unittest.TestCase):
    def test_python_of_the_document_works(self) -> None:
        text = _DOCUMENT.read_text(encoding="utf-8")
        whole = [m for m in re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)]
        programs = [block for block in whole if "__main__" in block]
        page = module("sdk_python_document", "\n".join(block for block in whole if block not in programs))
        self.assertEqual((len(programs), len(whole) > 8), (1, True))
        run = Environment(module("sdk_python_program", programs[0]).app).start("order", 2500)
        self.assertRegex(run.result(), "^paid 2500 cents, once, with the key wrun_.*/charge$")

        tests = unittest.defaultTestLoader.loadTestsFromTestCase(page.OrderTest)
        result = unittest.TestResult()
        tests.run(result)
        self.assertEqual((result.testsRun, result.failures + result.errors), (2, []))

        env = Environment(page.app)
        env.app.step(name="price")(lambda sku: 3)
        trip = env.start(page.trip, page.Purchase("7", 2500))
        self.assertEqual(trip.result(), "parcel of 7")
        self.assertEqual(env.start(page.quote, "tea").result(), [64, 3])
        self.assertEqual(env.start(page.pack, ["x", "y"]).result(), [f"parcel of {id}" for id in "abxy"])
        self.assertEqual(env.start(page.account).result(), 10)
        poem = env.start(page.poetry, "rain")
        self.assertEqual((poem.result(), "".join(poem.stream("tokens"))), (4, "an ode to rain (the end)"))
        meter = env.start(page.meter, {"total": 1, "readings": 2}, inbox=["amounts"])
        env.send(meter, "amounts", 5)
        with mock.patch("stepwell.run.LONG_LOG", 0):
            env.run_until_idle()
        assert meter.continued
        env.send(meter.continued, "amounts", 7)
        self.assertEqual(meter.result(), 13)
        self.assertEqual(env.start(page.renewed, "7").result(), "parcel of 7")
        self.assertEqual([name for name, _ in env.memory.signals], ["account.done"])


if __name__ == "__main__":
    unittest.main()

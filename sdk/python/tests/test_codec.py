"""Values come back as they were, or are refused."""

from __future__ import annotations

import enum
import unittest
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, Dict, List, Literal, NewType, Optional, TypedDict, Union
from uuid import UUID

from stepwell import Undecodable, Unencodable
from stepwell.codec import LARGEST, checked, dumps, from_json, loads, parse_time, to_json


class Colour(enum.Enum):
    RED = "red"


class Size(TypedDict):
    kg: float


@dataclass
class Item:
    name: str
    colours: List[Colour] = field(default_factory=list)
    parts: dict[str, Item] = field(default_factory=dict)
    note: Optional[str] = None


UserId = NewType("UserId", int)
INDIA = timezone(timedelta(hours=5, minutes=30))


class CodecTest(unittest.TestCase):
    def test_values_come_back(self) -> None:
        for hint, value in (
            (Any, {"a": [1, 2.5, None, True, "ü€😀", {"b": {}}]}), (int, 2**53 + 1), (int, -(10**300)), (float, 0.1),
            (float, 5e-324), (Decimal, Decimal("0.10000000000000000000000001")), (bytes, bytes(range(256))), (UUID,
            UUID(int=7)),
            (date, date(2026, 11, 30)), (datetime, datetime(2026, 11, 30, 1, 2, 3, 456789, INDIA)), (Colour,
            Colour.RED),
            (Item, Item("pot", [Colour.RED], {"lid": Item("lid", note="x")})), (list[Item], [Item("a"), Item("b")]),
            (Dict[str, int], {"a": 1}), (tuple[int, str], (1, "a")), (tuple[int, ...], (1, 2)), (Size, {"kg": 1.5}),
            (Union[int, str, None], None), (int | str, "7"), (Literal["a", 1], 1), (UserId, UserId(7)), (None, None),
        ):  # fmt: skip
            with self.subTest(hint):
                self.assertEqual(from_json(hint, loads(dumps(to_json(value)))), value)

    def test_integers_are_floats_where_those_are_wanted(self) -> None:
        self.assertIs(type(from_json(float, 25)), float)

    def test_what_cannot_be_kept_is_refused(self) -> None:
        loop: list[Any] = []
        loop.append(loop)
        for value in (
            float("nan"), float("inf"), 10**309, Decimal("NaN"), {1: "a"}, {"a"}, object(), datetime(2026, 1, 1),
            "\ud800",
            {"\ud800": 1}, loop, print,
        ):  # fmt: skip
            with self.subTest(repr(value)[:40]), self.assertRaises(Unencodable) as raised:
                checked("it", value)
            self.assertEqual(raised.exception.code, "unencodable")
        with self.assertRaises(Unencodable) as raised:
            checked("it", "x" * LARGEST)
        self.assertEqual(raised.exception.code, "answer_too_large")

    def test_other_types_are_refused(self) -> None:
        for hint, plain in (
            (int, "7"), (int, True), (int, 7.0), (float, True), (str, None), (bool, 1), (Item, {}), (Item, []), (Size,
            {}),
            (list[int], ["a"]), (dict[str, int], {"a": None}), (tuple[int, str], [1]), (Colour, "blue"), (Decimal, 1.5),
            (bytes, "!"), (datetime, "2026-01-01T00:00:00"), (UUID, "x"), (Literal[1], True), (Union[int, None], "a"),
            (None, 0),
        ):  # fmt: skip
            with self.subTest(hint=hint, plain=plain), self.assertRaises(Undecodable):
                from_json(hint, plain)

    def test_fields_of_newer_code_are_ignored(self) -> None:
        self.assertEqual(from_json(Item, {"name": "pot", "later": 1}), Item("pot"))

    def test_broken_json_is_refused(self) -> None:
        for text in (b"", b"{", b"NaN", b"[" * 100_000, b"\xff", b"1" * 5000):
            with self.subTest(text[:10]), self.assertRaises(Undecodable):
                loads(text)

    def test_times_of_the_server(self) -> None:
        for text, microseconds in (("Z", 0), (".8Z", 800_000), (".835Z", 835_000), (".123456789+00:00", 123_456)):
            want = datetime(2026, 11, 21, 11, 20, 51, microseconds, timezone.utc)
            self.assertEqual(parse_time("2026-11-21T11:20:51" + text), want)


if __name__ == "__main__":
    unittest.main()

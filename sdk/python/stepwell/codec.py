"""Values as JSON, and back by type hints.

Supported: None, bool, int, float, str, list, tuple, dict with text keys, dataclasses, TypedDict, Enum, Literal,
Optional and other unions, and as texts Decimal, datetime with a time zone, date, UUID and bytes (base64). Integers
are exact, whatever their size up to 400 digits; Decimal is exact. NaN and infinities are refused, as is text that is
not UTF-8. Without a hint, JSON comes back as it is: a dataclass as a dict, a Decimal as a str.
"""

from __future__ import annotations

import base64
import dataclasses
import enum
import json
import math
import re
import types
import typing
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Callable, Union
from uuid import UUID

from .errors import Undecodable, Unencodable

# LARGEST is how many bytes of JSON a value may have. The server takes 16 MiB with all that comes with it.
LARGEST = 15 << 20

_LONGEST_NUMBER = 400  # characters that the server takes
_AS_TEXT = {
    Decimal: str, UUID: str, date: date.isoformat, datetime: datetime.isoformat,
    bytes: lambda data: base64.b64encode(data).decode(),
}  # fmt: skip


def to_json(value: Any) -> Any:
    """Returns a value as plain JSON: None, bool, int, float, str, list and dict. Raises Unencodable."""
    try:
        return _plain(value)
    except RecursionError:
        raise Unencodable("the value is nested too deeply, or contains itself") from None


def _plain(value: Any) -> Any:
    kind = type(value)
    if value is None or kind is bool:
        return value
    if kind is str:
        return _text(value)
    if isinstance(value, enum.Enum):
        return _plain(value.value)
    if kind is int or kind is float:
        return _number(value)
    if kind is list or isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {_key(key): _plain(item) for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, datetime) and value.utcoffset() is None:
        raise Unencodable(f"{value!r} has no time zone: use datetime.now(timezone.utc) or run.now()")
    if isinstance(value, Decimal) and not value.is_finite():
        raise Unencodable(f"{value} cannot be kept as JSON")
    for of, text in _AS_TEXT.items():
        if kind is of:
            return typing.cast(Callable[[Any], str], text)(value)
    raise Unencodable(f"a {kind.__qualname__} cannot be kept as JSON: use a dataclass, a dict or a list")


def _text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Unencodable("a text is not valid Unicode: keep such bytes as bytes") from None
    return value


def _number(value: float) -> float:
    if isinstance(value, int):
        if value.bit_length() > 1024 or abs(value) > 10**308:
            raise Unencodable("an integer of more than 308 digits cannot be kept as JSON: use a str")
    elif not math.isfinite(value):
        raise Unencodable(f"{value} cannot be kept as JSON")
    return value


def _key(key: Any) -> str:
    if isinstance(key, enum.Enum):
        key = key.value
    if type(key) is not str:
        raise Unencodable(f"the key {key!r} of a dict is no str: JSON has no other keys")
    return _text(key)


def dumps(plain: Any) -> bytes:
    """Returns the bytes of plain JSON."""
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def loads(data: bytes) -> Any:
    """Parses JSON. Raises Undecodable."""
    try:
        return json.loads(data, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as e:
        raise Undecodable(f"this is no JSON that Python can read: {e}") from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def checked(what: str, value: Any) -> Any:
    """Returns a value as plain JSON of at most LARGEST bytes. Raises Unencodable, which names what it is."""
    try:
        plain = to_json(value)
    except Unencodable as e:
        raise Unencodable(f"{what}: {e.message}") from None
    if (size := len(dumps(plain))) > LARGEST:
        error = Unencodable(
            f"{what} has {size} bytes of JSON; the limit is {LARGEST}: keep it elsewhere, and pass a reference"
        )
        error.code = "answer_too_large"
        raise error
    return plain


def from_json(hint: Any, plain: Any) -> Any:
    """Returns plain JSON as a value of the type that a hint names. Raises Undecodable."""
    try:
        return _value(hint, plain)
    except RecursionError:
        raise Undecodable("the JSON is nested too deeply") from None


def _value(hint: Any, plain: Any) -> Any:
    if hint is Any or hint is object:
        return plain
    if isinstance(hint, typing.NewType):
        return _value(hint.__supertype__, plain)
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _value(args[0], plain)
    if origin is Union or origin is types.UnionType:
        return _one_of(hint, args, plain)
    if origin is typing.Literal:
        if any(plain == arg and type(plain) is type(arg) for arg in args):
            return plain
        raise _mismatch(hint, plain)
    if origin is not None:
        return _collection(hint, origin, args, plain)
    return _plain_type(hint, plain)


def _one_of(hint: Any, args: tuple[Any, ...], plain: Any) -> Any:
    for arg in args:
        try:
            return _value(arg, plain)
        except Undecodable:
            continue
    raise _mismatch(hint, plain)


def _collection(hint: Any, origin: Any, args: tuple[Any, ...], plain: Any) -> Any:
    if origin is tuple and isinstance(plain, list):
        if len(args) == 2 and args[1] is Ellipsis:
            return tuple(_value(args[0], item) for item in plain)
        if len(args) == len(plain):
            return tuple(_value(arg, item) for arg, item in zip(args, plain))
    elif issubclass(list, origin) and isinstance(plain, list):
        return [_value(args[0], item) for item in plain]
    elif issubclass(dict, origin) and isinstance(plain, dict):
        return {key: _value(args[1], item) for key, item in plain.items()}
    elif dataclasses.is_dataclass(origin):
        return _value(origin, plain)
    raise _mismatch(hint, plain)


_PARSERS: dict[Any, Callable[[str], Any]] = {
    Decimal: Decimal, UUID: UUID, date: date.fromisoformat,
    datetime: lambda text: parse_time(text),
    bytes: lambda text: base64.b64decode(text, validate=True),
}  # fmt: skip


_TIME = re.compile(r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:\.(\d{1,6})\d*)?(Z|[+-]\d\d:\d\d)")


def parse_time(text: str) -> datetime:
    """Parses a time as RFC 3339 has it, down to microseconds. Raises ValueError."""
    if not (match := _TIME.fullmatch(text)):
        raise ValueError(f"{text!r} is no time with a time zone")
    seconds, fraction, zone = match.groups()
    return datetime.fromisoformat(f"{seconds}.{(fraction or '').ljust(6, '0')}{zone.replace('Z', '+00:00')}")


def _plain_type(hint: Any, plain: Any) -> Any:
    if hint is None or hint is type(None):
        if plain is None:
            return None
    elif hint is float:
        if type(plain) in (int, float):
            return float(plain)
    elif hint in (bool, int, str, list, dict):
        if type(plain) is hint:
            return plain
    elif hint is tuple and isinstance(plain, list):
        return tuple(plain)
    elif hint in _PARSERS:
        return _parsed(hint, plain)
    elif isinstance(hint, type) and issubclass(hint, enum.Enum):
        try:
            return hint(plain)
        except ValueError:
            pass
    elif dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _dataclass(hint, plain)
    elif typing.is_typeddict(hint):
        return _typed_dict(hint, plain)
    raise _mismatch(hint, plain)


def _parsed(hint: Any, plain: Any) -> Any:
    try:
        if isinstance(plain, str):
            return _PARSERS[hint](plain)
    except (ValueError, ArithmeticError):
        pass
    raise _mismatch(hint, plain)


def _dataclass(hint: type, plain: Any) -> Any:
    """Fields that the class does not have are ignored, so that old code reads what new code has written."""
    if not isinstance(plain, dict):
        raise _mismatch(hint, plain)
    hints = typing.get_type_hints(hint)
    fields = [f for f in dataclasses.fields(hint) if f.init and f.name in plain]
    try:
        return hint(**{f.name: _value(hints[f.name], plain[f.name]) for f in fields})
    except TypeError as e:
        raise Undecodable(f"{hint.__qualname__}: {e}") from None


def _typed_dict(hint: Any, plain: Any) -> Any:
    if not isinstance(plain, dict) or not hint.__required_keys__ <= plain.keys():
        raise _mismatch(hint, plain)
    hints = typing.get_type_hints(hint)
    return {key: _value(hints.get(key, Any), item) for key, item in plain.items()}


def _mismatch(hint: Any, plain: Any) -> Undecodable:
    name = getattr(hint, "__qualname__", None) or str(hint)
    shown = repr(plain)
    return Undecodable(f"{shown[:80]}{'…' if len(shown) > 80 else ''} is no {name}")


def check_hint(hint: Any) -> str:
    """Returns why values of a type cannot be kept; empty if they can. It looks only at the type itself."""
    if (
        hint is None
        or hint is Any
        or typing.get_origin(hint) is not None
        or isinstance(hint, (typing.TypeVar, typing.NewType))
    ):
        return ""
    known = (bool, int, float, str, list, dict, tuple, object, type(None))
    if hint in known or hint in _PARSERS or dataclasses.is_dataclass(hint) or typing.is_typeddict(hint):
        return ""
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return ""
    return f"{getattr(hint, '__qualname__', hint)} cannot be kept as JSON: use a dataclass, a dict or a list"

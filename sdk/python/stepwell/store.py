"""The store of a run: JSON values by key, for what its steps and outside readers need to know."""

from __future__ import annotations

import typing
from typing import Any, Mapping, TypeVar

from . import codec
from .engine import STORE, Operation
from .errors import Blocked, FatalError, StepwellError
from .places import caller

if typing.TYPE_CHECKING:
    from .execution import Execution

T = TypeVar("T")

MOST_KEYS = 256
LONGEST_KEY = 256  # characters
LARGEST_VALUE = 1 << 20  # bytes of JSON


class BaseStore:
    """Reads and writes a store. At most 256 keys of up to 256 characters; a value has at most 1 MiB of JSON."""

    def get(self, key: str, type: type[T] | Any = Any, default: T | None = None) -> Any:
        """Returns the value of a key as the type, or the default. Raises Blocked if it does not decode."""
        value = self._load(key)
        if value is None:
            return default
        try:
            return codec.from_json(type, value)
        except StepwellError as e:
            raise Blocked(f"the value of {key!r} in the store: {e.message}", "undecodable") from None

    def set(self, key: str, value: Any) -> None:
        """Sets the value of a key; None removes it."""
        plain = codec.checked(f"the value of {key!r} in the store", value)
        self._check(key, plain)
        self._save(key, plain)

    def delete(self, key: str) -> None:
        """Removes a key."""
        self.set(key, None)

    def _check(self, key: str, plain: Any) -> None:
        if not key or len(key) > LONGEST_KEY or any(ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 for c in key):
            raise _limit(f"{key[:50]!r} is no key of a store: 1 to {LONGEST_KEY} characters, none of control")
        if (size := len(codec.dumps(plain))) > LARGEST_VALUE:
            raise _limit(f"the value of {key!r} has {size} bytes; the limit is {LARGEST_VALUE}")
        keys = {k for k, v in self._all().items() if v is not None} | {key}
        if plain is not None and len(keys) > MOST_KEYS:
            raise _limit(f"the store would have {len(keys)} keys; the limit is {MOST_KEYS}")

    def _load(self, key: str) -> Any:
        return self._all().get(key)

    def _all(self) -> Mapping[str, Any]:
        raise NotImplementedError

    def _save(self, key: str, plain: Any) -> None:
        raise NotImplementedError


def _limit(text: str) -> FatalError:
    return FatalError(text, code="store_limit")


class Store(BaseStore):
    """The store as a workflow sees it: what it has written, and what steps had written whose results it has."""

    def __init__(self, execution: Execution) -> None:
        self._x = execution

    def _all(self) -> Mapping[str, Any]:
        return {key: value for key, (value, _) in self._x.store.items()}

    def _save(self, key: str, plain: Any) -> None:
        engine = self._x.engine
        id = self._x.loop.scope().id("set:" + key)
        engine.ask(Operation(STORE, id, {"type": "setStore", "id": id, "values": {key: plain}}, place=caller()))
        self._x.store[key] = (plain, engine.stored_at(id))


class StepStore(BaseStore):
    """The store as a step sees it: as it was when the attempt began. What it writes is saved with its result, or not
    at all."""

    def __init__(self, known: Mapping[str, Any]) -> None:
        self._known = known
        self.written: dict[str, Any] = {}

    def _all(self) -> Mapping[str, Any]:
        return {**self._known, **self.written}

    def _save(self, key: str, plain: Any) -> None:
        self.written[key] = plain

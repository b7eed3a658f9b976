"""IDs from the places of a workflow: the names of its tasks and of what it asks for."""

from __future__ import annotations

import hashlib

# LONGEST is the longest ID that the contract allows.
LONGEST = 256


class Scope:
    """Makes IDs that do not depend on the order in which tasks happen to run. The second use of a name is name#2."""

    def __init__(self, path: str = "") -> None:
        self.path = path  # "" or a path that ends with a dot
        self._uses: dict[str, int] = {}

    def id(self, name: str) -> str:
        """Returns the ID of the next operation with this name."""
        return _shortened(self.path + self._use(name))

    def child(self, name: str) -> Scope:
        """Returns a new scope in this one."""
        return Scope(self.path + self._use(name) + ".")

    def _use(self, name: str) -> str:
        name = escape(name)
        n = self._uses[name] = self._uses.get(name, 0) + 1
        return name if n == 1 else f"{name}#{n}"


def escape(name: str) -> str:
    """Percent-encodes the bytes that an ID must not have, and those that have a meaning here."""
    if name.isascii() and name.isidentifier():
        return name
    return "".join(
        f"%{byte:02X}" if not 0x20 < byte < 0x7F or chr(byte) in "/%#." else chr(byte) for byte in name.encode()
    )


def _shortened(id: str) -> str:
    if len(id) <= LONGEST:
        return id
    digest = "~" + hashlib.sha256(id.encode()).hexdigest()[:32]
    return id[: LONGEST - len(digest)] + digest

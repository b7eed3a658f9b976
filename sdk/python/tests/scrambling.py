"""A codec for tests, since Python's standard library has no cipher: it hides, but is no encryption to be used."""

from __future__ import annotations

import hashlib


class Scrambling:
    """Scrambles with the first of its keys."""

    def __init__(self, *keys: str) -> None:
        self.keys = keys

    def encode(self, id: str, plain: bytes) -> tuple[str, bytes]:
        nonce = hashlib.sha256(id.encode() + b"\0" + plain).digest()
        return f"scrambled/{self.keys[0]}", nonce + _mixed(self.keys[0], nonce, plain)

    def decode(self, name: str, data: bytes) -> bytes:
        key = name.removeprefix("scrambled/")
        if key not in self.keys:
            raise KeyError(f"there is no key {key}")
        return _mixed(key, data[:32], data[32:])


def _mixed(key: str, nonce: bytes, data: bytes) -> bytes:
    stream = hashlib.shake_256(key.encode() + nonce).digest(len(data))
    return bytes(a ^ b for a, b in zip(data, stream))

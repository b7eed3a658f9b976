"""Payloads in another form, which the server cannot look into: what an app's codec makes of them, and back.

The form of a payload is {"$codec": NAME, "data": BASE64}; docs/encryption.md says what the server still sees.
"""

from __future__ import annotations

import base64
from typing import Any, Callable, Protocol

from .codec import dumps, loads
from .errors import StepwellError


class Codec(Protocol):
    """Transforms payloads before they leave the process, such as by encryption. It is used by several threads."""

    def encode(self, id: str, plain: bytes) -> tuple[str, bytes]:
        """Returns JSON in another form, and before it the name with which decode gets it. The same JSON with the same id
        must become the same: the server tells repeated requests by that. The id says where the payload belongs."""

    def decode(self, name: str, data: bytes) -> bytes:
        """Returns the JSON."""


class CodecFailed(StepwellError):
    """A payload cannot be encoded or decoded, since a key is missing, perhaps. The server calls again."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="codec_failed")


_ENCODED = "the error is encoded: only the app and its clients can read it"
# Codes of errors of calls that the SDK makes, and whose messages have no payloads. No code that an app is likely to use
# for its own errors is one of them.
_PLAIN = ("codec_failed", "unknown_workflow", "unknown_step", "shutdown", "stale_invocation")


def opened(codec: Codec | None, plain: Any) -> Any:
    """Returns JSON with what is encoded in it decoded. Raises CodecFailed."""
    if isinstance(plain, list):
        return [opened(codec, item) for item in plain]
    if not isinstance(plain, dict):
        return plain
    if plain.keys() == {"$codec", "data"} and all(isinstance(v, str) for v in plain.values()):
        return _decoded(codec, plain["$codec"], plain["data"])
    plain = {key: opened(codec, value) for key, value in plain.items()}
    details = plain.get("details")
    if isinstance(details, dict) and isinstance(error := details.get("$error"), dict) and len(details) == 1:
        del plain["details"]
        plain.update(error)
    return plain


def _decoded(codec: Codec | None, name: str, data: str) -> Any:
    if codec is None:
        raise CodecFailed(f"a payload is encoded by {name}: give App and Client the codec")
    try:
        return loads(codec.decode(name, base64.b64decode(data, validate=True)))
    except Exception as e:
        raise CodecFailed(f"decode what {name} has encoded: {e or type(e).__name__}") from e


class Sealer:
    """Encodes payloads in what is sent. Without a codec, they stay as they are."""

    def __init__(self, codec: Codec | None) -> None:
        self._codec = codec

    def value(self, id: str, plain: Any) -> Any:
        """Encodes a payload. Raises CodecFailed."""
        if plain is None or self._codec is None:
            return plain
        try:
            name, data = self._codec.encode(id, dumps(plain))
        except Exception as e:
            raise CodecFailed(f"encode a payload: {e}") from e
        return {"$codec": name, "data": base64.b64encode(data).decode()}

    def values(self, id: str, plain: dict[str, Any]) -> dict[str, Any]:
        """Encodes each value of an object."""
        return {key: self.value(f"{id}/{key}", value) for key, value in plain.items()}

    def error(self, id: str, error: dict[str, Any]) -> dict[str, Any]:
        """Encodes all of an error but its code, and whether it is for good."""
        if self._codec is None:
            return error
        inner = {name: error[name] for name in ("message", "details") if name in error}
        return {**error, "message": _ENCODED, "details": self.value(id, {"$error": inner})}

    def command(self, run: str, c: dict[str, Any]) -> dict[str, Any]:
        """Encodes the payloads of a command. What it responds to a request, and the requests of steps, which the server
        sends, stay as they are."""
        if c["type"] == "respond":
            return c
        id = "/".join([run, c["type"], *(c.get(name) or "" for name in ("id", "inbox", "message"))])
        fields: dict[str, Callable[[str, Any], Any]] = {
            "input": self.value, "output": self.value, "data": self.value, "error": self.error, "store": self.values,
            "values": self.values,
        }  # fmt: skip
        return {**c, **{n: seal(f"{id}/{n}", c[n]) for n, seal in fields.items() if c.get(n) is not None}}

    def request(self, path: str, body: Any) -> Any:
        """Encodes the payloads of a request to the API."""
        if self._codec is None or not isinstance(body, dict):
            return body
        id = "/".join([path, *(str(body.get(name, "")) for name in ("idempotencyKey", "id", "stream", "from"))])
        sealed = {n: self.value(id, body[n]) for n in ("input", "data", "progress") if n in body}
        if "chunks" in body:
            sealed["chunks"] = [self.value(f"{id}/{i}", chunk) for i, chunk in enumerate(body["chunks"])]
        if "send" in body:
            sealed["send"] = [self._message(m) for m in body["send"]]
        return self._message({**body, **sealed})

    def _message(self, m: dict[str, Any]) -> dict[str, Any]:
        """Encodes the payload of a message, in the same way if it comes with the start of its run and after it."""
        return {**m, "payload": self.value(f"message/{m.get('id')}", m["payload"])} if "payload" in m else m

    def answer(self, call: dict[str, Any], status: int, body: bytes, writes: bool) -> bytes:
        """Encodes the payloads of the answer to a call; `writes` says that one of a step has writes to the store."""
        if self._codec is None:
            return body
        run, plain = call["run"]["id"], loads(body)
        id = f"{run}/answer/{(call.get('step') or {}).get('id')}"
        if status != 200:
            if plain["error"].get("code") not in _PLAIN:
                plain["error"] = self.error(id, plain["error"])
        elif call["type"] == "workflow":
            plain["commands"] = [self.command(run, c) for c in plain["commands"]]
        elif writes:
            plain = {"output": self.value(id, plain["output"]), "store": self.values(id, plain["store"])}
        elif call["type"] == "step":
            plain = self.value(id, plain)
        return dumps(plain)

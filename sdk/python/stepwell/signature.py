"""Verifies that a call was sent by a Stepwell server on behalf of your project: RFC 9421 with HMAC-SHA-256.

It uses only Python's standard library. docs/function-contract.md describes the algorithm.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from typing import Any, Iterable, Protocol, Sequence
from urllib.parse import urlsplit

MAX_AGE = 5 * 60  # seconds for which a signature is valid
MAX_SKEW = 60  # tolerated difference in seconds between the clocks of server and function

_MEMBER = re.compile(r'([a-z0-9_.*-]+)=(?:(\((?:"[ !#-\[\]-~]*"(?: (?=")|(?=\))))*\)([^,]*))|:([^:]*):)(?:, *(?=.)|$)')
_PARAMETER = re.compile(r';([a-z]+)=(?:"([ !#-\[\]-~]*)"|(-?\d{1,15}))')


class Headers(Protocol):
    """The headers of a call, by names of any case; a dict has them in lower case."""

    def get(self, name: str, /) -> Any:
        ...

    def keys(self) -> Iterable[str]:
        ...


class Refused(Exception):
    """The reason why a call is refused. The first argument is a code of one word, the second a message."""


def parse_keys(text: str) -> list[bytes]:
    """Parses one key, or two separated by a comma, as returned by POST /v1/signing-keys."""
    keys = [base64.b64decode(key.strip().removeprefix("swsk_"), validate=True) for key in text.split(",")]
    if any(len(key) != 32 for key in keys):
        raise ValueError("a signing key is swsk_ and 32 bytes in base64")
    return keys


def verify(method: str, target: str, headers: Headers, body: bytes, keys: Sequence[bytes], now: float) -> None:
    """Raises Refused unless one of the keys signed the call within the last MAX_AGE seconds.

    The target is the path and query as sent. Headers need keys(), and get() that finds names in lower case.
    """
    signature_input, signature = headers.get("signature-input"), headers.get("signature")
    if signature_input is None and signature is None:
        raise Refused("unsigned", "the call is not signed")
    inputs, signatures = _dictionary(signature_input or ""), _dictionary(signature or "")
    refusal = Refused("wrong", "the signature is wrong")
    for label, member in inputs.items():  # one signature for each key of the project
        try:
            made = signatures.get(label, {}).get("bytes")
            if made is None or "list" not in member:
                raise Refused("malformed", f"no signature {label}")
            _verify(method, target, headers, member, made, keys, now)
        except Refused as e:
            refusal = e if refusal.args[0] == "wrong" else refusal
            continue
        digest = _dictionary(headers.get("content-digest") or "").get("sha-256", {}).get("bytes")
        if digest is None:
            raise Refused("malformed", "no digest")
        if not hmac.compare_digest(digest, hashlib.sha256(body).digest()):
            raise Refused("digest", "the body is not the one that was signed")
        return
    raise refusal


def _verify(
    method: str,
    target: str,
    headers: Headers,
    member: dict[str, Any],
    signature: bytes,
    keys: Sequence[bytes],
    now: float,
) -> None:
    names, params = re.findall(r'"([^"]*)"', member["list"]), member["params"]
    if params.get("alg", "hmac-sha256") != "hmac-sha256":
        raise Refused("malformed", "unknown algorithm")
    required = {"@method", "@path", "@query", "content-digest"}
    required |= {
        name
        for name in map(str.lower, headers.keys())
        if name in ("content-type", "idempotency-key") or name.startswith(("ce-", "stepwell-"))
    }
    if missing := required - set(names):
        raise Refused("incomplete", f"the signature does not cover {min(missing)}")
    if len(names) != len(set(names)):
        raise Refused("malformed", "the signature covers a component twice")
    url = urlsplit(target)
    values = {"@method": method, "@path": url.path or "/", "@query": "?" + url.query}
    lines = []
    for name in names:
        value = values.get(name) if name.startswith("@") else headers.get(name)
        if value is None:
            raise Refused("malformed", f"the signature covers {name}, which is missing from the call")
        lines.append(f'"{name}": {value.strip()}')
    lines.append(f'"@signature-params": {member["raw"]}')
    text = "\n".join(lines).encode("latin-1")
    if not any(hmac.compare_digest(hmac.digest(key, text, "sha256"), signature) for key in keys):
        raise Refused("wrong", "the signature is wrong")
    created = params.get("created")
    if not isinstance(created, int):
        raise Refused("incomplete", "the signature has no creation time")
    expires = min(created + MAX_AGE, params.get("expires", created + MAX_AGE))
    if not created - MAX_SKEW <= now <= expires + MAX_SKEW:
        raise Refused("expired", "the signature has expired or is not valid yet")


def _dictionary(text: str) -> dict[str, dict[str, Any]]:
    """Parses a dictionary header: the subset of RFC 8941 that signatures use."""
    members: dict[str, dict[str, Any]] = {}
    at = 0
    while at < len(text):
        found = _MEMBER.match(text, at)
        if not found or found[1] in members:
            raise Refused("malformed", "a signature header cannot be parsed")
        label, raw, rest, encoded = found.groups()
        if raw is None:
            members[label] = {"bytes": _bytes(encoded)}
        else:
            members[label] = {"raw": raw, "list": raw[: len(raw) - len(rest)], "params": _params(rest)}
        at = found.end()
    return members


def _params(text: str) -> dict[str, Any]:
    if not re.fullmatch(f"(?:{_PARAMETER.pattern})*", text):
        raise Refused("malformed", "a signature parameter cannot be parsed")
    return {key: int(number) if number else words for key, words, number in _PARAMETER.findall(text)}


def _bytes(encoded: str) -> bytes:
    try:
        return base64.b64decode(encoded, validate=True)
    except ValueError:
        raise Refused("malformed", "a byte sequence is not valid base64") from None

"""Verifies that a call comes from a Stepwell server of one's own project: RFC 9421 with HMAC-SHA-256.

With nothing but Python's standard library. docs/function-contract.md says the same in words.
"""

import base64
import hashlib
import hmac
import re
from urllib.parse import urlsplit

MAX_AGE = 5 * 60  # seconds for which a signature is good
MAX_SKEW = 60  # seconds that the clocks of server and function may be apart

_MEMBER = re.compile(r'([a-z0-9_.*-]+)=(?:(\((?:"[ !#-\[\]-~]*"(?: (?=")|(?=\))))*\)([^,]*))|:([^:]*):)(?:, *(?=.)|$)')
_PARAMETER = re.compile(r';([a-z]+)=(?:"([ !#-\[\]-~]*)"|(-?\d{1,15}))')


class Refused(Exception):
    """Why a call is not to be answered. The first argument is one word."""


def parse_keys(text):
    """Reads one key, or two with a comma between them, as POST /v1/signing-keys shows them."""
    keys = [base64.b64decode(key.strip().removeprefix("swsk_"), validate=True) for key in text.split(",")]
    if any(len(key) != 32 for key in keys):
        raise ValueError("a signing key is swsk_ and 32 bytes in base64")
    return keys


def verify(method, target, headers, body, keys, now):
    """Raises Refused unless one of the keys has signed the call, not long before now.

    The target is path and query as they were asked for. Headers need get() and keys(), whatever the case of names is.
    """
    signature_input, signature = headers.get("Signature-Input"), headers.get("Signature")
    if signature_input is None and signature is None:
        raise Refused("unsigned", "the call is not signed")
    inputs, signatures = _dictionary(signature_input or ""), _dictionary(signature or "")
    refusal = Refused("wrong", "the signature is wrong")
    for label, member in inputs.items():  # one for each key of the project
        try:
            made = signatures.get(label, {}).get("bytes")
            if made is None or "list" not in member:
                raise Refused("malformed", f"there is no signature {label}")
            _verify(method, target, headers, member, made, keys, now)
        except Refused as e:
            refusal = e if refusal.args[0] == "wrong" else refusal
            continue
        digest = _dictionary(headers["Content-Digest"]).get("sha-256", {}).get("bytes")
        if digest is None:
            raise Refused("malformed", "there is no digest")
        if not hmac.compare_digest(digest, hashlib.sha256(body).digest()):
            raise Refused("digest", "the body is not the one that was signed")
        return
    raise refusal


def _verify(method, target, headers, member, signature, keys, now):
    names, params = re.findall(r'"([^"]*)"', member["list"]), member["params"]
    if params.get("alg", "hmac-sha256") != "hmac-sha256":
        raise Refused("malformed", "the algorithm is not known")
    required = {"@method", "@path", "@query", "content-digest"}
    required |= {
        name for name in map(str.lower, headers.keys())
        if name in ("content-type", "idempotency-key") or name.startswith(("ce-", "stepwell-"))
    }
    if missing := required - set(names):
        raise Refused("incomplete", f"the signature does not cover {min(missing)}")
    if len(names) != len(set(names)):
        raise Refused("malformed", "the signature covers something twice")
    url = urlsplit(target)
    values = {"@method": method, "@path": url.path or "/", "@query": "?" + url.query}
    lines = []
    for name in names:
        value = values.get(name) if name.startswith("@") else headers.get(name)
        if value is None:
            raise Refused("malformed", f"the signature covers {name}, which the call does not have")
        lines.append(f'"{name}": {value.strip()}')
    lines.append(f'"@signature-params": {member["raw"]}')
    text = "\n".join(lines).encode("latin-1")
    if not any(hmac.compare_digest(hmac.digest(key, text, "sha256"), signature) for key in keys):
        raise Refused("wrong", "the signature is wrong")
    created = params.get("created")
    if not isinstance(created, int):
        raise Refused("incomplete", "the signature has no date")
    expires = min(created + MAX_AGE, params.get("expires", created + MAX_AGE))
    if not created - MAX_SKEW <= now <= expires + MAX_SKEW:
        raise Refused("expired", "the signature is of another time")


def _dictionary(text):
    """Reads a header that is a dictionary, as far as signatures have them (RFC 8941)."""
    members, at = {}, 0
    while at < len(text):
        found = _MEMBER.match(text, at)
        if not found or found[1] in members:
            raise Refused("malformed", "a header of the signature cannot be read")
        label, raw, rest, encoded = found.groups()
        if raw is None:
            members[label] = {"bytes": _bytes(encoded)}
        else:
            members[label] = {"raw": raw, "list": raw[: len(raw) - len(rest)], "params": _params(rest)}
        at = found.end()
    return members


def _params(text):
    if not re.fullmatch(f"(?:{_PARAMETER.pattern})*", text):
        raise Refused("malformed", "a parameter of the signature cannot be read")
    return {key: int(number) if number else words for key, words, number in _PARAMETER.findall(text)}


def _bytes(encoded):
    try:
        return base64.b64decode(encoded, validate=True)
    except ValueError:
        raise Refused("malformed", "there is something else than base64 between colons") from None

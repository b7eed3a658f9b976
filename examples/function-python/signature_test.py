"""Tests signature.py with the test vectors of a JSON file: signature_test.py VECTORS"""

import json
import sys
from email.message import Message
from urllib.parse import urlsplit

from signature import Refused, parse_keys, verify

with open(sys.argv[1], encoding="utf-8") as f:
    vectors = json.load(f)
signed, failures = {request["name"]: request for request in vectors["signed"]}, 0
for vector in vectors["verified"]:
    request, change = signed[vector["like"]], vector["set"]
    headers = Message()
    for name, value in {**request["headers"], **request["signature"], **change.get("headers", {})}.items():
        if value is not None:
            headers[name] = value
    url = urlsplit(request["url"])
    target = change.get("target", (url.path or "/") + ("?" + url.query if url.query else ""))
    keys = [key for name in vector["keys"] for key in parse_keys(vectors["keys"][name]["secret"])]
    body = change.get("body", request["body"]).encode()
    try:
        verify(change.get("method", request["method"]), target, headers, body, keys, vector["now"])
        got = "ok"
    except Refused as refusal:
        got = refusal.args[0]
    if got != vector["want"]:
        failures += 1
        print(f"{vector['name']}: got {got}, want {vector['want']}")
print(len(vectors["verified"]), "vectors")
sys.exit(failures > 0)

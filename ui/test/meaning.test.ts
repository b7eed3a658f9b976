import { test } from "node:test";
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { contract, meaningOf } from "../src/lib/meaning";

test("the last error of a message means what the contract says about it", () => {
  const table: Array<[string, RegExp, string]> = [
    ["the answer was refused: command 2: step charge has another name", /code may have changed/, "when-an-invocation-fails"],
    ["the answer was refused: command 1: unknown type", /has written nothing/, "the-answer"],
    ['Post "http://shop.test": dial tcp 10.0.0.1:80: connect: connection refused', /could not be reached/, "delivery-guarantees"],
    ['Post "http://shop.test": EOF', /may have died/, "delivery-guarantees"],
    ["not acknowledged before the lease expired", /in time/, "delivery-guarantees"],
    ['http://shop.test answered 401 Unauthorized: ""', /signing key/, "signed-calls"],
    ['http://shop.test answered 502 Bad Gateway: "no"', /with an error/, "when-an-invocation-fails"],
    ["deployment shop is not registered: stepwell deployments add shop URL", /No deployment/, "delivery-guarantees"],
    ["the server was stopped", /not the function/, "delivery-guarantees"],
  ];
  for (const [error, text, anchor] of table) {
    assert.match(meaningOf(error)?.text ?? "", text);
    assert.equal(meaningOf(error)?.anchor, anchor);
    assert.ok(contract(anchor).endsWith(`function-contract.md#${anchor}`));
  }
  assert.equal(meaningOf("card_declined"), null);
});

test("the contract has the paragraphs", () => {
  const headings = readFileSync("../../docs/function-contract.md", "utf8").matchAll(/^#+ (.*)$/gm);
  const anchors = new Set([...headings].map(([, title = ""]) => title.toLowerCase().replace(/ /g, "-")));
  for (const error of ["the answer was refused: x", "EOF", "answered 500", " answered 401", "diverged"]) {
    const m = meaningOf(error);
    if (m) assert.ok(anchors.has(m.anchor), m.anchor);
  }
});

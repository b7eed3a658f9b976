import { test } from "node:test";
import assert from "node:assert/strict";
import { appOf, registrationOf, startOf, ways, type Known, type Way } from "../src/lib/begin";

const open = { address: "https://stepwell.example.com/a/b", project: "default", open: true };
const closed = { ...open, project: "shop", open: false };

test("what one pastes has the address of this server, and asks for a key of the project where one is needed", () => {
  for (const { name } of ways) {
    const all = (s: typeof open) => [appOf(name, s), registrationOf(name, s), startOf(name, s)].map((t) => t.paste + (t.curl ?? "")).join("\n");
    assert.match(all(open), /https:\/\/stepwell\.example\.com\/a\/b/, name);
    assert.doesNotMatch(all(open), /STEPWELL_API_KEY=/, name);
    assert.match(all(closed), /STEPWELL_API_KEY=…/, name);
    if (name !== "sdk") assert.match(all(closed), /a key of the project shop/, name);
  }
});

test("a run is started as the deployment that is there needs it", () => {
  const known = (url: string, workflows?: string[]): Known => ({ id: "shop", url, workflows });
  const table: Array<[Way, Known | undefined, RegExp]> = [
    ["http", undefined, /^stepwell runs start hello --deployment hello --input/],
    ["go", undefined, /^stepwell runs start hello --input/],
    ["flow", undefined, /^stepwell runs start hello --input/],
    ["sdk", undefined, /await start\(/],
    ["http", known("http://127.0.0.1:3000"), /^stepwell runs start order --deployment shop --input/],
    ["http", known("http://127.0.0.1:3000", ["ship"]), /^stepwell runs start ship --input/],
    ["http", known("flow:big order@2"), /^stepwell runs start 'big order' --input/],
    ["http", known("pull:"), /await start\(/],
  ];
  for (const [way, deployment, want] of table) assert.match(startOf(way, open, deployment).paste, want);
});

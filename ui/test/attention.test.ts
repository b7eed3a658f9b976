import assert from "node:assert/strict";
import test from "node:test";
import type { AttentionItem } from "../src/api.gen";
import { numbers, say } from "../src/lib/attention";

const item = (i: Partial<AttentionItem>) => ({ count: 1, operation: "x", ...i }) as AttentionItem;

test("pages have the number of what needs attention there", () => {
  assert.deepEqual(numbers([]), {});
  assert.deepEqual(numbers([
    item({ kind: "messages_parked", count: 2 }), item({ kind: "queue_late", count: 70 }), item({ kind: "runs_stranded", count: 1000 }),
    item({ kind: "deployment_unreachable", count: 31 }), item({ kind: "deployment_missing", count: 4 }),
    item({ kind: "workflow_failing", count: 44 }), item({ kind: "of_a_newer_server" as never, count: 4 }),
  ]), { queue: "3", runs: "1000+", deployments: "2", failures: "1" });
});

test("items are said, and lead to their page", () => {
  assert.deepEqual(say(item({ kind: "workflow_failing", count: 44, workflow: "refund", usual: 0 })),
    { text: "44 runs of refund failed in the last hour; usually none does", to: ["workflows", "refund"] });
  assert.deepEqual(say(item({ kind: "runs_blocked", runId: "wrun_1" })),
    { text: "1 run is blocked: the function refuses to go on", to: ["runs", "wrun_1"] });
  assert.deepEqual(say(item({ kind: "deployment_missing", deployment: "shop" })),
    { text: "shop is not registered: 1 message waiting", to: ["deployments"], query: { add: "shop" } });
  assert.equal(say(item({ kind: "messages_parked", count: 1000 })).text, "1,000+ messages are parked: retry or discard");
  assert.equal(say(item({ kind: "of_a_newer_server" as never })).text, "of a newer server");
});

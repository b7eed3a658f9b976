import { test } from "node:test";
import assert from "node:assert/strict";
import { Problem } from "../src/lib/problem";
import { Reader } from "../src/lib/reader";

// Page is a page on whose clock time passes only when a test says so, and the server that it reads from.
class Page {
  now = 0;
  isHidden = false;
  isSignedOut = false;
  late = 0;
  // What happened: readings with their time, and what became of them.
  readonly log: string[] = [];
  private timers = new Map<object, { at: number; act: () => void }>();
  private answers: Array<{ done: (n: number) => void; fail: (p: unknown) => void; signal: AbortSignal }> = [];
  readonly reader: Reader<number>;

  constructor(every: number) {
    this.reader = new Reader<number>(
      (signal) => new Promise((done, fail) => {
        this.log.push(`read at ${this.now}`);
        this.answers.push({ done, fail, signal });
      }),
      every,
      {
        hidden: () => this.isHidden, signedOut: () => this.isSignedOut, random: () => 0.5, late: () => this.late,
        after: (ms, act) => {
          const timer = {};
          this.timers.set(timer, { at: this.now + ms, act });
          return () => this.timers.delete(timer);
        },
      },
      {
        reading: (on) => this.log.push(on ? "reading" : "rests"),
        read: (n) => this.log.push(`shows ${n}`),
        failed: async (p) => void this.log.push(`failed ${p.status}`),
      },
    );
  }

  // pass lets time pass.
  pass(ms: number): void {
    const end = this.now + ms;
    for (;;) {
      const [timer, next] = [...this.timers].sort(([, a], [, b]) => a.at - b.at)[0] ?? [];
      if (!timer || next!.at > end) break;
      this.timers.delete(timer);
      this.now = next!.at;
      next!.act();
    }
    this.now = end;
  }

  async answer(n: number | Problem): Promise<void> {
    const a = this.answers.shift()!;
    if (typeof n === "number") a.done(n);
    else a.fail(n);
    await new Promise(setImmediate);
  }

  // since returns what happened, and forgets it.
  since(): string[] {
    return this.log.splice(0);
  }

  get planned(): number {
    return this.timers.size;
  }

  get aborted(): boolean {
    return this.answers[0]!.signal.aborted;
  }
}

async function begun(every: number): Promise<Page> {
  const p = new Page(every);
  p.reader.begin();
  await p.answer(1);
  assert.deepEqual(p.since(), ["reading", "read at 0", "shows 1", "rests"]);
  return p;
}

test("before it begins, nothing is read", () => {
  const p = new Page(1000);
  p.reader.read();
  p.reader.changed();
  p.pass(60_000);
  assert.deepEqual(p.since(), []);
  assert.equal(p.planned, 0);
});

test("it reads again when it is due, counted from the answer", async () => {
  const p = await begun(5000);
  p.pass(5000);
  assert.deepEqual(p.since(), ["reading", "read at 5000"]);
  p.pass(20_000); // the answer takes long
  assert.deepEqual(p.since(), []);
  await p.answer(2);
  p.pass(4999);
  assert.deepEqual(p.since(), ["shows 2", "rests"]);
  p.pass(1);
  assert.deepEqual(p.since(), ["reading", "read at 30000"]);
});

test("without an interval it reads when it is asked to", async () => {
  const p = await begun(0);
  p.pass(1e9);
  assert.deepEqual(p.since(), []);
  p.reader.read();
  assert.deepEqual(p.since(), ["reading", "read at 1000000000"]);
});

test("asked during a reading, it reads once more afterwards", async () => {
  const p = await begun(0);
  for (let i = 0; i < 3; i++) p.reader.read();
  assert.deepEqual(p.since(), ["reading", "read at 0"]);
  await p.answer(2);
  assert.deepEqual(p.since(), ["shows 2", "rests", "reading", "read at 0"]);
  await p.answer(3);
  assert.deepEqual(p.since(), ["shows 3", "rests"]);
});

test("many changes are one reading, soon, and later of what weighs more", async () => {
  const p = await begun(0);
  for (let i = 0; i < 5; i++) p.reader.changed();
  p.pass(1999);
  assert.deepEqual(p.since(), []);
  p.pass(1);
  assert.deepEqual(p.since(), ["reading", "read at 2000"]);
  await p.answer(2);
  p.since();
  p.reader.changed(4);
  p.pass(8000);
  assert.deepEqual(p.since(), ["reading", "read at 10000"]);
  assert.equal(p.planned, 0);
});

test("a hidden page reads nothing, and what has changed when it is shown", async () => {
  const p = await begun(5000);
  p.isHidden = true;
  p.reader.visibilityChanged();
  p.pass(60_000);
  assert.deepEqual(p.since(), []);
  p.isHidden = false;
  p.reader.visibilityChanged(); // nothing has changed
  assert.deepEqual(p.since(), []);
  p.pass(5000);
  assert.deepEqual(p.since(), ["reading", "read at 65000"]);
  await p.answer(2);
  p.since();
  p.reader.changed();
  p.isHidden = true;
  p.reader.visibilityChanged(); // before it is read
  p.reader.changed();
  p.pass(60_000);
  assert.deepEqual(p.since(), []);
  p.isHidden = false;
  p.reader.visibilityChanged();
  assert.deepEqual(p.since(), ["reading", "read at 125000"]);
});

test("an answer to a hidden page plans nothing", async () => {
  const p = new Page(5000);
  p.reader.begin();
  p.isHidden = true;
  p.reader.visibilityChanged();
  await p.answer(1);
  assert.equal(p.planned, 0);
});

test("failures are repeated later and later, and an answer ends that", async () => {
  const p = await begun(0);
  p.reader.read();
  let at = 0;
  for (const pause of [1, 2, 4, 8, 16, 30, 30]) {
    await p.answer(new Problem(503, "busy", ""));
    p.since();
    p.pass(pause * 1000 - 1);
    assert.deepEqual(p.since(), [], `before ${pause} s`);
    p.pass(1);
    at += pause * 1000;
    assert.deepEqual(p.since(), ["reading", `read at ${at}`]);
  }
  await p.answer(2);
  assert.equal(p.planned, 0);
  p.reader.read();
  await p.answer(new Problem(0, "unreachable", ""));
  p.since();
  p.pass(1000);
  assert.equal(p.since().length, 2);
});

test("the server says when a failure may be repeated", async () => {
  const p = await begun(0);
  p.reader.read();
  await p.answer(new Problem(429, "too_many", "", {}, "", 7));
  p.since();
  p.pass(6999);
  assert.deepEqual(p.since(), []);
  p.pass(1);
  assert.equal(p.since().length, 2);
});

test("what was refused is read again when it is due, or when the page is shown", async () => {
  const p = await begun(5000);
  p.reader.read();
  await p.answer(new Problem(404, "not_found", ""));
  assert.deepEqual(p.since(), ["reading", "read at 0", "failed 404", "rests"]);
  p.reader.pace(9000); // not for what failed
  p.pass(5000);
  assert.deepEqual(p.since(), ["reading", "read at 5000"]);
  await p.answer(new Problem(404, "not_found", ""));
  p.since();
  p.reader.visibilityChanged();
  assert.deepEqual(p.since(), ["reading", "read at 5000"]);
});

test("nobody who is signed out reads, and a session that lasts is tried again", async () => {
  const p = await begun(5000);
  p.reader.read();
  await p.answer(new Problem(401, "unauthorized", ""));
  p.pass(1000);
  assert.deepEqual(p.since(), ["reading", "read at 0", "failed 401", "rests", "reading", "read at 1000"]);
  p.isSignedOut = true;
  await p.answer(new Problem(401, "unauthorized", ""));
  p.pass(60_000);
  assert.deepEqual(p.since(), ["failed 401", "rests"]);
  p.isSignedOut = false;
  p.reader.read();
  assert.deepEqual(p.since(), ["reading", "read at 61000"]);
});

test("another interval counts from now on", async () => {
  const p = await begun(0);
  p.reader.pace(3000);
  p.pass(3000);
  assert.deepEqual(p.since(), ["reading", "read at 3000"]);
  await p.answer(2);
  p.since();
  p.reader.pace(0);
  p.pass(60_000);
  assert.deepEqual(p.since(), []);
});

test("what has stopped tells nothing, and plans nothing", async () => {
  const p = await begun(5000);
  p.reader.read();
  p.since();
  p.reader.stop();
  assert.ok(p.aborted);
  await p.answer(2);
  p.reader.read();
  p.reader.changed();
  p.pass(60_000);
  assert.deepEqual(p.since(), []);
});

test("what was late is read once more, and then what changes", async () => {
  const page = new Page(0);
  page.late = 2000;
  page.reader.begin();
  await page.answer(1);
  page.since();
  page.pass(2999);
  assert.deepEqual(page.since(), []);
  page.pass(1);
  await page.answer(2);
  assert.deepEqual(page.since(), ["reading", "read at 3000", "shows 2", "rests"]);
  page.pass(60_000);
  assert.deepEqual(page.since(), [], "it lacks nothing that a live connection does not tell");
  page.reader.changed();
  page.pass(2000);
  await page.answer(3);
  assert.equal(page.since().includes("shows 3"), true);
  page.pass(2000);
  page.reader.changed(); // just before the repetition, which may lack this
  page.pass(1000);
  await page.answer(4);
  page.pass(3000);
  await page.answer(5);
  assert.deepEqual(page.since().filter((l) => l.startsWith("shows")), ["shows 4", "shows 5"]);
  page.reader.stop();
});

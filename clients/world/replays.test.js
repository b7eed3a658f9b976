import assert from 'node:assert/strict';
import { test } from 'node:test';
import { inTurn, wakesRun } from './lib/replays.js';

const RUN = { runId: 'wrun_1', requestedAt: new Date(0), traceCarrier: {} };

/** A delivery that notes for which others it stands. */
function delivery(payload = RUN) {
  const standsFor = [];
  return { runId: payload.runId, message: { wrapper: { payload } }, standsFor, standFor: (other) => standsFor.push(other) };
}

/** Replays that end when they are told to. It keeps how many are under way. */
function newReplays() {
  const begun = [];
  const all = {
    begun, underWay: 0, most: 0,
    replay: (name) => async () => {
      all.most = Math.max(all.most, ++all.underWay);
      try {
        return await new Promise((resolve, reject) => begun.push({ name, resolve, reject }));
      } finally {
        all.underWay--;
      }
    },
  };
  return all;
}

const turnOfTheLoop = () => new Promise((resolve) => setImmediate(resolve));

test('wake-ups that come during a replay share the next one', async () => {
  const replays = newReplays();
  const deliveries = Array.from({ length: 100 }, () => delivery());
  const first = inTurn(deliveries[0], replays.replay('first'));
  await turnOfTheLoop();
  const others = deliveries.slice(1).map((each, i) => inTurn(each, replays.replay(`other ${i}`)));
  await turnOfTheLoop();
  assert.deepEqual(replays.begun.map(({ name }) => name), ['first']);
  replays.begun[0].resolve('one');
  assert.equal(await first, 'one');
  await turnOfTheLoop();
  assert.deepEqual(replays.begun.map(({ name }) => name), ['first', 'other 0']);
  replays.begun[1].resolve('two');
  assert.deepEqual(await Promise.all(others), ['two', ...Array.from({ length: 98 }, () => undefined)]);
  assert.deepEqual(deliveries[1].standsFor, deliveries.slice(2));
  assert.equal(replays.most, 1);
});

test('a wake-up that comes after the beginning of a replay has another one', async () => {
  const replays = newReplays();
  const first = inTurn(delivery(), replays.replay('first'));
  await turnOfTheLoop();
  const second = inTurn(delivery(), replays.replay('second'));
  replays.begun[0].resolve();
  await first;
  await turnOfTheLoop();
  const third = inTurn(delivery(), replays.replay('third'));
  replays.begun[1].resolve();
  await second;
  await turnOfTheLoop();
  replays.begun[2].resolve('three');
  assert.equal(await third, 'three');
});

test('a replay that fails fails each delivery that it stands for, and no other', async () => {
  const replays = newReplays();
  const sent = [inTurn(delivery(), replays.replay()), inTurn(delivery(), replays.replay())];
  await turnOfTheLoop();
  sent.push(inTurn(delivery(), replays.replay()));
  const settled = Promise.allSettled(sent);
  replays.begun[0].reject(new Error('away'));
  await turnOfTheLoop();
  replays.begun[1].resolve();
  assert.deepEqual((await settled).map(({ status }) => status), ['rejected', 'rejected', 'fulfilled']);
});

test('a message with more than its run is replayed for itself, in turn', async () => {
  const replays = newReplays();
  const diverged = { ...RUN, replayDivergence: { count: 1 } };
  const sent = [RUN, diverged, RUN, diverged].map((payload, i) => inTurn(delivery(payload), replays.replay(i)));
  for (let i = 0; i < 4; i++) {
    await turnOfTheLoop();
    assert.equal(replays.begun.length, i + 1);
    replays.begun[i].resolve(i);
  }
  assert.deepEqual(await Promise.all(sent), [0, 1, 2, 3]);
  assert.equal(replays.most, 1);
});

test('replays of different runs do not wait for each other', async () => {
  const replays = newReplays();
  const sent = ['a', 'b'].map((runId) => inTurn(delivery({ runId }), replays.replay(runId)));
  await turnOfTheLoop();
  assert.equal(replays.begun.length, 2);
  for (const { name, resolve } of replays.begun) resolve(name);
  assert.deepEqual(await Promise.all(sent), ['a', 'b']);
});

for (const [name, payload, specVersion, want] of [
  ['a wake-up of the 4.x line', RUN, 3, true],
  ['a step of the 4.x line', { workflowRunId: 'wrun_1', stepId: 'step_1' }, 3, false],
  ['a health check', { __healthCheck: true, correlationId: 'c' }, 3, false],
  ['a message of the 5.x line, which may run a step', RUN, 8, false],
]) {
  test(`${name} is ${want ? '' : 'not '}replayed in turn`, () => assert.equal(wakesRun(payload, specVersion), want));
}

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { test } from 'node:test';
import { Delivery } from './lib/delivery.js';
import { Http } from './lib/http.js';
import { createStreamer } from './lib/streams.js';

class WorkflowWorldError extends Error {
  constructor(message, options) {
    super(message);
    Object.assign(this, options);
  }
}

/** A server that answers when a test says so, and the streams of a client of it. */
async function serve(t, specVersion) {
  const requests = [];
  const answers = [];
  const server = createServer(async (req, res) => {
    const body = [];
    for await (const part of req) body.push(part);
    requests.push({ url: req.url, done: req.headers['x-stream-done'], chunks: chunksIn(Buffer.concat(body)) });
    answers.push((status = 204) => res.writeHead(status).end(status === 204 ? undefined : '{"code":"x","message":"refused"}'));
    server.emit('asked');
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const http = new Http({ base: `http://127.0.0.1:${server.address().port}/sdk`, errors: { WorkflowWorldError }, userAgent: 'test' });
  t.after(() => {
    http.close();
    server.closeAllConnections();
    server.close();
  });
  const next = async () => {
    while (answers.length === 0) await once(server, 'asked');
    return answers.shift();
  };
  return { requests, next, ...createStreamer(http, specVersion) };
}

function chunksIn(bytes) {
  const chunks = [];
  for (let at = 0; at < bytes.length; at += 4 + bytes.readUInt32BE(at)) chunks.push(bytes.toString('utf8', at + 4, at + 4 + bytes.readUInt32BE(at)));
  return chunks;
}

const newDelivery = () => new Delivery({ message: { id: 'm', topic: 't', receipt: 'rh' } }, 'r', {});
const isSettled = (promise) => Promise.race([promise.then(() => true, () => true), new Promise((resolve) => setImmediate(resolve, false))]);

for (const [line, specVersion] of [['4.8', 3], ['5.0.0-beta.35', 5]]) {
  test(`${line}: what a step writes in quick succession is one request, and the end of the step waits for it`, async (t) => {
    const server = await serve(t, specVersion);
    const write = (chunk) => server.writeToStream?.('s', 'r', chunk) ?? server.streams.write('r', 's', chunk);
    const delivery = newDelivery();
    await delivery.do(() => write('1'));
    const first = await server.next();
    for (const chunk of ['2', '3', '4']) await delivery.do(() => write(chunk));
    const stored = delivery.storeChunks();
    first();
    const second = await server.next();
    assert.deepEqual(server.requests.map(({ chunks }) => chunks), [['1'], ['2', '3', '4']]);
    assert.equal(await isSettled(stored), false);
    second();
    await stored;
    assert.equal(server.streamFlushIntervalMs, 0);
  });
}

test('close comes after the last chunk', async (t) => {
  const server = await serve(t, 3);
  await newDelivery().do(async () => {
    await server.writeToStreamMulti('s', 'r', ['1', '2']);
    const closed = server.closeStream('s', 'r');
    (await server.next())();
    (await server.next())();
    await closed;
  });
  assert.deepEqual(server.requests.map(({ chunks, done }) => [chunks, done]), [[['1', '2'], undefined], [[], 'true']]);
});

test('a lost chunk fails the next write, and the close, of its stream', async (t) => {
  const server = await serve(t, 3);
  const delivery = newDelivery();
  await delivery.do(async () => {
    for (const [stream, next] of [['a', () => server.writeToStream('a', 'r', '2')], ['b', () => server.closeStream('b', 'r')]]) {
      await server.writeToStream(stream, 'r', '1');
      (await server.next())(400);
      await delivery.storeChunks();
      await assert.rejects(next(), { status: 400 });
    }
  });
  assert.deepEqual(server.requests.map(({ chunks }) => chunks), [['1'], ['1']]);
});

test('a lost chunk fails the end of its step', async (t) => {
  const server = await serve(t, 3);
  const delivery = newDelivery();
  await delivery.do(() => server.writeToStream('s', 'r', '1'));
  (await server.next())(400);
  await assert.rejects(delivery.requireChunks(), { status: 400 });
  await delivery.requireChunks(); // it is said once
});

test('a lost chunk that nobody was told is reported at the end of the delivery', async (t) => {
  const { mock } = t.mock.method(console, 'error', () => {});
  const server = await serve(t, 3);
  const delivery = newDelivery();
  await delivery.do(() => server.writeToStream('s', 'r', '1'));
  (await server.next())(400);
  await delivery.end({ ack: true });
  assert.match(mock.calls[0].arguments[0], /chunks of stream s were not stored/);
  const again = server.writeToStream('s', 'r', '2'); // nothing is left of it
  (await server.next())();
  await again;
});

for (const [where, specVersion] of [['outside of a delivery', 3], ['on 5.0.0-beta.55, which collects chunks itself', 7]]) {
  test(`${where}, a write ends when its chunks are stored, and others go with it`, async (t) => {
    const server = await serve(t, specVersion);
    const write = (chunk) => server.writeToStream?.('s', 'r', chunk) ?? newDelivery().do(() => server.streams.write('r', 's', chunk));
    const [one, two, three] = ['1', '2', '3'].map(write);
    const first = await server.next();
    assert.equal(await isSettled(one), false);
    first();
    (await server.next())(400);
    await assert.rejects(two, { status: 400 });
    await assert.rejects(three, { status: 400 });
    assert.deepEqual(server.requests.map(({ chunks }) => chunks), [['1'], ['2', '3']]);
  });
}

test('streams are written side by side', async (t) => {
  const server = await serve(t, 3);
  const writes = ['a', 'b'].map((stream) => server.writeToStream(stream, 'r', '1'));
  const answers = [await server.next(), await server.next()];
  for (const answer of answers) answer();
  await Promise.all(writes);
  assert.deepEqual(server.requests.map(({ url }) => url).sort(), ['/sdk/v2/runs/r/stream/a', '/sdk/v2/runs/r/stream/b']);
});

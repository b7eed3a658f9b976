// The World's queue: sends messages, and handles their deliveries.
import { randomUUID } from 'node:crypto';
import { Delivery, deliveryOf, readDelivery } from './delivery.js';
import { FENCE_SPEC } from './fence.js';
import { isAway, MIME_WORLD, PROTOCOL, PULL_TOKEN, PULLED } from './http.js';
import { encodeCommit, messageItem, runOf } from './items.js';
import { inOrder, inTurn, orchestrates, wakesRun } from './replays.js';
import { fail as failure } from './sdk.js';
import { parseKeys, Refused, verify } from './signature.js';

const MAX_DELAY_SECONDS = Number(process.env.VERCEL_QUEUE_MAX_DELAY_SECONDS || 82_800);
// A handler that still works after this time says so, and again at each interval. If its server is gone, and it has not
// for ten seconds, another server delivers the message again.
const FIRST_KEEP_MS = 1000;
const KEEP_MS = 3000;
/** By how much servers extend the lease that know of extensions only. */
const LEASE_SECONDS = 300;
const MAX_BACKOFF_SECONDS = 900;
/** How long a message waits at most, in its first attempts, if the server was away. */
const MAX_AWAY_SECONDS = 10;
const AWAY_ATTEMPTS = 16;
const MAX_ITEMS = 1000;

const PROCESS = randomUUID();

export function createQueue({ http, commits, log, deployment, specVersion }) {
  const keys = signingKeys();
  const item = (queueName, payload, options = {}) =>
    messageItem(queueName, payload, options, { deployment, specVersion });

  async function send(items) {
    const [{ runId }] = items;
    const delivery = runId && deliveryOf(runId);
    // On the 4.x line a step starts with its message, and a replay sends that again. The 5.x line also starts steps
    // without one, and a retry has the key of the step.
    const isStored = ({ key, delay }) => specVersion < 5 && !delay && log.hasStarted(runId, key);
    if (delivery) {
      const missing = items.filter((each) => !isStored(each.meta));
      await Promise.all(missing.map((each) => delivery.hold(each)));
      return items.map(() => ({ messageId: null }));
    }
    const joined = items.length === 1 && runId && commits.join(runId, items[0]);
    const results = joined ? await joined : await commits.send({ items });
    return results.map((result) => ({ messageId: commits.accept(result).messageId ?? null }));
  }

  return {
    getDeploymentId: async () => deployment,

    async queue(queueName, payload, options) {
      const [sent] = await send([item(queueName, payload, options)]);
      return sent;
    },

    async queueBatch(queueName, messages) {
      const items = messages.map(({ message, opts }) => item(queueName, message, opts));
      const sent = [];
      for (let at = 0; at < items.length; at += MAX_ITEMS) sent.push(...(await send(items.slice(at, at + MAX_ITEMS))));
      return sent;
    },

    createQueueHandler: (_prefix, handler) => async (request) => {
      let read;
      try {
        const bytes = new Uint8Array(await request.arrayBuffer());
        const own = request.headers.get(PULLED) === PULL_TOKEN;
        if (keys && !own) verify({ method: request.method, url: request.url, headers: request.headers, body: bytes }, keys);
        read = readDelivery(request.headers, bytes);
      } catch (err) {
        return refuse(err);
      }
      return handle(read, handler, request);
    },
  };

  async function handle(read, handler, request) {
    const { payload, queueName, deploymentId } = read.message.wrapper;
    const runId = runOf(payload);
    const delivery = new Delivery(read, runId, commits);
    if (read.run) log.receive(delivery, read);
    const pulled = request.headers.has(PULLED); // then its leases are renewed by the polls
    const stop = pulled ? () => {} : keepLease(read.message);
    const { id: messageId, attempt, createdAt } = read.message;
    const requestId = request.headers.get('x-vercel-id')?.trim() || undefined;
    const meta = { queueName, messageId, attempt, deliveryCount: attempt, createdAt, requestId };
    const end = (outcome) => delivery.end(outcome, { aborted: request.signal?.aborted, pulled });
    const work = async () => {
      const result = await delivery.do(() => handler(payload, meta));
      if (typeof result?.timeoutSeconds === 'number') {
        // From version 9, the handler wants this very message again; before, its payload in another one.
        if (specVersion >= FENCE_SPEC) return end(postponed(result.timeoutSeconds));
        const delaySeconds = Math.min(result.timeoutSeconds, MAX_DELAY_SECONDS);
        await delivery.hold(item(queueName, payload, { deploymentId, delaySeconds, specVersion }));
      }
      return end({ ack: true });
    };
    try {
      return respond(delivery, (await inPlace(delivery, work)) ?? (await end({ ack: true })));
    } catch (err) {
      return fail(delivery, err, pulled);
    } finally {
      stop();
    }
  }

  /** Works on a delivery when it is its turn among those of its run, if they have one. */
  function inPlace(delivery, work) {
    const { payload } = delivery.message.wrapper;
    if (wakesRun(payload, specVersion)) return inTurn(delivery, work);
    return orchestrates(payload, specVersion) ? inOrder(delivery.runId, work) : work();
  }

  /** Answers a delivery whose handler failed. What it wrote until then stays written. */
  async function fail(delivery, err, pulled) {
    const { id, attempt } = delivery.message;
    const retryAfter = backoff(err, attempt);
    console.error(`[@stepwell/world] delivery ${attempt} of message ${id} failed; again in ${retryAfter} s:`, err);
    const outcome = { retryAfter, reason: String(err?.message ?? err).slice(0, 300) };
    const parts = await delivery.end(outcome, { pulled }).catch(() => encodeCommit({ runId: delivery.runId, items: [], end: outcome }));
    return respond(delivery, parts);
  }

  /** Keeps the lease of a message while its handler works. */
  function keepLease({ topic, receipt }) {
    const path = `/queues-proxy/api/v3/topic/${encodeURIComponent(topic)}/consumer/default/lease/${encodeURIComponent(receipt)}`;
    let timer;
    const schedule = (ms) => (timer = setTimeout(keep, ms).unref());
    const keep = () => {
      const body = JSON.stringify({ working: true, visibilityTimeoutSeconds: LEASE_SECONDS });
      const headers = { 'content-type': 'application/json' };
      http.request('PATCH', path, { body, headers, timeout: KEEP_MS, once: true }).catch(() => {}); // the next one may succeed
      schedule(KEEP_MS);
    };
    schedule(FIRST_KEEP_MS);
    return () => clearTimeout(timer);
  }
}

/** The outcome of a delivery whose handler wants the same message again, and has not failed. */
const postponed = (seconds) => ({ retryAfter: Math.max(0, Math.ceil(seconds)), postponed: true });

const HEADERS = { 'content-type': MIME_WORLD, 'stepwell-world': String(PROTOCOL), 'stepwell-process': PROCESS };

/** The answer to a delivery. If it is aborted before it was read, its content is sent. */
function respond(delivery, parts) {
  const bytes = new Uint8Array(Buffer.concat(parts));
  let sent = false;
  const stream = new ReadableStream(
    {
      pull(controller) {
        if (sent) return controller.close();
        sent = true;
        controller.enqueue(bytes);
      },
      cancel: () => void delivery.answerLost().catch(() => {}), // then the message is delivered again
    },
    { highWaterMark: 0 },
  );
  return new Response(stream, { headers: HEADERS });
}

const REFUSALS = ['world_version', 'unknown_frame'];

/** The keys of STEPWELL_SIGNING_KEYS. With them, only signed deliveries are accepted. */
function signingKeys() {
  const { STEPWELL_SIGNING_KEYS: keys } = process.env;
  if (!keys) return undefined;
  try {
    return parseKeys(keys);
  } catch (err) {
    throw failure(`STEPWELL_SIGNING_KEYS is invalid: ${err.message}.`);
  }
}

/** Answers what is not signed, not a whole delivery, or not one that this client knows. */
function refuse(err) {
  if (err instanceof Refused) {
    const message = `the delivery is refused: ${err.message}`;
    return Response.json({ code: 'unverified', message }, { status: 401, headers: { 'content-type': 'application/json' } });
  }
  const code = REFUSALS.includes(err.code) ? err.code : 'malformed';
  const body = { code, message: `the app cannot read the delivery: ${err.message}` };
  return Response.json(body, { status: 400, headers: { ...HEADERS, 'content-type': 'application/json' } });
}

/**
 * The seconds until a failed message is delivered again: 1, 2, 4, …, a quarter of it random; or what the error asks for.
 * The first times it waits no longer for a server or a database that is away: it has nothing to do with the message.
 */
export function backoff(err, attempt) {
  const most = isAway(err) && attempt <= AWAY_ATTEMPTS ? MAX_AWAY_SECONDS : MAX_BACKOFF_SECONDS;
  const full = Math.min(2 ** (attempt - 1), most);
  const asked = Number.isFinite(err?.retryAfter) ? Math.ceil(err.retryAfter) : 0;
  const jittered = Math.max(1, Math.round(full * (1 - Math.random() / 4)));
  return Math.max(jittered, Math.min(asked, MAX_BACKOFF_SECONDS));
}

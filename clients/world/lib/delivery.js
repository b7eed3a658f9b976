// One delivery of a message to this app: what came with it, and what its answer will carry.
import { AsyncLocalStorage } from 'node:async_hooks';
import { decode } from './cbor.js';
import { readList } from './frames.js';
import { MIME_WORLD, PROTOCOL } from './http.js';
import { encodeCommit, eventOf, sizeOf } from './items.js';

/** Above this size, what the answer would carry is sent before. */
const MAX_ANSWER_BYTES = 1024 * 1024;
const MAX_ITEMS = 900;
/** How long items wait for the end of the handler. */
const LONGEST_HOLD_MS = 20;
/**
 * A handler that worked for longer sends its results itself, and repeats that if need be: an answer may be lost with
 * its connection, and then a step is executed again.
 */
const LONGEST_ANSWERED_MS = 1000;
/** How long the log is taken for current after an answer that brought what is new in it. */
const CURRENT_MS = 100;

const current = sharedContext();

// The SDK creates several Worlds in a process, possibly from several copies of this package. The handler's World and
// the one that writes its events may not be the same.
function sharedContext() {
  const place = Symbol.for('@stepwell/world//delivery/1');
  return (globalThis[place] ??= new AsyncLocalStorage());
}

/** The delivery in whose handler this code runs, if its message is of the run. */
export function deliveryOf(runId) {
  const delivery = current.getStore();
  return delivery && !delivery.ended && delivery.runId === runId ? delivery : undefined;
}

/** Reads a delivery: in the form with the run and its log, or the plain one. @throws if it is cut */
export function readDelivery(headers, bytes) {
  const header = (name) => headers.get(`ce-vqs${name}`) ?? undefined;
  const message = {
    id: header('messageid'),
    topic: header('queuename'),
    receipt: header('receipthandle'),
    attempt: Number(header('deliverycount') ?? 1),
    createdAt: dateOf(header('createdat')),
  };
  if (!message.id || !message.receipt) throw new TypeError('this is not a delivery of a Stepwell server: Ce-Vqs* headers are missing');
  if (!headers.get('content-type')?.startsWith(MIME_WORLD)) {
    return { message: { ...message, wrapper: decodeMessage(bytes) }, events: [], after: 0, more: false };
  }
  const { frames, end } = readList(bytes);
  const [first, ...events] = frames;
  if (first?.meta.world !== PROTOCOL) throw refusal('world_version', `this client speaks version ${PROTOCOL} of the World protocol`);
  for (const { meta } of events) {
    if (typeof meta.eventType !== 'string') throw refusal('unknown_frame', 'a frame is neither an event nor the end');
  }
  return {
    message: { ...message, wrapper: decodeMessage(first.body) },
    run: first.meta.run,
    after: first.meta.after ?? 0,
    events: events.map(eventOf),
    more: end.hasMore === true,
  };
}

function dateOf(text) {
  return text ? new Date(text) : undefined;
}

function refusal(code, message) {
  return Object.assign(new TypeError(message), { code });
}

// JSON text is never valid CBOR: its first byte announces more text than there is.
function decodeMessage(bytes) {
  return bytes[0] === 0x7b ? JSON.parse(new TextDecoder().decode(bytes)) : decode(bytes);
}

export class Delivery {
  /** Whether the handler has ended. From then on, its context writes like any other code. */
  ended = false;
  #items = [];
  #bytes = 0;
  #timer;
  #flushing = Promise.resolve();
  #refused;
  #startedAt = Date.now();
  /** How many events of the log the delivery brought, if it brought all. */
  received = 0;
  #currentAt = 0;
  #currentLength = 0;
  #commits;
  #outboxes = new Map(); // of the streams that the handler writes, by name

  constructor(read, runId, commits) {
    this.message = read.message;
    this.run = read.run;
    this.runId = runId;
    this.#commits = commits;
  }

  /** Adds what another delivery of the same run, which came later, has brought: the log of both is needed now. */
  standFor({ run, received }) {
    this.run = run ?? this.run;
    this.received = received && this.received && Math.max(received, this.received);
  }

  /** Runs the handler so that what it writes finds the delivery. */
  do(handler) {
    return current.run(this, handler);
  }

  get age() {
    return Date.now() - this.#startedAt;
  }

  /** Whether a cached log of this length is current. */
  isCurrent(length) {
    return length >= this.#currentLength && Date.now() - this.#currentAt < CURRENT_MS;
  }

  /** Notes that the server has just told the log up to a position, or with undefined, that there is more. */
  noteLog(length) {
    this.#currentAt = length === undefined ? 0 : Date.now();
    this.#currentLength = length ?? 0;
  }

  /** Notes that chunks of a stream are on their way, so that the end of their step waits for them. */
  expect(stream, outbox) {
    this.#outboxes.set(stream, outbox);
  }

  /** Waits until the chunks that were written are stored, or lost: then whoever relies on them is told. */
  async storeChunks() {
    await Promise.allSettled([...this.#outboxes.values()].map((outbox) => outbox.settled()));
  }

  /** Waits until the chunks that were written are stored. @throws if some could not be */
  async requireChunks() {
    await this.storeChunks();
    for (const outbox of this.#outboxes.values()) await outbox.stored();
  }

  /** Keeps an item for the answer. Resolves at once, unless there is too much. */
  async hold(item) {
    this.#items.push(item);
    this.#bytes += sizeOf(item);
    this.noteLog(undefined);
    if (this.#bytes > MAX_ANSWER_BYTES || this.#items.length === MAX_ITEMS) return this.flush();
    this.#timer ??= setTimeout(() => void this.flush().catch(() => {}), LONGEST_HOLD_MS).unref();
  }

  /** Sends what is held. @throws if some of it is refused */
  flush() {
    return this.commit([]);
  }

  /**
   * Sends items after what is held, in one commit, and returns their outcomes.
   * @throws if something that was held is refused: the delivery has failed then
   */
  async commit(items) {
    const held = this.#take();
    if (held.length + items.length === 0) {
      await this.#flushing; // so that everything is written when this resolves
      return [];
    }
    const sending = this.#flushing.then(() => this.#commits.send({ runId: this.runId, items: [...held, ...items] }));
    // Writes keep their order, but one that fails does not fail the next.
    this.#flushing = held.length > 0 ? sending.catch(() => {}) : this.#flushing;
    let results;
    try {
      results = await sending;
    } catch (err) {
      if (held.length > 0) this.#refused ??= err;
      throw err;
    }
    const refused = results.slice(0, held.length).find((result) => endsCommit(result));
    if (refused) {
      this.#refused ??= this.#asError(refused);
      throw this.#refused;
    }
    return results.slice(held.length);
  }

  #take() {
    const items = this.#items;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#items = [];
    this.#bytes = 0;
    return items;
  }

  #asError(result) {
    try {
      return this.#commits.accept(result);
    } catch (err) {
      return err;
    }
  }

  /**
   * Ends the delivery and returns the parts of its answer. The outcome acknowledges the message or, after a failure,
   * says when to deliver it again. That of a pulled delivery is sent: nobody carries out its answer.
   * @throws if something that the handler wrote before was refused
   */
  async end(outcome, { aborted = false, pulled = false } = {}) {
    this.ended = true;
    await this.storeChunks();
    for (const [stream, outbox] of this.#outboxes) outbox.giveUp(stream);
    await this.#flushing;
    const succeeded = outcome.ack || outcome.postponed;
    if (this.#refused && succeeded) throw this.#refused;
    let items = this.#take();
    if (pulled || (items.length > 0 && (aborted || this.age > LONGEST_ANSWERED_MS))) {
      // With its outcome, so that the message is not delivered again if the answer is lost.
      const end = this.#withReceipt(outcome);
      const refused = (await this.#commits.send({ runId: this.runId, items, end })).find(endsCommit);
      if (refused && succeeded) throw this.#asError(refused);
      items = [];
    }
    this.answered = { items, outcome };
    return encodeCommit({ runId: this.runId, items, end: outcome });
  }

  /** Sends what the answer carried, and its outcome, because the answer was aborted. */
  async answerLost() {
    const { items, outcome } = this.answered;
    await this.#commits.send({ runId: this.runId, items, end: this.#withReceipt(outcome) });
  }

  #withReceipt(outcome) {
    const { topic, receipt } = this.message;
    return { ...outcome, topic, receipt };
  }
}

/** Whether an outcome ended the commit: refusals other than a conflict and the end of the run. */
function endsCommit({ status }) {
  return status >= 400 && status !== 409 && status !== 410;
}

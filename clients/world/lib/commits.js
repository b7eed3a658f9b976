// Sends commits: events of a run and the messages that follow them, in one request.
import { MIME_CBOR, MIME_WORLD, body } from './http.js';
import { encodeCommit, sizeOf } from './items.js';

const PATH = '/world/v1/commit';

const CONFLICT = 409;

/**
 * What a step has done is not done again for want of a server: its end is sent for as long as the server keeps the
 * message of its delivery, about.
 */
const STEP_ENDS = new Set(['step_completed', 'step_failed', 'step_retrying']);
const STEP_END_PATIENCE_MS = 300_000;

/** The most starts of steps in one commit, as many as the server writes with one statement, and their bytes. */
const MAX_STARTS = 16;
const MAX_START_BYTES = 1024 * 1024;

export class Commits {
  #http;
  #starts = new Map(); // commits of new runs that are sent at the end of this microtask, by run
  #stepStarts = new Map(); // starts of steps that wait for the commit before them, by run

  constructor(http) {
    this.#http = http;
  }

  /**
   * Sends a commit and returns the outcomes of its items. There are fewer outcomes than items if one was refused in a
   * way that ends the commit. Steps of a run that start at once share commits.
   */
  async send(commit) {
    const [first, ...others] = commit.items;
    if (first?.type === 'step_started' && others.length === 0 && !commit.end) return this.#startStep(commit.runId, first);
    return this.#post(commit);
  }

  /**
   * A commit is repeated after a lost answer, with the items in again if that is given. Its outcome is then that of the
   * first try: the server recognizes the events that have keys, and a conflict of any other event is with itself.
   */
  async #post({ runId, items, end, again = items }) {
    let repeated = false;
    const bytes = (doubtful) => {
      repeated = doubtful;
      return encodeCommit({ runId, items: repeated ? again : items, end, repeat: repeated });
    };
    const { results } = body(await this.#request(bytes, {
      waits: !items.some(({ type }) => type === 'run_created'),
      patience: items.some(({ type }) => STEP_ENDS.has(type)) ? STEP_END_PATIENCE_MS : undefined,
    }));
    if (repeated) results.forEach((result, i) => excuseOwnConflict(result, again[i]));
    return results;
  }

  /** Asks for the newest spec version that the server serves, with a commit of nothing. */
  async newestSpec() {
    const answer = await this.#request(encodeCommit({ items: [] }), { waits: true });
    return Number(answer.headers['stepwell-spec']);
  }

  async #request(body, options) {
    const answer = await this.#http.request('POST', PATH, {
      body, headers: { 'content-type': MIME_WORLD }, accept: MIME_CBOR, repeatable: true, ...options,
    }).catch((err) => {
      throw this.#explain(err);
    });
    this.#http.requireProtocol(answer, PATH);
    return answer;
  }

  /**
   * Sends the start of a step together with those that have come while the run's last starts were under way. The server
   * appends to a run one after the other in any case.
   */
  #startStep(runId, item) {
    const waiting = this.#stepStarts.get(runId);
    return new Promise((resolve, reject) => {
      const start = { item, resolve, reject };
      if (waiting) return waiting.push(start);
      this.#stepStarts.set(runId, []);
      void this.#startSteps(runId, [start]);
    });
  }

  async #startSteps(runId, starts) {
    while (starts.length > 0) {
      let rest = [];
      try {
        const results = await this.#post({ runId, items: starts.map(({ item }) => item) });
        rest = starts.splice(Math.max(1, results.length)); // behind a refusal that ended the commit
        starts.forEach(({ resolve }, i) => resolve([results[i]]));
      } catch (err) {
        for (const { reject } of starts) reject(err);
      }
      const waiting = this.#stepStarts.get(runId);
      waiting.unshift(...rest);
      starts = waiting.splice(0, fitting(waiting));
    }
    this.#stepStarts.delete(runId);
  }

  /**
   * Sends the creation of a run. Its first message, which the SDK sends in the same breath, goes into the same commit.
   */
  async start(runId, item) {
    const [result] = await this.#startOf(runId).add(item);
    return result;
  }

  /** Adds a message to the commit that creates its run. Returns undefined if there is none. */
  join(runId, item) {
    return this.#starts.get(runId)?.add(item);
  }

  #startOf(runId) {
    const items = [];
    const sent = Promise.resolve().then(() => {
      this.#starts.delete(runId);
      return this.#sendStart(runId, items);
    });
    const start = {
      // The outcome of the item, or that of the one whose refusal ended the commit.
      add: (item) => {
        const at = items.push(item) - 1;
        return sent.then((results) => [results[at] ?? results.at(-1)]);
      },
    };
    this.#starts.set(runId, start);
    return start;
  }

  /**
   * Sends the creation of a run with its first message. The message is not sent again if the creation conflicts with
   * itself, because it was stored with it: two first messages would execute a step twice.
   */
  async #sendStart(runId, items) {
    const [created, ...messages] = items;
    const results = await this.send({ runId, items, again: [created] });
    if (results.length > 1 || messages.length === 0) return results;
    const [{ status }] = results;
    if (status === CONFLICT) return [results[0], ...messages.map(() => ({ status: 201 }))];
    return status === 200 ? [results[0], ...(await this.send({ items: messages }))] : results;
  }

  /** Returns the outcome if the item was accepted. @throws the SDK's error otherwise */
  accept(result) {
    if (result.status < 300) return result;
    const { status, error: code, message, retryAfter, seq, seqInBand } = result;
    throw this.#http.errorFor({ status, code, message, retryAfter, seq, seqInBand });
  }

  /** Only an older server has no such endpoint: what an event refers to and is missing is an outcome. */
  #explain(err) {
    return err.status === 404 ? this.#http.tooOld(PATH) : err;
  }
}

/** How many of the starts fit into one commit: at least one, if there is any. */
function fitting(starts) {
  let count = 0;
  for (let bytes = 0; count < Math.min(starts.length, MAX_STARTS); count++) {
    bytes += sizeOf(starts[count].item);
    if (count > 0 && bytes > MAX_START_BYTES) break;
  }
  return count;
}

// The SDK takes a conflict of run_created for success, and needs the run otherwise. A fence refuses its own repetition
// with another status, so that a conflict is with another event.
function excuseOwnConflict(result, item) {
  if (result.status !== CONFLICT || item?.kind !== 'event') return;
  if (item.meta.writeKey || item.meta.inBand || item.type === 'run_created') return;
  result.status = 200;
}

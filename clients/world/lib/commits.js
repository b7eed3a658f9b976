// Sends commits: events of a run and the messages that follow them, in one request.
import { MIME_CBOR, MIME_WORLD, body } from './http.js';
import { encodeCommit } from './items.js';

const PATH = '/world/v1/commit';

const CONFLICT = 409;

export class Commits {
  #http;
  #starts = new Map(); // commits of new runs that are sent at the end of this microtask, by run

  constructor(http) {
    this.#http = http;
  }

  /**
   * Sends a commit and returns the outcomes of its items. There are fewer outcomes than items if one was refused in a
   * way that ends the commit.
   *
   * A commit is repeated after a lost answer, with the items in again if that is given. Its outcome is then that of the
   * first try: the server recognizes the events that have keys, and a conflict of any other event is with itself.
   */
  async send({ runId, items, end, again = items }) {
    let repeated = false;
    const answer = await this.#http.request('POST', PATH, {
      body: (attempt) => {
        repeated = attempt > 0;
        return encodeCommit({ runId, items: repeated ? again : items, end, repeat: repeated });
      },
      headers: { 'content-type': MIME_WORLD },
      accept: MIME_CBOR,
      repeatable: true,
      waits: !items.some(({ type }) => type === 'run_created'),
    }).catch((err) => {
      throw this.#explain(err);
    });
    this.#http.requireProtocol(answer, PATH);
    const { results } = body(answer);
    if (repeated) results.forEach((result, i) => excuseOwnConflict(result, again[i]));
    return results;
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
    throw this.#http.errorFor({ status: result.status, code: result.error, message: result.message, retryAfter: result.retryAfter });
  }

  /** Only an older server has no such endpoint: what an event refers to and is missing is an outcome. */
  #explain(err) {
    return err.status === 404 ? this.#http.tooOld(PATH) : err;
  }
}

// The SDK takes a conflict of run_created for success, and needs the run otherwise.
function excuseOwnConflict(result, item) {
  if (result.status !== CONFLICT || item?.kind !== 'event' || item.meta.writeKey || item.type === 'run_created') return;
  result.status = 200;
}

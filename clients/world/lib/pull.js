// Fetches the app's deliveries by long polls, and hands them to the app over loopback HTTP: docs/protocol.md §11.4.
//
// The handlers are called through the app's own server, and not directly, because a framework loads their modules only
// when their routes are requested, and in development loads them again after a change.
import { randomUUID } from 'node:crypto';
import http from 'node:http';
import { Server } from 'node:net';
import { Server as SecureServer } from 'node:tls';
import { encode } from './cbor.js';
import { Commits } from './commits.js';
import { readList } from './frames.js';
import { Http, MIME_CBOR, MIME_WORLD, PROTOCOL, PULL_TOKEN, PULLED, pause } from './http.js';
import { backoff } from './queue.js';
import { report, servesApp } from './registration.js';
import { fail, requireFromSdk, USER_AGENT } from './sdk.js';

const PATH = '/world/v1/pull';
const ROUTE = '/.well-known/workflow/v1/flow';

/** How many deliveries the app works on at once. */
const SLOTS = 100;
/** How long a poll waits. While the app works, the polls also renew its leases, of 30 s. */
const WAIT_MS = 25_000;
const BUSY_WAIT_MS = 10_000;
/** How long after a renewal the next one is sent, if no poll brings it. */
const RENEW_MS = 12_000;
/** How much longer than its wait a poll may take. */
const SLACK_MS = 15_000;
// The pauses between the tries while the server is away; the last one repeats.
const PAUSES_MS = [100, 250, 500, 1000, 2000];
const REFUSED_PAUSE_MS = 15_000;
// The pauses between looks for the app's server; the last one repeats. A process that only starts runs has none.
const LOOKS_MS = [100, 250, 250, 500, 500, 1000, 1000, 2000, 5000];
/** How long the app may take for a health check: in development, that compiles the route. */
const LOOK_MS = 30_000;
/** How long a signal to end the process waits for the deliveries under way. */
const GRACE_MS = 10_000;
/** An idle connection to the app's server is closed before Node's servers do that (5 s). */
const APP_IDLE_MS = 4000;

// A process creates several Worlds, of several copies of this module if a framework bundles it. One fetches.
const begun = (globalThis[Symbol.for('@stepwell/world//pulls/1')] ??= new Set());

/**
 * Whether the app fetches its deliveries: it was told to ('asked'), or only wants to if the server does ('offered'). App
 * is the base URL of its own server, if that is given.
 */
export function pullMode({ STEPWELL_PULL: value = '', STEPWELL_APP_URL: url }) {
  if (/^https?:\/\//.test(value)) return { mode: 'asked', app: value.replace(/\/+$/, '') };
  if (['1', 'true'].includes(value)) return { mode: 'asked' };
  if (['0', 'false'].includes(value)) return {};
  if (value) throw fail(`STEPWELL_PULL is "${value}": set it to 1, to 0, or to the base URL of the app on its own machine.`);
  return url ? {} : { mode: 'offered' };
}

/** Fetches the app's deliveries in the background, if it should, for as long as the process lives. */
export function pull(settings) {
  const { mode, app } = pullMode(process.env);
  if (!mode || !servesApp(process)) return;
  const name = `${settings.base} ${settings.deployment}`;
  if (begun.has(name)) return;
  begun.add(name);
  const puller = new Puller({ ...settings, asked: mode === 'asked', app });
  endWithSignals(puller);
  void puller.run();
}

export class Puller {
  #settings;
  #http;
  #commits;
  #process = randomUUID();
  #agent = new http.Agent({ keepAlive: true, timeout: APP_IDLE_MS });
  #app; // where it listens
  #underWay = new Map(); // the work on each delivery, by receipt
  #renewal; // the timer of the next one
  #refusal; // what the last one said
  #stopping = new AbortController();

  constructor(settings) {
    this.#settings = settings;
    this.#http = new Http({ ...settings, errors: requireFromSdk('@workflow/errors'), userAgent: USER_AGENT, unref: true });
    this.#commits = new Commits(this.#http);
  }

  /** Polls until it is stopped, or the server asks for no polls of apps that were not told to. */
  async run() {
    for (let failures = 0; !this.#stopping.signal.aborted; ) {
      const app = await this.#findApp();
      if (!app) return;
      try {
        await this.#poll(app);
        failures = 0;
        this.#refusal = undefined;
      } catch (err) {
        if (this.#stopping.signal.aborted) return;
        if (!(await this.#goesOn(err, failures++))) return;
      }
    }
  }

  /** Ends the polls. Resolves when what is under way has ended; until then, its leases are renewed. */
  async stop() {
    this.#stopping.abort(new Error('the app stops'));
    void this.#renew();
    await Promise.allSettled(this.#underWay.values());
    clearTimeout(this.#renewal);
    this.#agent.destroy();
  }

  /** Waits until the app listens, and returns where; undefined if it is stopped before. */
  async #findApp() {
    for (let looks = 0; !this.#stopping.signal.aborted; looks++) {
      if (this.#app?.isListening()) return this.#app;
      this.#app = await firstServing(this.#settings.app ? [placeAt(this.#settings.app)] : ownPlaces());
      if (this.#app) return this.#app;
      await unobtrusivePause(LOOKS_MS[Math.min(looks, LOOKS_MS.length - 1)]);
    }
    return undefined;
  }

  async #poll(app) {
    const slots = SLOTS - this.#underWay.size;
    if (slots <= 0) return Promise.race(this.#underWay.values());
    const waitMs = this.#underWay.size > 0 ? BUSY_WAIT_MS : WAIT_MS;
    const answer = await this.#post(slots, waitMs, {
      accept: MIME_WORLD, timeout: waitMs + SLACK_MS, signal: this.#stopping.signal, once: true,
    });
    this.#http.requireProtocol(answer, PATH);
    for (const { meta, body } of readList(answer.body).frames) this.#start(app, meta, body);
  }

  /** Renews the leases of what is under way, by a poll without slots. */
  async #renew() {
    if (this.#underWay.size === 0) return;
    await this.#post(0, 0, { timeout: RENEW_MS, repeatable: true }).catch(() => {}); // the next one may succeed
  }

  #post(slots, waitMs, options) {
    clearTimeout(this.#renewal);
    this.#renewal = undefined;
    this.#renewSoon();
    const { deployment, asked } = this.#settings;
    const receipts = [...this.#underWay.keys()];
    return this.#http.request('POST', PATH, {
      body: encode({ world: PROTOCOL, deployment, process: this.#process, asked, slots, waitMs, receipts }),
      headers: { 'content-type': MIME_CBOR },
      ...options,
    });
  }

  /** Sees to the next renewal, which a poll that comes before puts off. */
  #renewSoon() {
    if (this.#underWay.size === 0) return;
    this.#renewal ??= setTimeout(() => {
      this.#renewal = undefined;
      void this.#renew();
    }, RENEW_MS).unref();
  }

  #start(app, { path, headers }, body) {
    const receipt = headers?.['Ce-Vqsreceipthandle'];
    if (typeof path !== 'string' || !receipt) {
      return report('the server sent a frame that is not a delivery (unknown_frame): update @stepwell/world');
    }
    const work = this.#deliver(app, path, headers, body)
      .catch((err) => report(`cannot tell the server that a delivery failed: ${err.message}`))
      .finally(() => this.#underWay.delete(receipt));
    this.#underWay.set(receipt, work);
    this.#renewSoon();
  }

  /** Hands a delivery to the app, whose handler reports the outcome. If it did not get it, that is reported here. */
  async #deliver(app, path, headers, body) {
    const { problem, unreached } = await post(app, this.#agent, path, { ...headers, [PULLED]: PULL_TOKEN }, body).then(
      ({ status, text }) => (status < 300 ? {} : { problem: `its own server answered ${status}: ${text}` }),
      (err) => ({
        problem: `its own server did not answer: ${err.message || err.code}`,
        unreached: err.code === 'ECONNREFUSED' || undefined,
      }),
    );
    if (problem === undefined) return;
    if (unreached) this.#app = undefined; // look for it before the next poll
    const attempt = Number(headers['Ce-Vqsdeliverycount']) || 1;
    const end = {
      retryAfter: backoff(undefined, attempt), reason: problem.slice(0, 300), unreached,
      topic: headers['Ce-Vqsqueuename'], receipt: headers['Ce-Vqsreceipthandle'],
    };
    await this.#commits.send({ items: [], end });
  }

  /** Reports an error of a poll, and waits. Returns false if there is nothing to wait for. */
  async #goesOn(err, failures) {
    const { asked, deployment } = this.#settings;
    if (err.code === 'pull_unasked' && !asked) {
      report(`no deliveries for deployment ${deployment}: ${err.message}`);
      return false;
    }
    const refused = err.name === 'EntityConflictError' || (err.status >= 400 && err.status < 500 && err.status !== 429);
    const why = err.status === 404 ? this.#http.tooOld(PATH) : err;
    if (failures === 0 || (refused && this.#refusal !== why.message)) {
      report(`cannot fetch deliveries for deployment ${deployment} yet, and keeps trying: ${why.message}`);
    }
    if (refused) this.#refusal = why.message;
    const pauses = refused ? REFUSED_PAUSE_MS : PAUSES_MS[Math.min(failures, PAUSES_MS.length - 1)];
    await Promise.race([unobtrusivePause(pauses), aborted(this.#stopping.signal)]);
    return true;
  }
}

/** Where the servers of this process listen. */
function ownPlaces() {
  const servers = process._getActiveHandles().filter((handle) => handle instanceof Server && handle.listening);
  return servers.filter((server) => !(server instanceof SecureServer)).map((server) => {
    const at = server.address();
    const where = typeof at === 'string' ? { socketPath: at } : { host: hostOf(at), port: at.port };
    return { ...where, base: '', isListening: () => server.listening };
  });
}

function hostOf({ address }) {
  return { '0.0.0.0': '127.0.0.1', '::': 'localhost' }[address] ?? address;
}

function placeAt(app) {
  const { hostname, port, pathname } = new URL(app);
  return { host: hostname.replace(/^\[|\]$/g, ''), port: port || 80, base: pathname.replace(/\/+$/, ''), isListening: () => true };
}

/** The first place to answer the SDK's health check; undefined if none does. */
function firstServing(places) {
  return Promise.any(places.map(servesWorkflows)).catch(() => undefined);
}

/** Resolves if the SDK's health check answers there. It also makes a framework load the route. */
async function servesWorkflows(place) {
  const json = { 'content-type': 'application/json' }; // without a type, Astro takes it for a form of another site
  const { status, text } = await post(place, undefined, `${ROUTE}?__health`, json, '{}', AbortSignal.timeout(LOOK_MS));
  if (status === 200 && text.includes('"healthy":true')) return place;
  throw new Error('no workflows are served there');
}

/** Posts to the app's own server, with node:http because frameworks replace fetch. */
function post({ base, isListening, ...place }, agent, path, headers, body, signal) {
  return new Promise((resolve, reject) => {
    const all = { ...headers, 'content-length': body.length };
    const request = http.request({ ...place, agent, signal, path: base + path, method: 'POST', headers: all }, (answer) => {
      let text = '';
      answer.setEncoding('utf8').on('data', (part) => (text = (text + part).slice(0, 300)));
      answer.on('error', reject).on('end', () => resolve({ status: answer.statusCode, text }));
    });
    request.on('error', reject).end(body);
  });
}

/**
 * How many listeners of a signal only wait for all others to go: those of the package signal-exit, of versions 3 and 4, which
 * end the process by the next signal.
 */
function waitingListeners() {
  const emitters = [process.__signal_exit_emitter__, globalThis[Symbol.for('signal-exit emitter')]];
  return emitters.reduce((count, emitter) => count + (emitter?.count ?? 0), 0);
}

/** Lets what is under way end before a signal ends the process, if nothing else of the app handles the signal. */
function endWithSignals(puller) {
  for (const signal of ['SIGTERM', 'SIGINT']) {
    process.once(signal, async () => {
      const alone = process.listenerCount(signal) === waitingListeners();
      await Promise.race([puller.stop(), pause(GRACE_MS)]);
      if (alone) process.kill(process.pid, signal);
    });
  }
}

function aborted(signal) {
  return new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }));
}

/** A pause that does not keep the process alive. */
function unobtrusivePause(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms).unref());
}

// The World's runs, steps, events and hooks.
import { attributeFilter } from './analytics.js';
import { deliveryOf } from './delivery.js';
import { FENCE_SPEC } from './fence.js';
import { readFrames, readList, frame } from './frames.js';
import { MIME_CBOR, MIME_FRAMES, body, search } from './http.js';
import { SKIP_STEP_INPUTS, eventItem, eventOf, provisional } from './items.js';
import { cursorAt, positionAt, positionOf } from './logs.js';
import { normalizeHook, normalizeRun, normalizeStep } from './normalize.js';

// The server stops reading a log at this length, and the runtime fails the run before (protocol §1.4).
const MAX_EVENTS = 25_000;
/** How long the run of a delivery is taken for current. */
const RUN_FRESH_MS = 5000;

const ENDED = new Set(['completed', 'failed', 'cancelled']);
const ENDS = new Set(['run_completed', 'run_failed']);

// Events whose answer the runtime does not read: it goes on in the same way after a conflict and at the end of the
// run. They are written with the answer of the delivery.
const HELD = new Set(['step_created', 'wait_created', 'step_retrying']);
// On the 4.x line these are the last events of a delivery. The 5.x line goes on with the log that the end of a step
// completes, and tells the app of the end of a run, so it waits for them.
const HELD_ON_4 = new Set([...HELD, 'step_completed', 'step_failed', 'run_completed']); // not run_failed: the process may exit

const STEP_ENDS = new Set(['step_completed', 'step_failed', 'step_retrying']);

// After these events the runtime reads what is new in the log, so the answer brings it.
const FOLLOWED = new Set(['wait_completed', 'step_completed', 'step_failed']);

const HOOK_EVENTS = new Set(['hook_received', 'hook_disposed']);
// A batch with one of these is not repeated: it would find its own events.
const NOT_REPEATED = new Set(['step_started', 'step_retrying']);

const id = encodeURIComponent;
/** Which payloads an answer has; of events, it may also have all but the inputs of steps. */
const refs = (resolveData) => (resolveData === 'none' ? 'lazy' : 'resolve');
const eventRefs = (resolveData) => (resolveData === SKIP_STEP_INPUTS ? resolveData : refs(resolveData));

/** What this process knows of the logs of runs, and how it learns the rest. */
export function createLog({ http, logs }) {
  return {
    length: (runId) => logs.length(runId),
    drop: (runId) => logs.drop(runId),
    hasStarted: (runId, stepId) => logs.hasStarted(runId, stepId),

    /** Takes over the log, or the part of it, that a delivery brings. */
    receive(delivery, { events, after, more }) {
      const { runId } = delivery;
      const known = logs.length(runId) >= after && logs.add(runId, events);
      if (known && !more) delivery.received = after + events.length;
    },

    /** The log as the delivery brought it, from its start. What the delivery did not bring is read. */
    async delivered(delivery, resolveData) {
      const { runId, received } = delivery;
      return received > 0 && logs.length(runId) >= received ? logs.after(runId, 0) : this.read(delivery, 0, resolveData);
    },

    /** Reads the current log after a position. What is known is not read again. */
    async read(delivery, position, resolveData) {
      const { runId } = delivery;
      const events = logs.after(runId, position);
      const length = logs.length(runId);
      let more = length === 0 || length < position || !delivery.isCurrent(length); // it may have been dropped
      while (more) {
        const cursor = cursorAt(position + events.length);
        const query = { cursor, sortOrder: 'asc', remoteRefBehavior: eventRefs(resolveData), returnAll: true };
        const page = await list(http, runId, query);
        events.push(...page.data);
        more = page.hasMore;
        this.absorb(delivery, { events: page.data, hasMore: more });
      }
      return events;
    },

    /**
     * Takes over the part of the log that an answer has. It is the last part unless hasMore is set, or it ends before
     * the answer's own event.
     */
    absorb(delivery, { event, events, hasMore }) {
      const { runId } = delivery;
      const own = event ? positionOf(event.eventId) : 0;
      const current = events !== undefined && logs.add(runId, events) && !hasMore && logs.length(runId) >= own;
      delivery.noteLog(current ? logs.length(runId) : undefined);
    },
  };
}

async function list(http, runId, query, route = '/v4') {
  const path = `${route}/runs/${id(runId)}/events${search(query)}`;
  return readPage(await http.request('GET', path, { repeatable: true, accept: MIME_FRAMES }));
}

function readPage(answer) {
  const { frames, end } = readList(answer.body);
  const { next, hasMore = next !== undefined, snapshot } = end;
  return { data: frames.map(eventOf), cursor: next ?? null, hasMore, ...(snapshot && { snapshot }) };
}

export function createStorage({ http, commits, log, errors, specVersion }) {
  // From version 9, the runtime takes in an event only when it has its position, and an orchestrator needs the counters
  // of the run with its log. So no event is held, and no log is known from before.
  const fenced = specVersion >= FENCE_SPEC;
  const route = fenced ? '/v5' : '/v4';
  const held = fenced ? new Set() : specVersion > 3 ? HELD : HELD_ON_4;
  const run = (value, resolveData) => normalizeRun(value, resolveData, specVersion);
  // From version 8, what is known of a log may lack the inputs of steps, so it is for replays alone.
  const isReplay = (resolveData) => (specVersion < 8 ? resolveData !== 'none' : resolveData === SKIP_STEP_INPUTS);

  /** Answers run_started from the delivery. Returns undefined if the server has not started the run. */
  async function started(delivery, params) {
    const { runId, run } = delivery;
    if (!run || run.status === 'pending') return undefined;
    if (ENDED.has(run.status)) throw new errors.RunExpiredError(`run ${runId} has ended: it is ${run.status}`);
    const events = await log.delivered(delivery, params?.resolveData);
    const [first] = events;
    const event = events.find(({ eventType }) => eventType === 'run_started');
    if (!event) return undefined;
    const answer = { event, run: { ...run, input: first.eventData?.input, startedAt: run.startedAt ?? event.createdAt } };
    if (params?.skipPreload || !isReplay(params?.resolveData)) return answer;
    const cursor = cursorAt(events.length);
    return { ...answer, events, cursor, hasMore: false, ...(specVersion > 5 && { maxEvents: MAX_EVENTS }) };
  }

  async function create(runId, data, params) {
    const { eventType, eventData } = data;
    if (!runId || params?.v1Compat) {
      throw new errors.WorkflowWorldError('runs of spec version 1 are not supported: update "workflow"', { status: 400 });
    }
    const delivery = deliveryOf(runId);
    if (ENDS.has(eventType)) log.drop(runId);
    if (delivery && eventType === 'run_started' && !fenced) {
      const answer = await started(delivery, params);
      if (answer) return answer;
    }
    const item = eventItem(data, specVersion < 8 ? params : { ...params, executorSpecVersion: specVersion });
    if (!delivery) {
      const [result] = eventType === 'run_created'
        ? [await commits.start(runId, item)]
        : await commits.send({ runId, items: [item] });
      return withInput(runId, eventType, outcome(data, result));
    }
    if (STEP_ENDS.has(eventType)) await chunksOf(delivery, [eventType]);
    if (held.has(eventType) && !params?.sinceCursor) {
      await delivery.hold(item);
      return provisional(runId, item, eventData);
    }
    return write(delivery, data, item);
  }

  /** Waits for the chunks that a step has written. @throws if one is lost and the step is to complete: it is not whole */
  const chunksOf = (delivery, types) => (types.includes('step_completed') ? delivery.requireChunks() : delivery.storeChunks());

  /** Writes an event in its delivery, with what is held before it. */
  async function write(delivery, data, item) {
    const { meta } = item;
    const added = !fenced && FOLLOWED.has(data.eventType) && !meta.sinceCursor && cursorAt(log.length(delivery.runId));
    if (added) meta.sinceCursor = added;
    const [result] = await delivery.commit([item]);
    const answer = outcome(data, result);
    if (!fenced) log.absorb(delivery, answer);
    return withInput(delivery.runId, data.eventType, added ? reported(answer, meta.maxSlot) : answer);
  }

  /** The answer to the start of a step with its input, which large answers to several starts leave out. */
  async function withInput(runId, eventType, answer) {
    if (fenced || eventType !== 'step_started' || !answer.step || answer.step.input !== undefined) return answer;
    return { ...answer, step: await steps.get(runId, answer.step.stepId) };
  }

  function outcome({ eventType, correlationId, eventData }, result) {
    const { HookForceClaimedError } = errors; // from spec version 8
    if (result.error === 'hook-force-claimed' && HookForceClaimedError) {
      const { runId, hookId } = result.claimedBy;
      throw new HookForceClaimedError(eventData?.token ?? '', runId, hookId);
    }
    if (result.status === 404 && HOOK_EVENTS.has(eventType) && correlationId) {
      throw new errors.HookNotFoundError(correlationId);
    }
    const { status, ...answer } = commits.accept(result);
    if (answer.run) answer.run = run(answer.run);
    if (answer.step) answer.step = normalizeStep(answer.step, undefined, specVersion);
    return answer;
  }

  const events = {
    create,

    async createBatch(runId, batch, params) {
      const delivery = deliveryOf(runId);
      if (delivery) await chunksOf(delivery, batch.map(({ event }) => event.eventType));
      await delivery?.flush();
      const { requestId, resolveData, inBand, expectedSeqInBand, eventCount } = params ?? {};
      const all = { requestId, resolveData, ...(fenced && { inBand, expectedSeqInBand, eventCount }) };
      const items = batch.map(({ event, ...own }) => eventItem(event, { ...own, ...all }));
      const answer = await http.request('POST', `${route}/runs/${id(runId)}/events/batch`, {
        body: items.flatMap(({ meta: { writeKey, ...meta }, payload }) => frame(meta, payload)),
        headers: { 'content-type': 'application/octet-stream' },
        repeatable: !items.some(({ type }) => NOT_REPEATED.has(type)),
      });
      delivery?.noteLog(undefined);
      return body(answer);
    },

    async get(runId, eventId, params) {
      const path = `${route}/runs/${id(runId)}/events/${id(eventId)}${search({ remoteRefBehavior: refs(params?.resolveData) })}`;
      const [first] = readFrames((await http.request('GET', path, { repeatable: true, accept: MIME_FRAMES })).body);
      return eventOf(first);
    },

    async list({ runId, pagination = {}, resolveData }) {
      const { cursor, limit, sortOrder } = pagination;
      const delivery = deliveryOf(runId);
      await delivery?.flush();
      const position = positionAt(cursor);
      if (delivery && !fenced && !limit && sortOrder === 'asc' && isReplay(resolveData) && position >= 0) {
        const data = await log.read(delivery, position, resolveData);
        return { data, cursor: data.length > 0 ? cursorAt(position + data.length) : null, hasMore: false };
      }
      const all = limit ? undefined : specVersion > 5 || undefined;
      return list(http, runId, { cursor, limit, sortOrder, remoteRefBehavior: eventRefs(resolveData), returnAll: all }, route);
    },

    async listByCorrelationId({ correlationId, runId, pagination = {}, resolveData }) {
      const query = { correlationId, runId, ...pagination, remoteRefBehavior: eventRefs(resolveData) };
      const page = readPage(await http.request('GET', `/v4/events${search(query)}`, { repeatable: true, accept: MIME_FRAMES }));
      return runId ? { ...page, data: page.data.filter((event) => event.runId === runId) } : page;
    },
  };

  /** Reads a run. @throws WorkflowRunNotFoundError */
  async function readRun(runId, params, { path = '', ...options } = {}) {
    const query = { remoteRefBehavior: refs(params?.resolveData), waitMs: options.waitMs };
    try {
      const answer = await http.request('GET', `/v2/runs/${id(runId)}${path}${search(query)}`, {
        repeatable: true, accept: MIME_CBOR, ...options,
      });
      return run(body(answer), params?.resolveData);
    } catch (err) {
      throw err.status === 404 ? new errors.WorkflowRunNotFoundError(runId) : err;
    }
  }

  const runs = {
    async get(runId, params) {
      const delivery = deliveryOf(runId);
      if (delivery?.run && params?.resolveData === 'none' && delivery.age < RUN_FRESH_MS) {
        return run(delivery.run, 'none');
      }
      const told = justTold.get(runId);
      if (told && justTold.delete(runId)) return run(told, params?.resolveData);
      await delivery?.flush();
      return readRun(runId, params);
    },

    // The server holds the answer for at most 55 s, which is below the timeout of a request.
    waitForTerminalStatus: (runId, params = {}) =>
      readRun(runId, params, { path: '/status', waitMs: params.timeoutMs ?? 0, signal: params.signal }),

    async getMany(ids, params) {
      const found = new Map(await Promise.all([...new Set(ids)].map(async (runId) => [runId, await getOrNull(runId, params)])));
      return ids.map((runId) => found.get(runId));
    },

    // Several statuses are sent with commas between them. None of them is a filter that no run passes.
    async list({ workflowName, status, attributes, pagination = {}, resolveData } = {}) {
      if (Array.isArray(status) && status.length === 0) return { data: [], cursor: null, hasMore: false };
      const page = await http.get('/v2/runs', {
        workflowName, status, attributes: attributeFilter(attributes), ...pagination, remoteRefBehavior: refs(resolveData),
      });
      return { ...page, data: page.data.map((each) => run(each, resolveData)) };
    },

    async experimentalSetAttributes(runId, changes, { allowReservedAttributes } = {}) {
      const path = `/v2/runs/${id(runId)}/attributes`;
      try {
        const { attributes } = await http.post(path, { changes, ...(allowReservedAttributes && { allowReservedAttributes }) });
        return { attributes };
      } catch (err) {
        throw err.status === 404 ? new errors.WorkflowRunNotFoundError(runId) : err;
      }
    },

    cancelMany: ({ runIds, cancelReason }) => http.post('/v4/runs/cancel', { runIds, cancelReason }, { repeatable: true }),
  };

  async function getOrNull(runId, params) {
    try {
      return await runs.get(runId, params);
    } catch (err) {
      if (err.name === 'WorkflowRunNotFoundError') return null;
      throw err;
    }
  }

  const steps = {
    async get(runId, stepId, { resolveData } = {}) {
      const path = runId ? `/v2/runs/${id(runId)}/steps/${id(stepId)}` : `/v2/steps/${id(stepId)}`;
      return normalizeStep(await http.get(path, { remoteRefBehavior: refs(resolveData) }), resolveData, specVersion);
    },

    async list({ runId, pagination = {}, resolveData }) {
      const page = await http.get(`/v2/runs/${id(runId)}/steps`, { ...pagination, remoteRefBehavior: refs(resolveData) });
      return { ...page, data: page.data.map((step) => normalizeStep(step, resolveData, specVersion)) };
    },
  };

  // On the 4.x line, who has read a hook by its token reads its run next, in the same turn of the event loop.
  const readsRunOfHook = specVersion > 3 ? undefined : true;
  const justTold = new Map();

  function tellOnce(of) {
    justTold.set(of.runId, of);
    setImmediate(() => justTold.delete(of.runId));
  }

  const hooks = {
    get: async (hookId) => normalizeHook(await http.get(`/v2/hooks/${id(hookId)}`)),

    async getByToken(token) {
      try {
        const { run: of, ...hook } = await http.get('/v2/hooks/by-token', { token, withRun: readsRunOfHook });
        if (of) tellOnce(of);
        return normalizeHook(hook);
      } catch (err) {
        throw err.status === 404 ? new errors.HookNotFoundError(token) : err;
      }
    },

    async list({ runId, pagination = {}, resolveData } = {}) {
      const page = await http.get('/v2/hooks', { runId, ...pagination, remoteRefBehavior: refs(resolveData) });
      return { ...page, data: page.data.map(normalizeHook) };
    },
  };

  return { runs, steps, events, hooks };
}

/**
 * The answer without a delta that the runtime has not asked for. What is left are the events that its own event has
 * skipped, if it said what it knows (maxSlot).
 */
function reported({ events = [], cursor, hasMore = false, ...answer }, maxSlot) {
  if (!maxSlot || !answer.event) return answer;
  const own = positionOf(answer.event.eventId);
  const skipped = events.filter((event) => positionOf(event.eventId) > maxSlot && positionOf(event.eventId) < own);
  return skipped.length > 0 ? { ...answer, events: skipped, cursor: null, hasMore } : answer;
}

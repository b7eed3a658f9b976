// What this process knows of the logs of runs.

/** The bytes of payloads that are kept for all runs together. */
const MAX_BYTES = 64 * 1024 * 1024;
const MAX_RUNS = 1000;
// What an event, and each value in its data, costs besides its bytes, roughly.
const EVENT_BYTES = 512;
const VALUE_BYTES = 32;

const PREFIX = 'evnt_';

/** Returns the position of an event in its run's log, from 1. */
export function positionOf(eventId) {
  const position = Number(eventId.slice(PREFIX.length));
  if (!eventId.startsWith(PREFIX) || !Number.isSafeInteger(position) || position < 1) {
    throw new RangeError(`the event ID ${eventId} is not a position`);
  }
  return position;
}

/** Returns the cursor after a position; of the start, none. */
export function cursorAt(position) {
  return position > 0 ? `eid:${PREFIX}${String(position).padStart(26, '0')}` : undefined;
}

/** The position of a cursor that the server or this client made, or -1. */
export function positionAt(cursor) {
  if (!cursor) return 0;
  const position = Number(/^eid:evnt_(\d{26})$/.exec(cursor)?.[1] ?? -1);
  return Number.isSafeInteger(position) ? position : -1;
}

/** A bounded cache of logs from their start. The runs that were not used for longest are dropped first. */
export class Logs {
  #runs = new Map(); // events by position - 1, least recently used run first
  #bytes = 0;
  #maxBytes;
  #maxRuns;

  constructor({ maxBytes = MAX_BYTES, maxRuns = MAX_RUNS } = {}) {
    this.#maxBytes = maxBytes;
    this.#maxRuns = maxRuns;
  }

  get bytes() {
    return this.#bytes;
  }

  /** How many events of the run are known. */
  length(runId) {
    return this.#runs.get(runId)?.events.length ?? 0;
  }

  /**
   * Adds events in their order. What is known already is ignored; so is what comes after a gap. Returns whether all of
   * the events are known now.
   */
  add(runId, events) {
    if (events.length === 0) return true;
    const log = this.#runs.get(runId) ?? { events: [], bytes: 0, started: new Set() };
    this.#runs.delete(runId);
    this.#runs.set(runId, log); // the most recently used is the last
    const before = log.bytes;
    for (const event of events) {
      if (positionOf(event.eventId) !== log.events.length + 1) continue;
      log.events.push(detached(event));
      log.bytes += EVENT_BYTES + sizeOf(event.eventData);
      if (event.eventType === 'step_started') log.started.add(event.correlationId);
    }
    this.#bytes += log.bytes - before;
    const whole = positionOf(events.at(-1).eventId) <= log.events.length;
    this.#shrink(runId);
    return whole;
  }

  /** The events of the run after a position. Callers may change the copies. */
  after(runId, position) {
    return (this.#runs.get(runId)?.events.slice(position) ?? []).map(copy);
  }

  /** An event at a position, or undefined. */
  at(runId, position) {
    return this.#runs.get(runId)?.events[position - 1];
  }

  /** Whether the log has the start of a step, so that a message for it was stored before. */
  hasStarted(runId, stepId) {
    return this.#runs.get(runId)?.started.has(stepId) ?? false;
  }

  drop(runId) {
    this.#bytes -= this.#runs.get(runId)?.bytes ?? 0;
    this.#runs.delete(runId);
  }

  #shrink(used) {
    for (const runId of this.#runs.keys()) {
      if (this.#bytes <= this.#maxBytes && this.#runs.size <= this.#maxRuns) return;
      if (runId !== used) this.drop(runId);
    }
  }
}

function copy(event) {
  return event.eventData ? { ...event, eventData: { ...event.eventData } } : { ...event };
}

/** The event without references into the message that brought it, which would keep all of that in memory. */
function detached(event) {
  const { eventData } = event;
  if (!eventData) return event;
  const own = Object.entries(eventData).map(([name, value]) => [name, value instanceof Uint8Array ? new Uint8Array(value) : value]);
  return { ...event, eventData: Object.fromEntries(own) };
}

/** The memory of a value, roughly. */
function sizeOf(value) {
  if (typeof value === 'string') return VALUE_BYTES + value.length;
  if (value instanceof Uint8Array) return VALUE_BYTES + value.length;
  if (value === null || typeof value !== 'object') return VALUE_BYTES;
  let size = VALUE_BYTES;
  for (const [name, each] of Object.entries(value)) size += name.length + sizeOf(each);
  return size;
}

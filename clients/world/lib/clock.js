// The server's time. It is that of the events, from which the SDK takes the time in a workflow.
import { randomBytes } from 'node:crypto';

/** Up to this difference, the clock of this process is right: the answers tell their time in whole seconds. */
const TOLERATED_MS = 2000;

/** The time of the server, as its answers tell it. */
export class Clock {
  #ahead = 0;
  /** Whether an answer has told the time. */
  known = false;

  /** Notes the header Date of an answer that has just come. */
  note(date, now = Date.now()) {
    const told = Date.parse(date) + 500;
    if (Number.isNaN(told)) return;
    this.known = true;
    this.#ahead = Math.abs(told - now) > TOLERATED_MS ? told - now : 0;
  }

  now() {
    return Date.now() + this.#ahead;
  }
}

/** One for all Worlds of a process, of which each may have a copy of this module. */
export const clock = (globalThis[Symbol.for('@stepwell/world//clock/1')] ??= new Clock());

const RANDOM_BITS = 80n;
const DIGITS = '0123456789ABCDEFGHJKMNPQRSTVWXYZ';

let last = { at: 0, random: 0n };

/** A ULID of a time in milliseconds, greater than those before it in this process. */
export function ulid(at) {
  const random = BigInt(`0x${randomBytes(10).toString('hex')}`);
  last = at > last.at ? { at, random } : { at: last.at, random: BigInt.asUintN(80, last.random + 1n) };
  const digits = ((BigInt(last.at) << RANDOM_BITS) | last.random).toString(32).padStart(26, '0');
  return digits.replace(/./g, (digit) => DIGITS[Number.parseInt(digit, 32)]);
}

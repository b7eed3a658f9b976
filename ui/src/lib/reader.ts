// When something that is shown is read again: one reading at a time, later and later while it fails, and none while the page
// is hidden or nobody is signed in.
import { asksForKey, isTemporary, Problem } from "./problem";

// Surroundings are what a reader sees of the page.
export interface Surroundings {
  hidden: () => boolean;
  signedOut: () => boolean;
  // Acts after some milliseconds, unless the function that it returns is called before.
  after: (ms: number, act: () => void) => () => void;
  // How many milliseconds the answers to a reading may lack, that was given the signal; 0 if they lack nothing.
  late: (signal: AbortSignal) => number;
  // A number from 0 to 1.
  random: () => number;
}

// Listener gets what becomes of readings.
export interface Listener<T> {
  reading: (on: boolean) => void;
  read: (data: T) => void;
  // What it returns is awaited before the next reading is planned: the reader may be signed out afterwards.
  failed: (problem: Problem) => Promise<void>;
}

const slowest = 30_000;
// How long a reader waits after a change: pages do not ask all at once, and servers share answers for a second.
const [soonest, spread] = [1000, 2000];

type Stale = "no" | "planned" | "hidden";

const nothing = () => {};

export class Reader<T> {
  private control = new AbortController();
  private begun = false;
  private busy = false;
  private again = false; // what is read from now on was asked for
  private failures = 0;
  private problem = false;
  private stale: Stale = "no"; // something has changed: a reading is planned, or waits until the page is shown
  private repeats = false; // the reading is for what the last one may have lacked, and nothing has changed since
  private cancelNext = nothing;
  private cancelStale = nothing;

  // A reader reads every so many milliseconds; 0 for only when it is asked to.
  constructor(
    private load: (signal: AbortSignal) => Promise<T>, private every: number, private page: Surroundings, private listener: Listener<T>,
  ) {}

  // begin reads for the first time. Before, nothing is read.
  begin(): void {
    this.begun = true;
    this.read();
  }

  // read reads now. A reading that has begun ends first, so that quick changes do not keep each other from the screen.
  read(): void {
    if (!this.begun) return;
    this.cancelNext();
    this.cancelStale();
    this.stale = "no";
    this.repeats = false;
    this.again ||= this.busy;
    if (!this.busy && !this.control.signal.aborted) void this.once();
  }

  // changed reads soon, as what was read is no longer true. What weighs more is read later.
  changed(weight = 1): void {
    if (!this.begun) return;
    this.repeats = false;
    this.soon((soonest + spread * this.page.random()) * weight);
  }

  // soon reads in some milliseconds, or when the page is shown, unless a reading is planned.
  private soon(ms: number): void {
    if (this.stale !== "no") return;
    this.stale = this.page.hidden() ? "hidden" : "planned";
    if (this.stale !== "planned") return;
    this.cancelStale = this.page.after(ms, () => {
      const repeats = this.repeats;
      this.read();
      this.repeats = repeats;
    });
  }

  // complete reads once more what was late: no live connection tells what happened before it was read.
  private complete(): void {
    const late = this.page.late(this.control.signal);
    if (late === 0 || this.repeats || this.stale !== "no") return;
    this.repeats = true;
    this.soon(late + soonest);
  }

  // pace changes how often it reads. A failed reading is repeated when it is due.
  pace(every: number): void {
    this.every = every;
    if (!this.problem) this.later(every);
  }

  // visibilityChanged is called when the page is hidden or shown.
  visibilityChanged(): void {
    this.cancelNext();
    if (this.page.hidden()) {
      this.cancelStale();
      if (this.stale === "planned") this.stale = "hidden";
    } else if (this.stale !== "no" || this.problem) {
      this.read();
    } else {
      this.later(this.every);
    }
  }

  // stop ends it. A reading that has begun has no effect.
  stop(): void {
    this.control.abort();
    this.cancelNext();
    this.cancelStale();
  }

  private async once(): Promise<void> {
    this.busy = true;
    this.listener.reading(true);
    const pause = await this.attempt() || this.every;
    this.busy = false;
    if (this.control.signal.aborted) return;
    this.listener.reading(false);
    if (!this.again) return this.later(pause);
    this.again = false;
    this.read();
  }

  // attempt reads, and returns after how many milliseconds it must be repeated; 0 for when it is due.
  private async attempt(): Promise<number> {
    try {
      const data = await this.load(this.control.signal);
      if (this.control.signal.aborted) return 0;
      this.problem = false;
      this.failures = 0;
      this.listener.read(data);
      this.complete();
      return 0;
    } catch (err) {
      return this.control.signal.aborted ? 0 : this.fail(err instanceof Problem ? err : new Problem(-1, "page", String(err)));
    }
  }

  private async fail(problem: Problem): Promise<number> {
    this.problem = true;
    await this.listener.failed(problem);
    if (isTemporary(problem)) return Math.max(problem.retryAfter * 1000, Math.min(slowest, 1000 * 2 ** this.failures++));
    return asksForKey(problem) && !this.page.signedOut() ? 1000 : 0;
  }

  private later(pause: number): void {
    this.cancelNext();
    if (pause > 0 && !this.page.hidden() && !this.page.signedOut()) this.cancelNext = this.page.after(pause, () => this.read());
  }
}

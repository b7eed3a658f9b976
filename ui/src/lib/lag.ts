// How far answers from a read replica are behind.

// worth is from how many seconds it is said, and remembered for how many milliseconds after the answer.
const worth = 5;
const remembered = 20_000;

export class Lag {
  private seconds = 0;
  private at = -Infinity;

  // observe takes what an answer that came at a time says of itself; null for one of the primary, which says nothing of the
  // replica. The last answer counts.
  observe(header: string | null, now: number): void {
    const seconds = Number.parseFloat(header ?? "");
    if (Number.isNaN(seconds)) return;
    this.seconds = seconds;
    this.at = now;
  }

  // shown returns how many seconds the lists of the page may be behind, if that is worth a word; else 0.
  shown(now: number): number {
    return this.seconds > worth && now - this.at < remembered ? Math.ceil(this.seconds) : 0;
  }
}

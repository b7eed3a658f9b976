// The time as the server has it, by what its answers say and a clock that never jumps.

export class ServerTime {
  private ahead: number | null = null; // of the server's clock to the own one

  // observe takes the time of an answer that has come at a time of the own clock. What an answer says can only be too old: it
  // was late, and has whole seconds. So the largest difference is the best one.
  observe(server: number, own: number): void {
    if (!Number.isNaN(server)) this.ahead = Math.max(this.ahead ?? -Infinity, server - own);
  }

  // at returns the server's time at a time of the own clock; null before the first answer.
  at(own: number): number | null {
    return this.ahead === null ? null : own + this.ahead;
  }
}

// What the server has answered last, for when it is away.

export interface Answer {
  body: unknown;
  // When it was read, in milliseconds.
  at: number;
}

// Answers keeps the last answer to each of so many reads: those that were done longest ago make room.
export class Answers {
  private kept = new Map<string, Answer>();

  constructor(readonly most: number) {}

  keep(read: string, body: unknown, at: number): void {
    this.kept.delete(read); // the last one is the newest
    this.kept.set(read, { body, at });
    for (const oldest of this.kept.keys()) {
      if (this.kept.size <= this.most) break;
      this.kept.delete(oldest);
    }
  }

  get(read: string): Answer | undefined {
    return this.kept.get(read);
  }

  clear(): void {
    this.kept.clear();
  }
}

// The parts of a stream of server-sent events.

export interface Sent {
  kind: string;
  id: string;
  data: string;
}

// Frames collects the events in the pieces of a stream. A piece may end anywhere.
export class Frames {
  private rest = "";

  // push returns the events that the piece completes. A comment, or an ID alone, has no data.
  push(text: string): Sent[] {
    const parts = (this.rest + text).split("\n\n");
    this.rest = parts.pop()!;
    return parts.map((part) => {
      const sent: Sent = { kind: "", id: "", data: "" };
      for (const line of part.split("\n")) {
        const [, name, value = ""] = /^(\w+): ?(.*)$/.exec(line) ?? [];
        if (name === "event") sent.kind = value;
        if (name === "id") sent.id = value;
        if (name === "data") sent.data += value;
      }
      return sent;
    });
  }
}

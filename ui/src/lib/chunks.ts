// The bytes of a stream, from its chunks.
import type { Chunk } from "../api.gen";

// bytesOf returns the bytes of a chunk: of its text, or of what stands for its value. A value that is no text is a line of JSON.
export function bytesOf(c: Chunk, begun = false): Uint8Array {
  const line = (text: string) => `${begun ? "\n" : ""}${text}\n`;
  if (c.encoding === "encrypted") return encode(line("(encrypted)"));
  if (c.value !== undefined) return encode(typeof c.value === "string" ? c.value : line(JSON.stringify(c.value)));
  if (c.text !== undefined) return encode(c.text);
  return Uint8Array.from(atob(c.base64 ?? ""), (char) => char.charCodeAt(0));
}

function encode(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}

const newLine = 10;

// Tail keeps the end of a stream, at most so many bytes.
export class Tail {
  private parts: Uint8Array[] = [];
  size = 0;
  left = 0; // how many bytes were left out at the beginning
  encrypted = 0; // how many chunks only the app can read
  private begun = false; // a line has begun
  constructor(private limit: number) {}

  add(chunks: Chunk[]): void {
    for (const c of chunks) {
      const part = bytesOf(c, this.begun);
      if (part.length > 0) this.begun = part.at(-1) !== newLine;
      if (c.encoding === "encrypted") this.encrypted++;
      this.parts.push(part);
      this.size += part.length;
    }
    while (this.size > this.limit) {
      const first = this.parts[0]!;
      let cut = Math.min(first.length, this.size - this.limit);
      for (let i = 0; i < 3 && cut < first.length && (first[cut]! & 0xc0) === 0x80; i++) cut++; // not within a character
      if (cut === first.length) this.parts.shift();
      else this.parts[0] = first.subarray(cut);
      this.size -= cut;
      this.left += cut;
    }
  }

  // bytes returns what is kept as one array. A character may be spread over chunks, so texts are decoded from it.
  bytes(): Uint8Array {
    const all = new Uint8Array(this.size);
    let at = 0;
    for (const p of this.parts) {
      all.set(p, at);
      at += p.length;
    }
    this.parts = [all];
    return all;
  }
}

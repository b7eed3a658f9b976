// The bytes of a stream, from its chunks.
import type { Chunk } from "../api.gen";

// bytesOf returns the bytes of a chunk.
export function bytesOf(c: Chunk): Uint8Array {
  if (c.text !== undefined) return new TextEncoder().encode(c.text);
  return Uint8Array.from(atob(c.base64 ?? ""), (char) => char.charCodeAt(0));
}

// Tail keeps the end of a stream, at most so many bytes.
export class Tail {
  private parts: Uint8Array[] = [];
  size = 0;
  left = 0; // how many bytes were left out at the beginning
  constructor(private limit: number) {}

  add(chunks: Chunk[]): void {
    for (const c of chunks) {
      const part = bytesOf(c);
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

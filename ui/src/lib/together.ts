// Reads that are asked for at the same moment travel in one request: browsers send few at a time, and each costs a way to
// the server and back.

// Line is the answer of one read, as the server sends it.
export interface Line {
  // The place of the read in the request.
  n: number;
  status: number;
  retryAfter?: string;
  replicaLag?: string;
  body: unknown;
}

// What the server takes, and what fits into an address everywhere.
const mostReads = 16;
const longestQuery = 4000;

// groupsOf divides reads into those that are one request each.
export function groupsOf<T extends { path: string }>(reads: T[]): T[][] {
  const groups: T[][] = [];
  let length = Infinity;
  for (const read of reads) {
    const added = queryOfReads([read.path]).length + 1;
    const last = groups.at(-1);
    if (!last || last.length === mostReads || length + added > longestQuery) {
      groups.push([read]);
      length = added;
    } else {
      last.push(read);
      length += added;
    }
  }
  return groups;
}

// queryOfReads returns the query of a request that consists of reads. What has no meaning there stays legible.
export function queryOfReads(paths: string[]): string {
  return paths.map((p) => `read=${encodeURIComponent(p).replace(/%(?:2F|3F|3D|3A|2C)/g, decodeURIComponent)}`).join("&");
}

// Lines collects the answers in the pieces of a text. A piece may end anywhere.
export class Lines {
  private rest = "";

  // push returns the answers that the piece completes.
  push(text: string): Line[] {
    const lines = (this.rest + text).split("\n");
    this.rest = lines.pop()!;
    return lines.map((line) => JSON.parse(line) as Line);
  }
}

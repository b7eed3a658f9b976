// How many approvals wait for the reader, for the navigation.
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { call } from "./api";
import { project } from "./location";
import { useResource } from "./resource";
import { may } from "./session";
import { me } from "./voter";

const readEvery = 60_000;
const most = 50; // how many are looked at

// waiting is the number; empty for none. It ends with a plus if there are more than are looked at.
export const waiting = signal("");

const votes = signal(0);

// countApprovals counts anew, after a vote.
export function countApprovals(): void {
  votes.value++;
}

// useApprovals keeps the number current: of what waits for the voter, or of all that is open while nobody has given a name.
export function useApprovals(): void {
  const reads = may("read") || may("invoke");
  const names = me.value;
  const read = useResource(async (signal) => {
    if (!reads) return "";
    const page = await call(project.value, "GET /v1/approvals", { query: { limit: most, for: names.length > 0 ? names : undefined }, signal });
    return page.data.length > 0 || page.cursor ? `${page.data.length}${page.cursor ? "+" : ""}` : "";
  }, [project.value, reads, names.join("\n")], { on: reads ? ["runs"] : [], every: reads ? readEvery : 0, version: votes.value });
  useEffect(() => read.data.subscribe((d) => (waiting.value = d ?? "")), []);
}

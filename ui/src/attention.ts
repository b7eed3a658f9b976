// What needs attention in the project: read by the frame, shown by the navigation and the overview.
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { Api } from "./api.gen";
import { call } from "./api";
import { project } from "./location";
import { useLive } from "./live";
import { useResource } from "./resource";
import { role } from "./session";

// attention is null until it is read, and for roles that may not read it.
export const attention = signal<Api["GET /v1/attention"]["answer"] | null>(null);

// useAttention keeps attention current. Its connection brings the whole page its topics.
export function useAttention(): void {
  const follows = role.value !== "" && role.value !== "worker";
  const reads = follows && role.value !== "invoke";
  const read = useResource(async (signal) => reads ? call(project.value, "GET /v1/attention", { signal }) : null, [project.value, reads], { on: ["attention"] });
  useLive(follows ? "topics" : "", () => ({ topics: true }), () => {});
  useEffect(() => read.data.subscribe((d) => (attention.value = d)), []);
}

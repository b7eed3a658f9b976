// What people call workflows, steps, hooks and waits. Runs of the Workflow SDK have long names and made-up IDs.
import type { Event, TimelinePart } from "../api.gen";
import { formatDuration } from "./duration";

// titleOf returns what the author of a workflow or step calls it: of a name of the Workflow SDK, such as
// step//./workflows/order//chargeCard, the function, or the end of its module if the function is the default one. The server
// has the same rule for its sentences; entities/testdata/titles.json tests both.
export function titleOf(name: string): string {
  const builtin = /^__builtin_(.+)$/.exec(name)?.[1];
  if (builtin) return builtin;
  const [, module = "", title] = /^(?:workflow|step|class)\/\/(.+?)\/\/(.+)$/.exec(name) ?? [];
  if (title === undefined) return name;
  if (title !== "default" && title !== "__default") return title;
  return module.slice(module.lastIndexOf("/") + 1).split("@")[0]!;
}

// isSdkId reports whether the Workflow SDK made the ID of a step, hook or wait, which then says nothing to its author.
export function isSdkId(id: string): boolean {
  return /^(?:step|hook|wait)_[0-9A-HJKMNP-TV-Z]{26}$/.test(id);
}

// titleOfId returns an ID as it is shown where nothing better is known: the kind and the end of one that was made up.
export function titleOfId(id: string): string {
  return isSdkId(id) ? `${id.slice(0, 4)} …${id.slice(-6)}` : id;
}

// titleOfHook returns what to call a hook: by its token if its ID was made up, apart from that of a webhook, which was made up too.
export function titleOfHook(h: { id: string; token?: string; webhook?: boolean }): string {
  if (!isSdkId(h.id)) return h.id;
  return h.webhook ? "webhook" : h.token || titleOfId(h.id);
}

// titleOfWait returns what to call a wait: how long it is if its ID was made up.
export function titleOfWait(w: { id: string; createdAt: string; resumeAt?: string }): string {
  if (!isSdkId(w.id) || !w.resumeAt) return titleOfId(w.id);
  const ms = Date.parse(w.resumeAt) - Date.parse(w.createdAt);
  return `sleep ${formatDuration(ms < 1000 ? Math.max(0, ms) : Math.round(ms / 1000) * 1000).replace(".0 ", " ")}`;
}

// titleOfPart returns what to call a part of a run.
export function titleOfPart(p: TimelinePart): string {
  if (p.kind === "wait") return titleOfWait(p);
  return p.name === undefined ? titleOfId(p.id) : titleOf(p.name);
}

const mostTitles = 10_000;

// Titles are what to call the parts of a run, as far as the events that were read tell.
export class Titles {
  private titles = new Map<string, string>();

  learn(events: Event[]): void {
    for (const e of events) {
      const title = titleIn(e);
      if (!title || !e.correlationId) continue;
      this.titles.set(e.correlationId, title);
      for (const oldest of this.titles.keys()) {
        if (this.titles.size <= mostTitles) break;
        this.titles.delete(oldest);
      }
    }
  }

  of(id: string): string {
    return this.titles.get(id) ?? titleOfId(id);
  }
}

// titleIn returns what an event says that a part is called whose ID was made up.
function titleIn(e: Event): string | undefined {
  const id = e.correlationId ?? "";
  const d = e.data as { stepName?: string; token?: string; isWebhook?: boolean; resumeAt?: string };
  if (!isSdkId(id)) return undefined;
  if (e.type === "hook_created") return titleOfHook({ id, token: d.token, webhook: d.isWebhook });
  if (e.type === "wait_created") return titleOfWait({ id, createdAt: e.createdAt, resumeAt: d.resumeAt });
  return d.stepName && titleOf(d.stepName);
}

// titleOfStream returns what to call a stream: by its namespace if the Workflow SDK made its name, which is default for none.
export function titleOfStream(name: string): string {
  const [all, namespace = ""] = /^strm_[0-9A-HJKMNP-TV-Z]{26}_user(?:_([\w-]+))?$/.exec(name) ?? [];
  if (all === undefined) return name;
  try {
    const bytes = Uint8Array.from(atob(namespace.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes) || "default";
  } catch {
    return name; // not what the SDK writes
  }
}

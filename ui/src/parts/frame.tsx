// What is around every page: the project, the navigation, and what a reader chooses.
import type { ComponentChildren } from "preact";
import { base } from "../api";
import { pathOf } from "../lib/path";
import { connection, paused, togglePause, withheld } from "../live";
import { go, href, page, project, search } from "../location";
import { freshness, staleSince } from "../resource";
import { leave, lost, role, session } from "../session";
import { browserZone, theme, zone, type Theme } from "../settings";
import { helpOpen, useKeys } from "../shortcuts";
import { Logo } from "./icon";
import { Age } from "./time";
import { Help } from "./help";

// places are the pages of the navigation. A place with roles is for these alone.
export const places: Array<{ segment: string; name: string; key: string; roles?: string[] }> = [
  { segment: "overview", name: "Overview", key: "g o" },
  { segment: "runs", name: "Runs", key: "g r" },
  { segment: "workflows", name: "Workflows", key: "g w" },
  { segment: "failures", name: "Failures", key: "g f" },
  { segment: "waiting", name: "Waiting", key: "g h" },
  { segment: "queue", name: "Queue", key: "g q" },
  { segment: "deployments", name: "Deployments", key: "g d" },
  { segment: "servers", name: "Servers", key: "g s", roles: ["admin"] },
  { segment: "access", name: "Access", key: "g a", roles: ["admin"] },
];

// views are lists of runs that one looks for often.
const views = [
  { name: "Running", q: "status:running" },
  { name: "Failed today", q: "status:failed created:24h" },
  { name: "Not started", q: "status:pending" },
];

const liveTexts = { off: "", connecting: "connecting", live: "live", reconnecting: "reconnecting", polling: "polling" };
const liveTitles = {
  off: "", connecting: "", live: "The server tells what changes.", reconnecting: "The connection broke. The page reads again every few seconds.",
  polling: "The server has no live connection for this page, or something in between holds back what it sends. The page reads again every few seconds.",
};

export function Frame({ children }: { children: ComponentChildren }) {
  useKeys({
    "?": () => (helpOpen.value = true),
    "/": () => document.getElementById("filter")?.focus(),
    ...Object.fromEntries(places.map((p) => [p.key, () => go(href([p.segment]))])),
  });
  return (
    <div class="frame">
      <a class="skip" href="#content">Skip to the page</a>
      <TopBar />
      <nav class="side" aria-label="Pages">
        {places.filter((p) => p.roles?.includes(role.value) ?? true).map((p) => <a href={href([p.segment])} aria-current={isHere(p.segment, "") ? "page" : undefined}>{p.name}</a>)}
        <h2>Views</h2>
        {views.map((v) => <a href={href(["runs"], { q: v.q })} aria-current={isHere("runs", v.q) ? "page" : undefined}>{v.name}</a>)}
      </nav>
      <div id="content">{children}</div>
      {helpOpen.value && <Help />}
    </div>
  );
}

function isHere(segment: string, q: string): boolean {
  const at = page.value.segments;
  return at[0] === segment && (at.length > 1 ? q === "" : (search.value.get("q") ?? "") === q);
}

function TopBar() {
  return (
    <header class="top">
      <a class="brand" href={href(["runs"])}><Logo /><span>Stepwell</span></a>
      <label class="project"><span class="hidden">Project</span>
        <select value={project.value} onChange={(e) => go(pathOf(base, e.currentTarget.value, "runs"))}>
          {session.value?.projects.map((p) => <option value={p.project}>{p.project}</option>)}
        </select>
      </label>
      <span class="role quiet">{role.value}</span>
      <span class="space" />
      <Live />
      <select aria-label="Time zone" value={zone.value} onChange={(e) => (zone.value = e.currentTarget.value)}>
        {[...new Set(["UTC", browserZone, zone.value])].map((z) => <option value={z}>{z}</option>)}
      </select>
      <select aria-label="Theme" value={theme.value} onChange={(e) => (theme.value = e.currentTarget.value as Theme)}>
        <option value="system">System theme</option><option value="light">Light theme</option><option value="dark">Dark theme</option>
      </select>
      <button type="button" class="icon" aria-label="Shortcuts" title="Shortcuts (?)" onClick={() => (helpOpen.value = true)}>?</button>
      {session.value && session.value.projects.some((p) => p.key !== undefined || !session.value!.open) &&
        <button type="button" onClick={leave}>Sign out</button>}
    </header>
  );
}

// Live tells how current the page is. A page that is kept by the live connection can be paused.
function Live() {
  useKeys({ p: () => connection.value !== "off" && togglePause() });
  if (lost.value) return null;
  if (connection.value !== "off" && (paused.value || freshness.value !== "stale")) {
    const n = withheld.value.size;
    const text = paused.value ? `paused${n > 0 ? `, ${n} ${n === 1 ? "run has" : "runs have"} changed` : ""}` : liveTexts[connection.value];
    return <button type="button" class={`live ${paused.value ? "paused" : connection.value}`} aria-pressed={paused.value}
      title={paused.value ? "Go on (p)" : `${liveTitles[connection.value]} Pause (p)`} onClick={togglePause}><i aria-hidden="true" />{text}</button>;
  }
  if (freshness.value === "live") return <span class="live"><i aria-hidden="true" />up to date</span>;
  return <span class="live stale" role="status"><i aria-hidden="true" />no answer since <Age at={new Date(staleSince.value || Date.now()).toISOString()} /></span>;
}

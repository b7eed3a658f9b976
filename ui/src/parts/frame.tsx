// What is around every page: the project, the navigation, and what a reader chooses.
import type { ComponentChildren } from "preact";
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { attention, useAttention } from "../attention";
import { numbers } from "../lib/attention";
import { connection, mostWithheld, paused, togglePause, withheld } from "../live";
import { quote } from "../lib/shell";
import { go, href, page, project, search } from "../location";
import { freshness, staleSince } from "../resource";
import { leave, lost, operated, operator, role, session } from "../session";
import { browserZone, theme, zone, type Theme } from "../settings";
import { helpOpen, paletteOpen, useKeys } from "../shortcuts";
import { Copy } from "./copy";
import { Help } from "./help";
import { Logo } from "./icon";
import { lazyPart } from "./lazy";
import { Switch } from "./switch";
import { Age, Clock } from "./time";

// places are the pages of the navigation. A place with roles is for these alone.
export const places: Array<{ segment: string; name: string; key: string; roles?: string[] }> = [
  { segment: "overview", name: "Overview", key: "g o" },
  { segment: "runs", name: "Runs", key: "g r" },
  { segment: "workflows", name: "Workflows", key: "g w" },
  { segment: "flows", name: "Flows", key: "g n" },
  { segment: "failures", name: "Failures", key: "g f" },
  { segment: "waiting", name: "Waiting", key: "g h" },
  { segment: "queue", name: "Queue", key: "g q" },
  { segment: "schedules", name: "Schedules", key: "g c" },
  { segment: "triggers", name: "Triggers", key: "g t" },
  { segment: "collections", name: "Collections", key: "g b" },
  { segment: "limits", name: "Limits", key: "g l" },
  { segment: "deployments", name: "Deployments", key: "g d" },
  { segment: "servers", name: "Servers", key: "g s", roles: ["admin"] },
  { segment: "access", name: "Access", key: "g a", roles: ["admin"] },
];

const Palette = lazyPart("the search", async () => (await import("../pages/tools")).Palette);

// lists are the lists of runs that the navigation offers.
export const lists = [
  { name: "Running", filter: "status:running" },
  { name: "Failed today", filter: "status:failed created:24h" },
  { name: "Not started", filter: "status:pending" },
];

const liveTexts = { off: "", connecting: "connecting", live: "live", reconnecting: "reconnecting", polling: "polling" };
const liveTitles = {
  off: "", connecting: "", live: "The server tells what changes.", reconnecting: "The connection broke. The page reads again every few seconds.",
  polling: "The server has no live connection for this page, or something in between holds back what it sends. The page reads again every few seconds.",
};

export function Frame({ children }: { children: ComponentChildren }) {
  useAttention();
  const wants = numbers(attention.value?.data ?? []);
  useKeys({
    "?": () => (helpOpen.value = true),
    "/": () => {
      const filter = document.getElementById("filter");
      if (filter) filter.focus();
      else paletteOpen.value = true;
    },
    ...Object.fromEntries(places.map((p) => [p.key, () => go(href([p.segment]))])),
  });
  return (
    <div class="frame">
      <a class="skip" href="#content">Skip to the page</a>
      <TopBar />
      <Side wants={wants} />
      <div id="content" tabIndex={-1}><Paused />{children}</div>
      {helpOpen.value && <Help />}
      {paletteOpen.value && <Palette />}
    </div>
  );
}

// bar are the pages that narrow screens show at once, beside More. The page that is open takes the place of the last one.
const bar = ["overview", "runs", "waiting", "failures"];

function Side({ wants }: { wants: Record<string, string> }) {
  const open = useSignal(false); // on narrow screens
  useEffect(() => {
    open.value = false;
  }, [page.value, search.value]);
  const shown = places.filter((p) => p.roles?.includes(role.value) ?? true);
  const here = page.value.segments[0] ?? "";
  const inBar = bar.includes(here) || !shown.some((p) => p.segment === here) ? bar : [...bar.slice(0, -1), here];
  return (
    <nav class={open.value ? "side open" : "side"} aria-label="Pages" onKeyDown={(e) => e.key === "Escape" && (open.value = false)}>
      {shown.map((p) => <a class={inBar.includes(p.segment) ? "" : "rest"} href={href([p.segment])} aria-current={isHere(p.segment, "") ? "page" : undefined}
        data-count={wants[p.segment]} title={wants[p.segment] && `${wants[p.segment]} need attention`}>{p.name}</a>)}
      <h2>Runs</h2>
      {lists.map((l) => <a class="rest" href={href(["runs"], { q: l.filter })} title={l.filter} aria-current={isHere("runs", l.filter) ? "page" : undefined}>{l.name}</a>)}
      {open.value && <div class="settings"><Settings /></div>}
      <button type="button" class="more" aria-expanded={open.value} onClick={() => (open.value = !open.value)}>More</button>
    </nav>
  );
}

// Paused says on every page that the project is paused, and who resumes it.
function Paused() {
  const item = attention.value?.data.find((i) => i.kind === "project_paused");
  if (!item) return null;
  const resume = `stepwell projects resume ${quote(project.value)}`;
  return (
    <section class="warning paused-project" aria-label="The project is paused">
      <p><strong>Project {project.value} is paused{item.since && <> since <Clock at={item.since} /></>}.</strong> Nothing of it starts or is called.
        Reading and cancelling work. {!operator.value && `Admins of the project ${operated} can resume it.`}</p>
      {operator.value && <p>Resume it: <code>{resume}</code> <Copy text={resume} what="the command" /></p>}
    </section>
  );
}

// isHere reports whether an entry is that of the page. A filter that no entry has is one of its page.
function isHere(segment: string, q: string): boolean {
  const at = page.value.segments;
  const filter = at.length > 1 ? "" : search.value.get("q") ?? "";
  return at[0] === segment && (filter === q || (q === "" && !lists.some((l) => l.filter === filter)));
}

function TopBar() {
  return (
    <header class="top">
      <a class="brand" href={href(["runs"])} aria-label="Stepwell"><Logo /><span>Stepwell</span></a>
      <Switch />
      <span class="role quiet">{role.value}</span>
      <span class="space" />
      <button type="button" class="search" onClick={() => (paletteOpen.value = true)}>Search <kbd>Ctrl K</kbd></button>
      <Live />
      <div class="settings"><Settings /></div>
    </header>
  );
}

// Settings are what a reader chooses for all pages.
function Settings() {
  const failed = useSignal("");
  return (
    <>
      <select aria-label="Time zone" value={zone.value} onChange={(e) => (zone.value = e.currentTarget.value)}>
        {[...new Set(["UTC", browserZone, zone.value])].map((z) => <option value={z}>{z}</option>)}
      </select>
      <select aria-label="Theme" value={theme.value} onChange={(e) => (theme.value = e.currentTarget.value as Theme)}>
        <option value="system">System theme</option><option value="light">Light theme</option><option value="dark">Dark theme</option>
      </select>
      <button type="button" class="icon" aria-label="Shortcuts" title="Shortcuts (?)" onClick={() => (helpOpen.value = true)}>?</button>
      {session.value && session.value.projects.some((p) => p.key !== undefined || !session.value!.open) &&
        <button type="button" onClick={() => void leave().catch((err: Error) => (failed.value = err.message))}>Sign out</button>}
      {failed.value && <span class="problem" role="alert">You are still signed in: {failed.value}</span>}
    </>
  );
}

// Live tells how current the page is. A page that is kept by the live connection can be paused.
function Live() {
  useKeys({ p: () => connection.value !== "off" && togglePause() });
  if (lost.value) return null;
  if (connection.value !== "off" && (paused.value || freshness.value !== "stale")) {
    const n = withheld.value.size;
    const changed = `, ${n < mostWithheld ? n : `${mostWithheld.toLocaleString("en")}+`} ${n === 1 ? "run has" : "runs have"} changed`;
    const text = paused.value ? `paused${n > 0 ? changed : ""}` : liveTexts[connection.value];
    return <button type="button" class={`live ${paused.value ? "paused" : connection.value}`} aria-pressed={paused.value}
      title={paused.value ? "Go on (p)" : `${liveTitles[connection.value]} Pause (p)`} onClick={togglePause}><i aria-hidden="true" />{text}</button>;
  }
  if (freshness.value === "live") return <span class="live"><i aria-hidden="true" />up to date</span>;
  return <span class="live stale" role="status"><i aria-hidden="true" />no answer since <Age at={new Date(staleSince.value || Date.now()).toISOString()} /></span>;
}

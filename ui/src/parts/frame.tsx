// What is around every page: the project, the navigation, and what a reader chooses.
import type { ComponentChildren } from "preact";
import { useSignal } from "@preact/signals";
import { useLayoutEffect } from "preact/hooks";
import { useApprovals, waiting } from "../approvals";
import { attention, useAttention } from "../attention";
import { lag, tick } from "../clock";
import { numbers } from "../lib/attention";
import { connection, mostWithheld, paused, togglePause, withheld } from "../live";
import { quote } from "../lib/shell";
import { go, href, page, project, search } from "../location";
import { freshness, staleSince } from "../resource";
import { leave, lost, may, operated, operator, role, session, type Permission } from "../session";
import { me } from "../voter";
import { browserZone, theme, zone, type Theme } from "../settings";
import { helpOpen, paletteOpen, useKeys } from "../shortcuts";
import { Copy } from "./copy";
import { Help } from "./help";
import { Logo } from "./icon";
import { lazyPart } from "./lazy";
import { Switch } from "./switch";
import { Age, Clock } from "./time";

// places are the pages of the navigation, each for the roles that have a permission.
export const places: Array<{ segment: string; name: string; key: string; for: Permission }> = [
  { segment: "overview", name: "Overview", key: "g o", for: "any" },
  { segment: "runs", name: "Runs", key: "g r", for: "metadata" },
  { segment: "workflows", name: "Workflows", key: "g w", for: "metadata" },
  { segment: "flows", name: "Flows", key: "g n", for: "metadata" },
  { segment: "failures", name: "Failures", key: "g f", for: "metadata" },
  { segment: "waiting", name: "Waiting", key: "g h", for: "any" },
  { segment: "queue", name: "Queue", key: "g q", for: "metadata" },
  { segment: "schedules", name: "Schedules", key: "g c", for: "metadata" },
  { segment: "triggers", name: "Triggers", key: "g t", for: "metadata" },
  { segment: "collections", name: "Collections", key: "g b", for: "metadata" },
  { segment: "limits", name: "Limits", key: "g l", for: "metadata" },
  { segment: "deployments", name: "Deployments", key: "g d", for: "metadata" },
  { segment: "servers", name: "Servers", key: "g s", for: "admin" },
  { segment: "access", name: "Access", key: "g a", for: "admin" },
];

// placesOf returns the pages that the role may open.
export const placesOf = () => places.filter((p) => may(p.for));

const Palette = lazyPart("the search", async () => (await import("../pages/tools")).Palette);

// lists are the lists of runs that the navigation offers, listsOf those that the role may open.
const lists = [
  { name: "Running", filter: "status:running" },
  { name: "Failed today", filter: "status:failed created:24h" },
  { name: "Not started", filter: "status:pending" },
];

export const listsOf = () => may("metadata") ? lists : [];

const liveTexts = { off: "", connecting: "connecting", live: "live", reconnecting: "reconnecting", polling: "polling" };
const liveTitles = {
  off: "", connecting: "", live: "The server tells what changes.", reconnecting: "The connection broke. The page reads again every few seconds.",
  polling: "The server has no live connection for this page, or something in between holds back what it sends. The page reads again every few seconds.",
};

export function Frame({ children }: { children: ComponentChildren }) {
  useAttention();
  useApprovals();
  const wants = numbers(attention.value?.data ?? []);
  const mine = placesOf();
  useKeys({
    "?": () => (helpOpen.value = true),
    "/": () => {
      const filter = document.getElementById("filter");
      if (filter) filter.focus();
      else paletteOpen.value = true;
    },
    ...Object.fromEntries(mine.map((p) => [p.key, () => go(href([p.segment]))])),
  });
  return (
    <div class="frame">
      <a class="skip" href="#content">Skip to the page</a>
      <TopBar />
      <Side wants={wants} />
      <div id="content" tabIndex={-1}><Paused /><Behind />{children}</div>
      {helpOpen.value && <Help />}
      {paletteOpen.value && <Palette />}
    </div>
  );
}

// bar are the pages that narrow screens show at once, beside More. The page that is open takes the place of the last one.
const bar = ["overview", "runs", "waiting", "failures"];

function Side({ wants }: { wants: Record<string, string> }) {
  const open = useSignal(false); // on narrow screens
  useLayoutEffect(() => { // not later, when somebody may have opened it
    open.value = false;
  }, [page.value, search.value]);
  const shown = placesOf();
  const here = page.value.segments[0] ?? "";
  const inBar = bar.includes(here) || !shown.some((p) => p.segment === here) ? bar : [...bar.slice(0, -1), here];
  return (
    <nav class={open.value ? "side open" : "side"} aria-label="Pages" onKeyDown={(e) => e.key === "Escape" && (open.value = false)}>
      {shown.map((p) => <a class={inBar.includes(p.segment) ? "" : "rest"} href={href([p.segment])} aria-current={isHere(p.segment, "") ? "page" : undefined}
        {...counted(p.segment, wants[p.segment])}>{p.name}</a>)}
      {may("metadata") && <h2>Runs</h2>}
      {listsOf().map((l) => <a class="rest" href={href(["runs"], { q: l.filter })} title={l.filter} aria-current={isHere("runs", l.filter) ? "page" : undefined}>{l.name}</a>)}
      {open.value && <div class="settings"><Settings /></div>}
      <button type="button" class="more" aria-expanded={open.value} onClick={() => (open.value = !open.value)}>More</button>
    </nav>
  );
}

// counted returns the number of a page, and what it says.
function counted(segment: string, attention: string | undefined) {
  if (segment !== "waiting") return { "data-count": attention, title: attention && `${attention} need attention` };
  return { "data-count": waiting.value || undefined, title: waiting.value && `${waiting.value} approvals ${me.value.length > 0 ? "wait for you" : "are open"}` };
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

// Behind says that lists lack what happened in the last seconds. It asks anew with every tick of the clock.
function Behind() {
  const seconds = tick.value && lag.shown(performance.now());
  if (!seconds) return null;
  return <p class="behind quiet" role="status">Lists and statistics may be {seconds} s behind: they are read from a replica of the database.</p>;
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
      <a class="brand" href={href([may("metadata") ? "runs" : "overview"])} aria-label="Stepwell"><Logo /><span>Stepwell</span></a>
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

// Why a run is not done, what comes next and what helps; or how it ended.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { Explanation, Reason, Remedy, Run } from "../api.gen";
import { countApprovals } from "../approvals";
import { addressOf, call, callText, server } from "../api";
import { clock, tick } from "../clock";
import { approvalsIn } from "../lib/approval";
import { formatDuration } from "../lib/duration";
import { formatFilter, type Filter } from "../lib/filter";
import { titleOf } from "../lib/names";
import { curl } from "../lib/shell";
import { durationOf, hasEnded, lookOf } from "../lib/status";
import { commandsOf, needsNobody, nextOf } from "../lib/why";
import { href, project } from "../location";
import { ApprovalCard } from "../parts/approval";
import { Also } from "../parts/copy";
import { Gated } from "../parts/gated";
import { Glyph } from "../parts/icon";
import { Lines } from "../parts/lines";
import { Trouble } from "../parts/notice";
import { Age, Clock } from "../parts/time";
import { useResource } from "../resource";
import { may } from "../session";
import { Cancel, Deploy, Discard, Resume, Retry, Send, Signal } from "./actions";
import { EndPause } from "./pauses";

const longestTimer = 3_600_000; // browsers know no timers of months
const opened = 2; // reasons that are shown at once

interface WhyProps {
  run: Run;
  // How often somebody has done something with the run: it is explained anew then.
  acts: number;
  explained: (e: Explanation) => void;
  done: () => void;
}

export function Why({ run, acts, explained, done }: WhyProps) {
  const why = useResource(async (signal) => {
    const answer = await call(project.value, "GET /v1/runs/{id}/why", { path: { id: run.id }, signal });
    explained(answer);
    return answer;
  },
    // The log does not show all, such as a function that fails.
    [run.id], { on: hasEnded(run) ? [] : ["queue", "settings"], version: [run.lastSeq, run.status, run.blocked?.attempts, acts].join() });
  const e = why.data.value;
  const next = e?.next?.at;
  useEffect(() => {
    if (!next) return;
    const pause = Math.min(longestTimer, Math.max(500, Date.parse(next) - clock.now() + 200));
    const timer = setTimeout(() => document.hidden || why.refresh(), pause);
    return () => clearTimeout(timer);
  }, [next, e?.at]);
  // What somebody did takes a moment to show.
  const acted = () => {
    for (const pause of [0, 400, 1500]) setTimeout(() => { why.refresh(); done(); }, pause);
  };
  if (why.problem.value && !e) return <Trouble problem={why.problem.value} retry={why.refresh} />;
  if (!e) return <p class="why quiet">Reading how it stands …</p>;
  if (e.end) return <End run={run} end={e.end} />;
  return <Open run={run} e={e} acted={acted} />;
}

function End({ run, end }: { run: Run; end: NonNullable<Explanation["end"]> }) {
  const took = formatDuration(durationOf(run, tick.value));
  const event = <a href={`${href(["runs", run.id, "log"])}#e${end.seq}`}>event {end.seq.toLocaleString("en")}</a>;
  if (end.status === "completed") return <p class="why quiet"><span>Completed <Age at={end.at} />, after {took}, with {event}.</span></p>;
  if (end.status === "cancelled") {
    return <p class="why quiet"><span>Cancelled <Age at={end.at} />, after {took}, with {event}{end.cancelReason ? `: ${end.cancelReason}` : ". No reason was given."}</span></p>;
  }
  return (
    <section class="why blocked" aria-label="How it ended">
      <p class="lead"><Glyph look="failed" /><span><strong>Failed <Age at={end.at} />: {end.error?.code || "without a code"}.</strong> After {took}, with {event}.</span></p>
      <div class="error-text"><Lines text={end.error?.message ?? ""} label="Error" /><Lines text={stackOf(end.error?.details)} label="Stack" /></div>
      <div class="remedies">
        {may("read") && <a class="button" href={href(["runs", run.id, "data"])}>Input and error</a>}
        <a class="button" href={href(["runs"], { q: formatFilter(like(run, end.error?.code)) })}>Others that failed so today</a>
      </div>
    </section>
  );
}

// like returns the filter of the runs that have failed today as the run has.
function like(run: Run, code: string | undefined): Filter {
  const filter: Filter = [{ field: "workflow", value: run.workflow }, { field: "status", value: "failed" }];
  if (code) filter.push({ field: "error", value: code });
  return [...filter, { field: "created", value: "24h" }];
}

function stackOf(details: unknown): string {
  const stack = typeof details === "object" && details !== null && "stack" in details ? details.stack : "";
  return typeof stack === "string" ? stack : "";
}

interface Chosen {
  remedy: Remedy;
  reason: Reason;
}

function Open({ run, e, acted }: { run: Run; e: Explanation; acted: () => void }) {
  const all = useSignal(false);
  const chosen = useSignal<Chosen | null>(null);
  const calm = needsNobody(e);
  const count = calm ? 1 : opened;
  const shown = all.value ? e.reasons : e.reasons.slice(0, count);
  const next = nextOf(e);
  const tone = calm ? "quiet" : e.verdict === "blocked" || e.verdict === "stranded" ? "blocked" : e.verdict === "retrying" ? "retrying" : "";
  const path = { id: run.id };
  return (
    <section class={`why ${tone}`} aria-label="Why it is not done" data-verdict={e.verdict}>
      <ul>
        {shown.map((r) => <Row key={[r.kind, r.stepId, r.hookId, r.waitId, r.messageId].join()} run={run} reason={r} next={e.next?.at} acted={acted} choose={(remedy) => (chosen.value = { remedy, reason: r })} />)}
      </ul>
      {e.reasons.length > count && <button type="button" class="more-reasons" aria-expanded={all.value} onClick={() => (all.value = !all.value)}>
        {all.value ? "Fewer" : `and ${e.reasons.length - count} more`}</button>}
      <div class="next">
        {e.next && <span>Next: <Clock at={e.next.at} /> <strong><Age at={e.next.at} /></strong>, {next}.</span>}
        {e.deadline && <span>If nothing else ends it, it fails <Age at={e.deadline} />, at its deadline.</span>}
        <span class="small">As of <Clock at={e.at} />, event {e.lastSeq.toLocaleString("en")}.</span>
        <Also what="Why it is not done" cli={commandsOf(e)} curl={curl(server, "GET", addressOf("GET /v1/runs/{id}/why", { path }))} />
      </div>
      {chosen.value && <Form run={run} {...chosen.value} done={acted} close={() => (chosen.value = null)} />}
    </section>
  );
}

interface RowProps {
  run: Run;
  reason: Reason;
  // When the first reason ends by itself, which the box says for all.
  next?: string;
  acted: () => void;
  choose: (remedy: Remedy) => void;
}

function Row({ run, reason: r, next, acted, choose }: RowProps) {
  const error = r.error;
  const when = [
    r.since && `for ${formatDuration(Math.max(0, tick.value - Date.parse(r.since)))}`,
    r.at && r.at !== next && <>goes on <Age at={r.at} /></>,
    r.until && <>until <Clock at={r.until} /> at the latest</>,
    r.server && <>held by <span class="mono">{r.server}</span>{r.host && ` on ${r.host}`}</>,
  ].filter(Boolean);
  return (
    <li data-kind={r.kind}>
      <p class="lead"><Glyph look={lookOf(r.kind)} /><span>{r.sentence} <span class="when">
        {when.map((part) => <> · {part}</>)}
      </span></span></p>
      {r.condition && <p class="error-text mono">if {r.condition}</p>}
      {error && <div class="error-text">
        <p>last error{error.seq && <>, <a href={`${href(["runs", run.id, "log"])}#e${error.seq}`}>event {error.seq.toLocaleString("en")}</a></>}:</p>
        <Lines text={[error.code, error.message].filter(Boolean).join(": ")} label="Last error" /></div>}
      {r.kind === "approval" && r.hookId ? <Votes run={run.id} hook={r.hookId} votes={r.votes ?? 0} acted={acted} />
        : <div class="remedies">{r.remedies.map((name) => <Button name={name} run={run} reason={r} acted={acted} choose={choose} />)}</div>}
    </li>
  );
}

// Votes is the card of an approval. It is read again when somebody has voted.
function Votes({ run, hook, votes, acted }: { run: string; hook: string; votes: number; acted: () => void }) {
  const read = useResource(async (signal) => approvalsIn(await callText(project.value, "GET /v1/approvals", { query: { runId: run }, signal })), [run], { version: votes });
  const found = read.data.value?.data.find((a) => a.hookId === hook);
  if (read.problem.value) return <Trouble problem={read.problem.value} retry={read.refresh} />;
  return found ? <ApprovalCard here approval={found} done={() => { acted(); read.refresh(); countApprovals(); }} /> : null;
}

const deploys: Partial<Record<string, string>> = { deployment_missing: "Register", unreachable: "Move" };

function Button({ name, run, reason: r, acted, choose }: RowProps & { name: Remedy }) {
  const open = (text: string, permission: "write" | "invoke" | "admin") =>
    <Gated permission={permission} act={() => choose(name)}>{text}</Gated>;
  switch (name) {
    case "retryMessage": return r.messageId ? <Retry id={r.messageId} done={acted} /> : null;
    case "discardMessage": return open("Discard …", "write");
    case "putDeployment": return open(`${deploys[r.kind] ?? "Register again:"} ${r.deployment ?? ""} …`, "admin");
    case "resumeHook": return open("Resume …", "invoke");
    case "postSignal": return open("Send the signal …", "invoke");
    case "sendMessage": return open("Send a message …", "invoke");
    case "putLimit": return <a class="button" href={href(["limits", r.limit ?? ""], { key: r.key ?? "" })}>Open the limit</a>;
    case "putProject": return <code>stepwell projects resume {r.name ?? ""}</code>; // by an admin of the server
    case "removePause": return r.pause ? open(`Resume ${r.pause.kind === "run" ? "the run" : `${r.pause.kind} ${titleOf(r.pause.name)}`} …`, "write") : null;
    case "explainRun": return r.childId ? <a class="button" href={href(["runs", r.childId])}>Open the child</a> : null;
    case "cancelRun": return open(run.forcedAt ? "End it now …" : "Cancel …", "write");
    default: return null; // of a newer server
  }
}

// Form is the dialog of a remedy.
function Form({ run, remedy, reason: r, done, close }: Chosen & { run: Run; done: () => void; close: () => void }) {
  switch (remedy) {
    case "discardMessage": return <Discard id={r.messageId ?? ""} done={done} close={close} />;
    case "putDeployment": return <Deploy id={r.deployment ?? ""} missing={r.kind === "deployment_missing"} done={done} close={close} />;
    case "resumeHook": return <Resume run={run} hook={r.hookId} done={done} close={close} />;
    case "postSignal": return <Signal signal={r.name} done={done} close={close} />;
    case "removePause": return r.pause ? <EndPause {...r.pause} done={done} close={close} /> : null;
    case "sendMessage": return <Send run={run} inbox={r.name ?? ""} done={done} close={close} />;
    default: return <Cancel run={run} done={done} close={close} />;
  }
}

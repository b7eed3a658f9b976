// An approval as a card: what is asked, who may vote, who has voted, and the vote.
import { useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { call } from "../api";
import { refusalOf, rolesIn, voteOf, whoMay, type OpenApproval, type Refusal } from "../lib/approval";
import { fieldsOf, fill, violations, type Typed } from "../lib/form";
import { shortId } from "../lib/path";
import { Problem } from "../lib/problem";
import { href, project } from "../location";
import { may, needs } from "../session";
import { setRole, setVoter, voter, voterRoles } from "../voter";
import { FormFields } from "./form";
import { Glyph } from "./icon";
import { Trouble } from "./notice";
import { Age, Clock } from "./time";

const shownVotes = 10;
const words = { approve: "Approve", reject: "Reject" };

interface CardProps {
  approval: OpenApproval;
  // Whether the page is that of its run.
  here?: boolean;
  // Called with what was done, in words.
  done: (said: string) => void;
}

export function ApprovalCard({ approval: a, here, done }: CardProps) {
  const title = a.title ?? `Approval ${a.hookId}`;
  return (
    <article class="approval" aria-label={title}>
      <header><Glyph look="waiting" /><h3>{title}</h3>
        <span class="quorum">{a.votes.length} of {a.needed} {a.needed === 1 ? "approval" : "approvals"}</span></header>
      <p class="quiet">{!here && <><a href={href(["runs", a.runId])}>{a.workflow} {shortId(a.runId)}</a> asked </>}{here && "Asked "}<Age at={a.createdAt} />
        {a.by && a.title && <> for {whoMay(a)}</>}{a.title && !a.by && <> everybody with a key</>}{a.distinctKeys && <>, each key once</>}.
        {a.due && <> Due <strong><Age at={a.due} /></strong> (<Clock at={a.due} />).</>}</p>
      {a.votes.length > 0 && <ul class="votes">{a.votes.slice(0, shownVotes).map((v) => (
        <li><Glyph look={v.decision === "approve" ? "completed" : "failed"} /><span><strong>{v.by ?? "Somebody"}</strong> {v.decision === "approve" ? "approved" : "rejected"} <Age at={v.at} />
          {v.comment && <>: {v.comment}</>}{v.key && v.key !== v.by && <span class="quiet"> by key <span class="mono">{shortId(v.key)}</span></span>}</span></li>
      ))}{a.votes.length > shownVotes && <li class="quiet">and {a.votes.length - shownVotes} more</li>}</ul>}
      <Vote approval={a} title={title} done={done} />
    </article>
  );
}

function Vote({ approval: a, title, done }: CardProps & { title: string }) {
  const fields = useMemo(() => a.schema ? fieldsOf(a.schema) : [], [JSON.stringify(a.form)]);
  const typed = useSignal<Typed>({});
  const comment = useSignal("");
  const busy = useSignal(false);
  const refused = useSignal<Refusal | null>(null);
  const wrong = useSignal<{ at: Record<string, string>; rest: string[] }>({ at: {}, rest: [] });
  const problem = useSignal<Problem | null>(null);
  const roles = rolesIn(a);
  const allowed = may("invoke");
  const refuse = (err: unknown) => {
    const p = err instanceof Problem ? err : new Problem(-1, "page", String(err));
    refused.value = refusalOf(p, a, voter.value.trim());
    if (refused.value?.violations) wrong.value = violations(fields, refused.value.violations);
    if (!refused.value) problem.value = p;
  };
  const send = async (decision: "approve" | "reject") => {
    const filled = decision === "approve" ? fill(fields, typed.value) : { json: "", problems: {} };
    wrong.value = { at: filled.problems, rest: [] };
    refused.value = problem.value = null;
    if (Object.keys(filled.problems).length > 0) return;
    busy.value = true;
    try {
      const text = voteOf({ decision, as: voter.value.trim(), roles: roles.filter((r) => voterRoles.value.includes(r)), comment: comment.value, form: filled.json });
      await call(project.value, "POST /v1/runs/{id}/hooks/{hookId}/resume", { path: { id: a.runId, hookId: a.hookId }, text });
      comment.value = "";
      done(`${decision === "approve" ? "Approved" : "Rejected"}: ${title}.`);
    } catch (err) {
      refuse(err);
    }
    busy.value = false;
  };
  return (
    // Enter in a field sends nothing: a vote stands, and there are two.
    <form onSubmit={(e) => e.preventDefault()} aria-label={`Vote on ${title}`} noValidate>
      {fields.length > 0 && <FormFields fields={fields} typed={typed.value} problems={wrong.value.at} change={(t) => (typed.value = t)} />}
      {wrong.value.rest.map((text) => <p class="problem" role="alert">{text}</p>)}
      <div class="voter">
        <label>Your name<input name="as" value={voter.value} autocomplete="name" placeholder="that of your key" spellcheck={false}
          aria-invalid={!!refused.value?.name} onInput={(e) => setVoter(e.currentTarget.value)} /></label>
        <label class="comment">Comment<input value={comment.value} maxLength={4096} onInput={(e) => (comment.value = e.currentTarget.value)} /></label>
        {roles.map((r) => <label class="check"><input type="checkbox" checked={voterRoles.value.includes(r)} onChange={(e) => setRole(r, e.currentTarget.checked)} />I have the role {r}</label>)}
      </div>
      {refused.value?.name && <p class="problem" role="alert">{refused.value.name}</p>}
      {refused.value?.over && <p class="problem" role="alert">{refused.value.over}</p>}
      {problem.value && <Trouble problem={problem.value} />}
      <div class="remedies">
        {(["approve", "reject"] as const).map((d) => <button type="button" class={d === "approve" ? "primary" : ""} disabled={!allowed || busy.value} title={allowed ? "" : needs("invoke")}
          aria-label={`${words[d]} ${title}`} onClick={() => void send(d)}>{words[d]}</button>)}
      </div>
    </form>
  );
}

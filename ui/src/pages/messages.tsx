// What the server owes a run: the messages of the queue that are for it.
import { useSignal } from "@preact/signals";
import type { Message, Run } from "../api.gen";
import { addressOf, call, server } from "../api";
import { tick } from "../clock";
import { cannotRetry, errorOf, stateOfMessage, workOf } from "../lib/message";
import { curl } from "../lib/shell";
import { hasEnded } from "../lib/status";
import { project } from "../location";
import { Also, Copy } from "../parts/copy";
import { Status } from "../parts/icon";
import { Gated } from "../parts/gated";
import { Lines } from "../parts/lines";
import { Empty, Loading, Trouble } from "../parts/notice";
import { Age } from "../parts/time";
import { useResource } from "../resource";
import { Discard, Retry } from "./actions";

const pageSize = 200;

export function Messages({ run }: { run: Run }) {
  const query = { runId: run.id, limit: pageSize };
  const list = useResource((signal) => call(project.value, "GET /v1/messages", { query, signal }),
    [run.id], { on: hasEnded(run) ? [] : ["queue"], version: run.lastSeq });
  const discarded = useSignal("");
  const trouble = list.problem.value && <Trouble problem={list.problem.value} retry={list.refresh} />;
  if (!list.data.value) return trouble ?? <Loading what="the messages" />;
  const { data, cursor } = list.data.value;
  return (
    <>
      {trouble}
      {data.length === 0 ? <Empty title="The server owes this run nothing"><p>{hasEnded(run) ? "It has ended." : "It waits for time, for other runs, or for somebody."}</p></Empty> : (
        <table class="list messages" aria-label="Messages for the run">
          <thead><tr><th>State</th><th>What it is for</th><th>Deployment</th><th class="num">Deliveries</th><th class="num">Due</th><th>Last error</th><th>Actions</th></tr></thead>
          <tbody>{data.map((m) => <Row key={m.id} message={m} done={list.refresh} discard={() => (discarded.value = m.id)} />)}</tbody>
        </table>
      )}
      {cursor && <p class="quiet">The first {pageSize} are shown.</p>}
      <Also what="The messages" cli={`stepwell messages list --run ${run.id} --state all`} curl={curl(server, "GET", addressOf("GET /v1/messages", { query }))} />
      {discarded.value && <Discard id={discarded.value} done={list.refresh} close={() => (discarded.value = "")} />}
    </>
  );
}

function Row({ message: m, done, discard }: { message: Message; done: () => void; discard: () => void }) {
  return (
    <tr>
      <td><Status {...stateOfMessage(m, tick.value)} /></td>
      <td>{workOf(m)}<Copy text={m.id} what="the message’s ID" /></td>
      <td>{m.deploymentId || <span class="quiet none">–</span>}</td>
      <td class="num">{m.deliveryCount}</td>
      <td class="num">{m.parkedAt ? <span class="quiet">parked <Age at={m.parkedAt} /></span> : <Age at={m.dueAt} />}</td>
      <td class="error-text">{m.lastError ? <Lines text={errorOf(m)} label="Last error" /> : <span class="quiet none">–</span>}</td>
      <td><div class="remedies"><Retry id={m.id} off={cannotRetry(m)} done={done} /><Gated permission="write" act={discard}>Discard …</Gated></div></td>
    </tr>
  );
}

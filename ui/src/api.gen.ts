// Generated from handlers/rest/openapi.yaml by go test ./handlers/rest -run TestTypes -update. Do not edit.

// RFC 3339 in UTC, to the millisecond.
export type Time = string;

// What a pause is of.
export type PauseKind = "run" | "workflow" | "deployment";

export type Pause = {
  kind: PauseKind;
  name: string;
  note?: string;
  pausedBy: string;
  pausedAt: Time;
};

// A kind of what needs attention; see [getAttention](#get-v1attention).
export type AttentionKind = "project_paused" | "paused" | "messages_parked" | "runs_blocked" | "runs_stranded" | "deployment_unreachable" | "deployment_missing" | "workflow_failing" | "queue_late" | "key_expiring" | "two_signing_keys";

export type AttentionItem = {
  kind: AttentionKind;
  count: number;
  since?: Time;
  until?: Time;
  deployment?: string;
  workflow?: string;
  runId?: string;
  usual?: number;
  operation: string;
};

// The time up to which events are counted.
export type CompleteTo = Time;

// In milliseconds; missing if nothing was measured.
export type Percentiles = {
  p50: number;
  p95: number;
  p99: number;
};

// What happened in an interval.
export type RunPoint = {
  at: Time;
  created: number;
  started: number;
  completed: number;
  failed: number;
  cancelled: number;
  tookMs?: Percentiles;
  delayMs?: Percentiles;
};

// The cursor of the next page; missing on the last page.
export type Cursor = string;

export type Error = {
  error: {
    code: string;
    message: string;
    details?: Record<string, unknown>;
    requestId?: string;
  };
};

// `pending` until the run's function has received it, then `running`, and finally `completed`, `failed` or `cancelled`.
export type RunStatus = "pending" | "running" | "completed" | "failed" | "cancelled";

// The encoding of a payload: `json`; `none` if there is no payload; or `opaque` if the server cannot decode it, and
// therefore omits it.
export type Encoding = "json" | "none" | "opaque";

// Up to 64 labels to find runs by. Keys have at most 256 characters, values at most 256 bytes.
export type Attributes = Record<string, string>;

// The error of a failed run or step, as far as the server can decode it.
export type Failure = {
  code?: string;
  message?: string;
  details?: unknown;
};

// With which events of which run a fork begins.
export type ForkOf = {
  runId: string;
  events: number;
  steps?: number;
  children?: number;
};

export type Run = {
  id: string;
  workflow: string;
  deployment: string;
  driver: "client" | "server";
  status: RunStatus;
  attributes: Attributes;
  key?: string;
  parentId?: string;
  continuedFrom?: string;
  continuedAs?: string;
  rootId?: string;
  depth?: number;
  forkOf?: ForkOf;
  createdAt: Time;
  startAt?: Time;
  startedAt?: Time;
  completedAt?: Time;
  deadline?: Time;
  forcedAt?: Time;
  lastSeq: number;
  error?: Failure;
  cancelReason?: string;
  blocked?: Blocked;
  reason?: RunReason;
  input?: unknown;
  inputEncoding?: Encoding;
  output?: unknown;
  outputEncoding?: Encoding;
};

export type RunAttributes = {
  attributes: Attributes;
};

// Why the run does not go on: its function answers with a failure that has a code, `diverged` for example if the code
// does not match the log. It is called again after a backoff, and when its deployment is registered again.
export type Blocked = {
  code: string;
  message?: string;
  since: Time;
  attempts: number;
};

// The state of a run in one word: `scheduled` for a later start; `working`; `retrying` after a failure; `waiting` for
// time, other runs or the world; `blocked` until somebody does something; `stranded` until the sweeper wakes it; or
// `ended`.
export type Verdict = "scheduled" | "working" | "retrying" | "waiting" | "blocked" | "stranded" | "ended";

// The kind of a reason, in the order of reasons; [why.md](why.md) explains each. New kinds may be added.
export type ReasonKind = "stranded" | "project_paused" | "paused" | "parked" | "deployment_missing" | "diverged" | "function_refuses" | "answer_refused" | "limit_deadlock" | "limit_paused" | "unhealthy" | "unreachable" | "connection_closed" | "function_fails" | "task_fails" | "step_backoff" | "cancelling" | "called" | "step_running" | "step_queued" | "queued" | "client" | "unscheduled" | "start_delay" | "limit_full" | "deployment_full" | "rate" | "child" | "hook" | "webhook" | "signal" | "approval" | "wait" | "inbox";

export type Explanation = {
  runId: string;
  verdict: Verdict;
  since?: Time;
  at: Time;
  lastSeq: number;
  deadline?: Time;
  next?: NextEvent;
  reasons: Array<Reason>;
  open?: OpenParts;
  end?: RunEnd;
};

// How the run ended.
export type RunEnd = {
  status: "completed" | "failed" | "cancelled";
  at: Time;
  seq: number;
  error?: Failure;
  cancelReason?: string;
};

// How many steps, hooks and waits are open. At most 50 of each are reasons. If the run's function has said which steps
// it awaits, the others do not count.
export type OpenParts = {
  steps: number;
  hooks: number;
  waits: number;
};

// The reason that is over first by itself; missing if none is at a known time.
export type NextEvent = {
  at: Time;
  kind: ReasonKind;
  stepId?: string;
  waitId?: string;
};

// Only of runs that have not ended, in lists with `include=reason` and, as a rule, in live views: the first reason why
// it is not done, as `GET /v1/runs/{id}/why` has it.
export type RunReason = {
  verdict: Verdict;
  kind: ReasonKind;
  summary: string;
  since?: Time;
  at?: Time;
  until?: Time;
};

export type Reason = {
  kind: ReasonKind;
  sentence: string;
  stepId?: string;
  hookId?: string;
  waitId?: string;
  name?: string;
  condition?: string;
  childId?: string;
  childStatus?: RunStatus;
  messageId?: string;
  deployment?: string;
  server?: string;
  host?: string;
  attempt?: number;
  maxAttempts?: number;
  failures?: number;
  backlog?: number;
  limit?: string;
  key?: string;
  held?: number;
  slots?: number;
  inAll?: boolean;
  ahead?: number;
  holders?: Array<SlotHolder>;
  votes?: number;
  pause?: Pause;
  circle?: Array<string>;
  detail?: string;
  since?: Time;
  at?: Time;
  until?: Time;
  error?: ReasonError;
  remedies: Array<Remedy>;
  commands: Array<string>;
};

// The last failure.
export type ReasonError = {
  code?: string;
  message?: string;
  seq?: number;
};

export type SlotHolder = {
  runId: string;
  stepId?: string;
  since: Time;
};

export type WorkerRegistration = {
  workflows?: Array<string>;
  stepsOnly?: boolean;
  build?: string;
  schemas?: Schemas;
};

export type TakenCalls = {
  calls: Array<TakenCall>;
  over: Array<string>;
};

export type TakenCall = {
  headers: Record<string, string>;
  seen: number;
  body: unknown;
};

export type Registration = {
  url?: string;
  workflows?: Array<string>;
  stepsOnly?: boolean;
  build?: string;
  maxConcurrent?: number;
  schemas?: Schemas;
  health?: {
    path: string;
    every?: string;
    timeout?: string;
    failAfter?: number;
    recoverAfter?: number;
    trialEvery?: string;
  } | null;
};

// An operation of this API, by its operationId. Its parameters are in the reason: `messageId`, `deployment`, `hookId`,
// `name`, `limit`, `childId`.
export type Remedy = "retryMessage" | "discardMessage" | "putDeployment" | "resumeHook" | "postSignal" | "sendMessage" | "putLimit" | "putProject" | "removePause" | "explainRun" | "cancelRun";

export type TimelinePart = {
  kind: "step" | "hook" | "wait";
  id: string;
  name?: string;
  childId?: string;
  at?: string;
  undo?: string;
  status: "pending" | "running" | "completed" | "failed" | "active" | "disposed" | "conflict" | "waiting" | "cancelled" | "abandoned";
  seq: number;
  createdAt: Time;
  endedAt?: Time;
  resumeAt?: Time;
  attempts?: Array<Attempt>;
  received?: Array<ReceivedPayload>;
  cut?: boolean;
  outcome?: Outcome;
};

export type ReceivedPayload = {
  seq: number;
  at: Time;
};

export type Attempt = {
  seq: number;
  startedAt: Time;
  endedAt?: Time;
  endSeq?: number;
  outcome?: "completed" | "failed" | "retrying" | "lost";
  code?: string;
  retryAfter?: Time;
};

// A step that waits for its next attempt is `pending` too.
export type StepStatus = "pending" | "running" | "completed" | "failed";

export type TimelineName = {
  name: string;
  count: number;
  pending: number;
  running: number;
  completed: number;
  failed: number;
  retried: number;
  p50Ms?: number;
  maxMs?: number;
  slowest?: string;
  firstAt: Time;
  lastAt: Time;
  density: Array<number>;
};

export type Step = {
  id: string;
  runId: string;
  name: string;
  status: StepStatus;
  attempt: number;
  createdAt: Time;
  startedAt?: Time;
  completedAt?: Time;
  retryAfter?: Time;
  deployment?: string;
  childId?: string;
  input?: unknown;
  inputEncoding?: Encoding;
  output?: unknown;
  outputEncoding?: Encoding;
  error?: Failure;
};

export type Hook = {
  id: string;
  runId: string;
  workflow?: string;
  token?: string;
  status: "active" | "retained" | "disposed" | "conflict";
  webhook: boolean;
  verify?: string;
  signal?: string;
  condition?: string;
  createdAt: Time;
  receivedAt?: Time;
  disposedAt?: Time;
  retainedUntil?: Time;
  conflictingRunId?: string;
  outcome?: Outcome;
  metadata?: unknown;
  metadataEncoding?: Encoding;
  question?: string;
  schema?: unknown;
};

export type Approval = {
  runId: string;
  hookId: string;
  workflow: string;
  title?: string;
  by?: Array<string>;
  needed: number;
  distinctKeys: boolean;
  form?: unknown;
  votes: Array<Vote>;
  createdAt: Time;
  due?: Time;
};

// What people have decided, or that they have not in time. Missing while that is open, and of hooks that ask for no
// decision: a decision is that of an approval, or an `approved` that is a boolean in the first payload of a hook whose
// metadata has a `question`, as the Go SDK asks. Left out where the payloads of a page are more than 1 MiB together.
export type Outcome = {
  decision: "approved" | "rejected" | "expired";
  by?: Array<string>;
};

export type Vote = {
  decision: "approve" | "reject";
  by?: string;
  key?: string;
  comment?: string;
  at: Time;
};

export type Wait = {
  id: string;
  runId: string;
  workflow?: string;
  status: "waiting" | "completed" | "cancelled" | "abandoned";
  resumeAt?: Time;
  createdAt: Time;
  completedAt?: Time;
};

// The sender's ID of the message, up to 256 bytes. It counts once in the inbox.
export type MessageId = string;

export type StoreValue = {
  value: unknown;
  seq: number;
};

export type Stream = {
  name: string;
  chunks: number;
  createdAt: Time;
  closedAt?: Time;
};

export type Chunk = {
  index: number;
  text?: string;
  base64?: string;
  value?: unknown;
  encoding?: "devalue" | "opaque" | "encrypted";
};

export type EventType = "run_created" | "run_started" | "run_completed" | "run_failed" | "run_cancelled" | "cancel_requested" | "attr_set" | "store_set" | "step_created" | "step_started" | "step_completed" | "step_failed" | "step_retrying" | "hook_created" | "hook_received" | "hook_disposed" | "hook_conflict" | "wait_created" | "wait_completed" | "wait_cancelled";

export type Event = {
  runId: string;
  seq: number;
  id: string;
  type: EventType;
  correlationId?: string;
  createdAt: Time;
  data: Record<string, unknown>;
  payload?: unknown;
  encoding?: "json" | "devalue" | "cbor" | "none" | "opaque" | "encrypted";
  truncated?: boolean;
};

export type LiveHello = {
  version?: string;
  time: Time;
  resumed: boolean;
};

export type LiveRuns = {
  runs: Array<Run>;
  gone: Array<GoneRun>;
};

export type GoneRun = {
  id: string;
  lastSeq: number;
};

export type LiveLog = {
  from: number;
  to: number;
  events?: Array<Event>;
};

export type LiveChanged = {
  topics: Array<LiveTopic>;
};

// What has changed.
export type LiveTopic = "attention" | "queue" | "runs" | "servers" | "settings" | "stats";

export type Exchange = {
  seq: number;
  events: Array<Event>;
  more?: boolean;
};

export type Health = {
  path: string;
  every: string;
  timeout: string;
  failAfter: number;
  recoverAfter: number;
  trialEvery: string;
  status: "unknown" | "healthy" | "unhealthy";
  probedAt?: Time;
  failures?: number;
  lastError?: string;
  unhealthySince?: Time;
  trialAt?: Time;
};

export type Deployment = {
  id: string;
  url: string;
  workflows?: Array<string>;
  stepsOnly?: boolean;
  build?: string;
  schemas?: Schemas;
  maxConcurrent?: number;
  openRuns: number;
  waitingMessages: number;
  answeredAt?: Time;
  unreachableSince?: Time;
  failedAt?: Time;
  lastError?: string;
  health?: Health;
  createdAt: Time;
  updatedAt: Time;
};

// JSON Schemas by workflow.
export type Schemas = Record<string, {
  input?: Record<string, unknown>;
  output?: Record<string, unknown>;
}>;

export type Rate = {
  limit: number;
  per: string;
  burst?: number;
  sustained?: number;
};

export type LimitSpec = {
  perKey?: number;
  total?: number;
  rate?: Rate;
  fair?: boolean;
  onFull?: "wait" | "reject" | "replaceWaiting" | "cancelOldest";
  paused?: boolean;
};

export type Limit = {
  name: string;
  perKey?: number;
  total?: number;
  rate?: Rate;
  fair: boolean;
  onFull: "wait" | "reject" | "replaceWaiting" | "cancelOldest";
  paused: boolean;
  held?: number;
  waiting?: number;
  createdAt: Time;
  updatedAt: Time;
};

export type LimitKey = {
  key: string;
  held: number;
  waiting: number;
  waitingSince?: Time;
};

export type Permit = {
  runId: string;
  stepId?: string;
  messageId?: string;
  tenant?: string;
  cost: number;
  since: Time;
  notBefore?: Time;
};

export type PolicyUse = {
  name: string;
  key?: string;
  tenant?: string;
  cost?: number;
};

export type PolicySpec = {
  limits?: Array<PolicyUse>;
  steps?: Record<string, Array<PolicyUse>>;
  priority?: string;
};

export type Policy = {
  workflow: string;
  limits: Array<PolicyUse>;
  steps?: Record<string, Array<PolicyUse>>;
  priority?: string;
  createdAt: Time;
  updatedAt: Time;
};

export type ScheduleSpec = {
  cron?: string;
  every?: string;
  timeZone?: string;
  from?: string;
  until?: string;
  workflow: string;
  deployment?: string;
  input?: unknown;
  attributes?: Record<string, string>;
  timeout?: string;
  overlap?: "skip" | "wait" | "waitAll" | "cancel" | "allow";
  catchUp?: "latest" | "all";
  catchUpWindow?: string;
  jitter?: string;
};

export type Flow = {
  name: string;
  version: number;
  deployment: string;
  createdAt: Time;
  retiredAt?: Time;
  document?: string;
  warnings?: Array<Fault>;
  versions?: Array<Flow>;
  aliases?: Array<FlowAlias>;
};

export type Catalog = {
  name: string;
  version: number;
  createdAt: Time;
  document?: string;
  versions?: Array<Catalog>;
};

export type Preview = {
  catalog: string;
  version: number;
  digest: string;
  want: Array<string>;
  have: Array<string>;
  waves: Array<Array<string>>;
  steps: Array<PreviewStep>;
  missing: Array<{
    name: string;
    chain: Array<string>;
  }>;
  excluded: Array<{
    step: string;
    code: "unreachable" | "blocked" | "there" | "not_needed";
    reason: string;
  }>;
  mermaid: string;
  document?: string;
};

export type PreviewStep = {
  id: string;
  wave: number;
  spare?: boolean;
  takes: Array<{
    name: string;
    from: Array<string>;
    collect?: "last" | "some" | "all" | "none";
    optional?: boolean;
    together?: boolean;
  }>;
  gives: Array<{
    name: string;
    to: Array<string>;
  }>;
};

export type FlowGraph = {
  name: string;
  deployment: string;
  steps: Array<FlowGraphStep>;
  edges: Array<{
    from: string;
    to: string;
    catch?: string;
  }>;
};

export type FlowGraphStep = {
  id: string;
  kind: string;
  name?: string;
  conditional?: boolean;
  undo?: boolean;
  join?: "any" | "always";
  layer: number;
  stage?: "pending" | "running" | "retrying" | "waiting" | "completed" | "failed" | "cancelled" | "skipped";
  code?: string;
  undoing?: "running" | "retrying" | "completed" | "failed" | "cancelled";
  items?: {
    total?: number;
    begun: number;
    completed: number;
    failed: number;
    undone?: number;
  };
};

export type FlowAlias = {
  alias: string;
  version: number;
  deployment: string;
  updatedAt: Time;
};

export type Fault = {
  line: number;
  column: number;
  path: string;
  code: "syntax" | "unknown" | "missing" | "type" | "conflict" | "cycle" | "expression";
  message: string;
};

export type LimitUse = {
  name: string;
  key?: string;
  tenant?: string;
  cost?: number;
};

// Starts the run when no further start with this key has come for a while. It cannot be combined with `batch`,
// `onConflict`, `delay`, `startAt`, `parent`, `inbox` and `send`. The run waits until its `key` is free.
export type Debounce = {
  key?: string;
  quiet: string;
  max?: string;
  keep?: "last" | "first" | "all";
};

// Starts one run with the list of the inputs of several starts, in the order of their arrival. The first start says the
// rest about the run. It cannot be combined with what `debounce` cannot.
export type Batch = {
  key?: string;
  size: number;
  wait: string;
  bytes?: number;
};

// A run that has not started because it collects starts. Inputs are not shown.
export type Collection = {
  id: string;
  status: string;
  workflow: string;
  deployment?: string;
  attributes?: Attributes;
  key?: string;
  timeout?: string;
  count: number;
  bytes: number;
  firstAt: Time;
  lastAt: Time;
  dueAt: Time;
  debounce?: Debounce;
  batch?: Batch;
  why?: Array<StartReason>;
};

// A reason for which a schedule starts no run, or the run of a collection has not started.
export type StartReason = {
  kind: "parked" | "task_fails" | "paused" | "refused" | "overlap" | "waiting" | "backfill" | "no_tick" | "due" | "collecting";
  text: string;
  since?: Time;
  at?: Time;
  runId?: string;
  messageId?: string;
};

export type Schedule = {
  name: string;
  cron?: string;
  every?: string;
  timeZone?: string;
  from?: string;
  until?: string;
  workflow: string;
  deployment?: string;
  input?: unknown;
  attributes?: Record<string, string>;
  timeout?: string;
  overlap: "skip" | "wait" | "waitAll" | "cancel" | "allow";
  catchUp: "latest" | "all";
  catchUpWindow: string;
  jitter?: string;
  pausedAt?: Time;
  pauseNote?: string;
  nextAt?: Time;
  next?: Array<Time>;
  waitingAt?: Time;
  waiting?: number;
  runId?: string;
  runStatus?: RunStatus;
  backfill?: Backfill;
  why?: Array<StartReason>;
  createdAt: Time;
  updatedAt: Time;
};

// The backfill under way.
export type Backfill = {
  at: Time;
  until: Time;
  repeat: boolean;
  runId?: string;
};

export type Tick = {
  kind: "tick" | "trigger" | "backfill";
  at: Time;
  count: number;
  lastAt?: Time;
  decision: "started" | "waiting" | "skipped" | "missed" | "refused";
  runId?: string;
  reason?: string;
  decidedAt: Time;
};

export type TriggerSpec = {
  on: TriggerOn;
  start: TriggerStart;
};

// What the trigger waits for. Exactly one of these.
export type TriggerOn = {
  signal?: OnSignal;
  webhook?: OnWebhook;
  runEnded?: OnRunEnded;
};

export type OnRunEnded = {
  workflow: string;
  statuses?: Array<"completed" | "failed" | "cancelled">;
  condition?: string;
};

export type OnWebhook = {
  verify?: "github" | "stripe" | "slack" | "standard" | "generic";
  secret?: string;
  respond?: string;
  condition?: string;
};

export type OnSignal = {
  name: string;
  condition?: string;
};

// What the trigger starts. The texts of `input`, and `key`, `idempotencyKey`, `attributes` and the keys of limits,
// `debounce` and `batch` may have values of the event: `${data.customer}`. See
// [triggers](triggers.md#values-of-the-event).
export type TriggerStart = {
  workflow: string;
  deployment?: string;
  input?: unknown;
  attributes?: Record<string, string>;
  key?: string;
  onConflict?: "reject" | "join";
  idempotencyKey?: string;
  delay?: string;
  timeout?: string;
  limits?: Array<LimitUse>;
  priority?: string;
  debounce?: Debounce;
  batch?: Batch;
};

export type Trigger = {
  name: string;
  on: TriggerOn;
  start: TriggerStart;
  path?: string;
  pausedAt?: Time;
  pauseNote?: string;
  last?: Array<TriggerEvent>;
  createdAt: Time;
  updatedAt: Time;
};

export type TriggerEvent = {
  event: string;
  decision: "started" | "joined" | "collected" | "skipped" | "refused" | "retrying";
  runId?: string;
  reason?: string;
  decidedAt: Time;
};

export type Secret = {
  name: string;
  createdAt: Time;
  updatedAt: Time;
  origins?: Array<string>;
};

export type SigningKey = {
  id: string;
  createdAt: Time;
};

export type Count = {
  count: number;
  more: boolean;
};

export type QueueState = "waiting" | "retrying" | "due" | "delayed" | "leased" | "parked";

export type Work = "run" | "step" | "deadline" | "cancel" | "report" | "end" | "signal" | "emit" | "lookback" | "schedule" | "trigger" | "probe" | "request";

export type Message = {
  id: string;
  topic: string;
  deploymentId: string;
  runId?: string;
  work?: string;
  subject?: string;
  state: "waiting" | "leased" | "parked";
  deliveryCount: number;
  lastError?: string;
  createdAt: Time;
  dueAt: Time;
  parkedAt?: Time;
};

export type Signal = {
  id: string;
  name: string;
  key?: string;
  createdAt: Time;
  keepUntil: Time;
  rememberedUntil: Time;
};

export type ListedSignal = {
  id: string;
  name: string;
  key?: string;
  createdAt: Time;
  keepUntil: Time;
  rememberedUntil: Time;
  data?: unknown;
  truncated?: boolean;
};

// The permissions of a key. `admin`: everything. `write`: everything except administration. `read`: only read.
// `metadata`: only read, without payloads. `invoke`: start runs, resume hooks, send signals, and get runs by ID without
// payloads. `worker`: register the deployments that match the key's `deployments`, and get them.
export type Role = "admin" | "write" | "read" | "metadata" | "invoke" | "worker";

export type Client = {
  project: string;
  role: Role;
  actor: string;
  operator: boolean;
  keyName?: string;
  expiresAt?: Time;
  version?: string;
  cell?: string;
};

export type Key = {
  id: string;
  project: string;
  name: string;
  role: Role;
  deployments?: string;
  prefix: string;
  person?: string;
  createdAt: Time;
  expiresAt?: Time;
  revokedAt?: Time;
  lastUsedAt?: Time;
};

export type MadeKey = {
  id: string;
  project: string;
  name: string;
  role: Role;
  deployments?: string;
  prefix: string;
  createdAt: Time;
  expiresAt?: Time;
  key: string;
};

export type Project = {
  name: string;
  createdAt: Time;
  pausedAt?: Time;
  limits?: ProjectLimits;
  encryption?: ProjectEncryption;
};

// How the project's payloads are encrypted. It is missing if they are not.
export type ProjectEncryption = {
  since: Time;
  keyMadeAt?: Time;
  masterKey?: string;
  runKeys?: boolean;
  dataKeys: number;
  destroyedKeys: number;
};

// The project's limits and their use. It is missing if there are none.
export type ProjectLimits = {
  dailyStarts?: number;
  startsToday?: number;
  storageBytes?: number;
  storedBytes?: number;
  storedAt?: Time;
  maxDepth?: number;
  maxDescendants?: number;
};

export type ServerProcess = {
  id: string;
  host: string;
  version?: string;
  commit?: string;
  role?: string;
  startedAt: Time;
  beatAt: Time;
  deliveries: number;
};

export type StrandedRun = {
  runId: string;
  project: string;
  workflow: string;
  reason: string;
  since: Time;
  wakes: number;
};

export type Session = {
  id: string;
  keyId?: string;
  keyName?: string;
  role: Role;
  createdAt: Time;
  usedAt: Time;
  current?: boolean;
};

export type Action = {
  seq: number;
  at: Time;
  project: string;
  actor: string;
  address?: string;
  action: "key.create" | "key.revoke" | "project.create" | "project.limit" | "project.encrypt" | "project.rotate" | "project.rewrap" | "project.shred" | "project.run_keys" | "run.shred" | "project.move" | "project.pause" | "project.resume" | "deployment.put" | "deployment.remove" | "secret.put" | "secret.remove" | "signing_key.create" | "signing_key.remove" | "message.retry" | "message.discard" | "messages.retry" | "messages.discard" | "retention.put" | "retention.remove" | "flow.put" | "flow.retire" | "catalog.put" | "flow_alias.put" | "flow_alias.remove" | "schedule.put" | "schedule.remove" | "schedule.pause" | "schedule.resume" | "schedule.trigger" | "schedule.backfill" | "collection.flush" | "collection.drop" | "trigger.put" | "trigger.remove" | "trigger.pause" | "trigger.resume" | "limit.put" | "limit.remove" | "policy.put" | "policy.remove" | "session.begin" | "session.end" | "run.cancel" | "run.rerun" | "run.pause" | "run.resume" | "workflow.pause" | "workflow.resume" | "deployment.pause" | "deployment.resume";
  subject: string;
  detail: Record<string, unknown>;
};

// What a run needs that has not ended. `stuck`, if its verdict is `blocked` or `stranded`: it does not go on by itself.
// `retrying`: something failed, and is tried again. `waiting`: for time, for other runs, for a slot, or for the world.
export type Need = "stuck" | "retrying" | "waiting";

export type RunNeeds = {
  at: Time;
  stuck: RunCount;
  retrying: RunCount;
  waiting: RunCount;
};

export type RunCount = {
  count: number;
  atLeast: boolean;
};

export type Found = {
  data: Array<Hit>;
  attributes: Searched;
  workflows: Searched;
};

export type Hit = {
  kind: "workflow" | "key" | "attribute";
  name: string;
  title: string;
};

export type Searched = {
  searched: number;
  of: number;
  atLeast: boolean;
};

export type CancelledRuns = {
  matched: number;
  cancelled: number;
  runIds: Array<string>;
  more: boolean;
};

export type CopiedRuns = {
  matched: number;
  started: number;
  openSteps?: number;
  openChildren?: number;
  runIds: Array<string>;
  refused: Array<RefusedRun>;
  more: boolean;
  cursor?: string;
};

export type CheckedRuns = {
  checked: number;
  replayed: number;
  diverged: number;
  blocked: number;
  unchecked: number;
  runs: Array<CheckedRun>;
  more: boolean;
  cursor?: string;
};

export type CheckedRun = {
  runId: string;
  workflow: string;
  verdict: "diverges" | "blocks" | "unchecked";
  code?: string;
  message: string;
};

export type RefusedRun = {
  runId: string;
  message: string;
};

export type SentMessage = {
  seq: number;
  repeated: boolean;
  runId?: string;
  answer?: Answer;
};

// What a run has answered to a message: an output, or an error with which it has refused it.
export type Answer = {
  runId: string;
  seq: number;
  output?: unknown;
  error?: Failure;
};

export type ResumedHook = {
  runId: string;
  hookId: string;
  seq: number;
  eventId: string;
  repeated: boolean;
};

export type RunStore = {
  data: Record<string, StoreValue>;
};

export type TimelineNames = {
  data: Array<TimelineName>;
  steps: number;
  names: number;
  cursor?: Cursor;
};

export type Chunks = {
  data: Array<Chunk>;
  cursor?: Cursor;
  closed: boolean;
};

export type RunSeries = {
  name: string;
  points: Array<RunPoint>;
  total: RunPoint;
};

export type StepStats = {
  workflow: string;
  name: string;
  completed: number;
  failed: number;
  cancelled: number;
  retried: number;
  tookMs?: Percentiles;
};

export type FailureStats = {
  workflow: string;
  code: string;
  count: number;
};

export type Gauges = {
  at: Time;
  runs: OpenRuns;
  messages: QueuedMessages;
  capped: boolean;
};

export type QueuedMessages = {
  due: number;
  leased: number;
  delayed: number;
  retrying: number;
  parked: number;
  oldestDue?: Time;
};

export type OpenRuns = {
  pending: number;
  running: number;
};

export type Attention = {
  at: Time;
  data: Array<AttentionItem>;
};

export type FailureGroup = {
  workflow: string;
  step?: string;
  code: string;
  shape?: string;
  message?: string;
  count: number;
  firstAt: Time;
  lastAt: Time;
  createdFrom: Time;
  firstDeployment: string;
  runId: string;
  trend: Array<number>;
};

export type FailureGroups = {
  since: Time;
  more: boolean;
  data: Array<FailureGroup>;
};

export type WorkflowSummary = {
  name: string;
  deployment: string;
  lastRunAt: Time;
  open: number;
  moreOpen?: boolean;
};

export type Slots = {
  held: Array<Permit>;
  waiting: Array<Permit>;
};

// `children` are the runs that it started, `values` those in its store, and `messages` those by which the server owes
// it something.
export type RunCounts = {
  steps: Count;
  hooks: Count;
  waits: Count;
  children: Count;
  streams: Count;
  values: Count;
  messages: Count;
};

export type MessageCounts = {
  parked: Count;
  retrying: Count;
  leased: Count;
  due: Count;
  delayed: Count;
  oldestDue?: Time;
};

export type ChangedMessages = {
  matched: number;
  changed: number;
  messageIds: Array<string>;
  more: boolean;
};

export type MadeSigningKey = {
  id: string;
  createdAt: Time;
  secret: string;
};

export type SignInCode = {
  code?: string;
  expiresAt?: Time;
};

export type Servers = {
  at: Time;
  servers: Array<ServerProcess>;
  extended: number;
  capped: boolean;
  stranded: Array<StrandedRun>;
  moreStranded: boolean;
};

// Api has all operations. An operation without a body or a JSON answer has the type null for it.
export interface Api {
  // Get this description as OpenAPI 3.1, without a key
  "GET /v1/openapi.json": {
    path: {  };
    query: {  };
    body: null;
    answer: Record<string, unknown>;
  };
  // Start a run
  "POST /v1/runs": {
    path: {  };
    query: {  };
    body: {
      workflow?: string;
      catalog?: string;
      want?: Array<string>;
      have?: Record<string, unknown>;
      haveAll?: Record<string, Array<unknown>>;
      input?: unknown;
      deployment?: string;
      idempotencyKey?: string;
      key?: string;
      onConflict?: "reject" | "join";
      attributes?: Attributes;
      delay?: string;
      startAt?: string;
      timeout?: string;
      timeoutGrace?: string;
      parent?: string;
      limits?: Array<LimitUse>;
      priority?: string;
      inbox?: Array<string>;
      send?: Array<{
        inbox: string;
        id?: MessageId;
        payload: unknown;
      }>;
      debounce?: Debounce;
      batch?: Batch;
    };
    answer: Run | Run | Collection;
  };
  // List runs, newest first
  "GET /v1/runs": {
    path: {  };
    query: { "workflow"?: string; "status"?: Array<RunStatus>; "need"?: Need; "deployment"?: string; "key"?: string; "errorCode"?: string; "parentId"?: string; "forkOf"?: string; "createdAfter"?: string; "createdBefore"?: string; "endedAfter"?: string; "endedBefore"?: string; [key: `attribute.${string}`]: string; "orderBy"?: "created" | "ended" | "need"; "include"?: "reason"; "limit"?: number; "cursor"?: string; "order"?: "asc" | "desc" };
    body: null;
    answer: {
      data: Array<Run>;
      cursor?: Cursor;
    };
  };
  // Count the runs of a list
  "GET /v1/runs/count": {
    path: {  };
    query: { "workflow"?: string; "status"?: Array<RunStatus>; "need"?: Need; "deployment"?: string; "key"?: string; "errorCode"?: string; "parentId"?: string; "forkOf"?: string; "createdAfter"?: string; "createdBefore"?: string; "endedAfter"?: string; "endedBefore"?: string; [key: `attribute.${string}`]: string };
    body: null;
    answer: RunCount;
  };
  // Count the runs that are stuck, retrying or waiting
  "GET /v1/runs/needs": {
    path: {  };
    query: {  };
    body: null;
    answer: RunNeeds;
  };
  // Get a run, with its input and output
  "GET /v1/runs/{id}": {
    path: { "id": string };
    query: { "payloads"?: boolean };
    body: null;
    answer: Run | Collection;
  };
  // Wait for the end of a run
  "GET /v1/runs/{id}/wait": {
    path: { "id": string };
    query: { "timeout"?: string; "follow"?: boolean };
    body: null;
    answer: Run | Collection;
  };
  // Explain why a run is not done, or how it ended
  "GET /v1/runs/{id}/why": {
    path: { "id": string };
    query: {  };
    body: null;
    answer: Explanation;
  };
  // Get a run's attributes
  "GET /v1/runs/{id}/attributes": {
    path: { "id": string };
    query: {  };
    body: null;
    answer: RunAttributes;
  };
  // Set or remove attributes of a run
  "PATCH /v1/runs/{id}/attributes": {
    path: { "id": string };
    query: {  };
    body: {
      attributes: Record<string, string | null>;
    };
    answer: RunAttributes;
  };
  // Cancel a run
  "POST /v1/runs/{id}/cancel": {
    path: { "id": string };
    query: {  };
    body: {
      reason?: string;
      grace?: string;
    };
    answer: Run;
  };
  // Destroy the key of a run
  "POST /v1/runs/{id}/shred": {
    path: { "id": string };
    query: {  };
    body: null;
    answer: null;
  };
  // Start a copy of a run
  "POST /v1/runs/{id}/rerun": {
    path: { "id": string };
    query: {  };
    body: {
      deployment?: string;
      idempotencyKey?: string;
      from?: "start" | "failure";
      at?: number;
    };
    answer: Run;
  };
  // Execute commands of a function before it answers
  "POST /v1/runs/{id}/commands": {
    path: { "id": string };
    query: { "after"?: number };
    body: {
      commands?: Array<{
        type: string;
      }>;
      open?: Array<string>;
      seen?: number;
    };
    answer: Exchange | null;
  };
  // Say that a function works on its call
  "POST /v1/runs/{id}/call/keep": {
    path: { "id": string };
    query: {  };
    body: null;
    answer: null;
  };
  // Answer a call whose connection has ended, or that a worker has made
  "POST /v1/runs/{id}/call/answer": {
    path: { "id": string };
    query: {  };
    body: {
      status: number;
      contentType?: string;
      retryAfter?: string;
      body?: unknown;
      seen?: number;
    };
    answer: null;
  };
  // Say how far a step is
  "POST /v1/runs/{id}/call/heartbeat": {
    path: { "id": string };
    query: {  };
    body: {
      progress?: unknown;
    };
    answer: null;
  };
  // Write to a stream of the run
  "POST /v1/runs/{id}/call/stream": {
    path: { "id": string };
    query: {  };
    body: {
      stream: string;
      from?: number;
      chunks?: Array<unknown>;
      step?: string;
      attempt?: number;
      close?: boolean;
    };
    answer: null;
  };
  // Cancel all matching runs
  "POST /v1/runs/cancel": {
    path: {  };
    query: {  };
    body: {
      workflow?: string;
      status?: "pending" | "running";
      key?: string;
      parentId?: string;
      attributes?: Record<string, string>;
      createdAfter?: string;
      createdBefore?: string;
      reason?: string;
      dryRun?: boolean;
      limit?: number;
    };
    answer: CancelledRuns;
  };
  // Start copies of all matching runs
  "POST /v1/runs/rerun": {
    path: {  };
    query: {  };
    body: {
      filter: {
        workflow?: string;
        status?: "completed" | "failed" | "cancelled";
        errorCode?: string;
        key?: string;
        parentId?: string;
        attributes?: Record<string, string>;
        createdAfter?: string;
        createdBefore?: string;
        endedBefore?: string;
      };
      deployment?: string;
      idempotencyKey?: string;
      from?: "start" | "failure";
      dryRun?: boolean;
      limit?: number;
      cursor?: string;
    };
    answer: CopiedRuns;
  };
  // Count what a run has of each kind
  "GET /v1/runs/{id}/counts": {
    path: { "id": string };
    query: {  };
    body: null;
    answer: RunCounts;
  };
  // List the runs that a run started, newest first
  "GET /v1/runs/{id}/children": {
    path: { "id": string };
    query: { "include"?: "reason"; "limit"?: number; "cursor"?: string; "order"?: "asc" | "desc" };
    body: null;
    answer: {
      data: Array<Run>;
      cursor?: Cursor;
    };
  };
  // List a run's steps in order of creation
  "GET /v1/runs/{id}/steps": {
    path: { "id": string };
    query: { "limit"?: number; "cursor"?: string; "order"?: "asc" | "desc" };
    body: null;
    answer: {
      data: Array<Step>;
      cursor?: Cursor;
    };
  };
  // Get a step, with its input and result
  "GET /v1/runs/{id}/steps/{stepId}": {
    path: { "id": string; "stepId": string };
    query: {  };
    body: null;
    answer: Step;
  };
  // Send the result of a step that its function has accepted
  "POST /v1/runs/{id}/steps/{stepId}/result": {
    path: { "id": string; "stepId": string };
    query: {  };
    body: {
      output?: unknown;
      error?: {
        message: string;
        code?: string;
        details?: unknown;
      };
    };
    answer: null;
  };
  // List all open hooks
  "GET /v1/hooks": {
    path: {  };
    query: { "workflow"?: string; "tokenPrefix"?: string; "olderThan"?: string; "limit"?: number; "cursor"?: string; "order"?: "asc" | "desc" };
    body: null;
    answer: {
      data: Array<Hook>;
      cursor?: Cursor;
    };
  };
  // List the approvals that are open
  "GET /v1/approvals": {
    path: {  };
    query: { "workflow"?: string; "runId"?: string; "hookId"?: string; "for"?: Array<string>; "limit"?: number; "cursor"?: string; "order"?: "asc" | "desc" };
    body: null;
    answer: {
      data: Array<Approval>;
      cursor?: Cursor;
    };
  };
  // List all hooks that a run has created or tried to create
  "GET /v1/runs/{id}/hooks": {
    path: { "id": string };
    query: { "limit"?: number; "cursor"?: string; "order"?: "asc" | "desc" };
    body: null;
    answer: {
      data: Array<Hook>;
      cursor?: Cursor;
    };
  };
  // Get a hook, with its metadata
  "GET /v1/runs/{id}/hooks/{hookId}": {
    path: { "id": string; "hookId": string };
    query: {  };
    body: null;
    answer: Hook;
  };
  // Resume the hook that has a token
  "POST /v1/hooks/{token}/resume": {
    path: { "token": string };
    query: {  };
    body: {
      payload: unknown;
      resumeId?: string;
      unverified?: boolean;
    };
    answer: ResumedHook;
  };
  // Resume a run's hook
  "POST /v1/runs/{id}/hooks/{hookId}/resume": {
    path: { "id": string; "hookId": string };
    query: {  };
    body: {
      payload: unknown;
      resumeId?: string;
      unverified?: boolean;
    };
    answer: ResumedHook;
  };
  // Send a message to an inbox of a run
  "POST /v1/runs/{id}/inbox/{name}": {
    path: { "id": string; "name": string };
    query: {  };
    body: {
      id?: MessageId;
      payload: unknown;
    };
    answer: SentMessage;
  };
  // Get the store of a run
  "GET /v1/runs/{id}/store": {
    path: { "id": string };
    query: {  };
    body: null;
    answer: RunStore;
  };
  // Get a value of a run's store
  "GET /v1/runs/{id}/store/{key}": {
    path: { "id": string; "key": string };
    query: {  };
    body: null;
    answer: StoreValue;
  };
  // List the waits of all runs by the time at which they end
  "GET /v1/waits": {
    path: {  };
    query: { "workflow"?: string; "limit"?: number; "cursor"?: string; "order"?: "asc" | "desc" };
    body: null;
    answer: {
      data: Array<Wait>;
      cursor?: Cursor;
    };
  };
  // List all waits of a run
  "GET /v1/runs/{id}/waits": {
    path: { "id": string };
    query: { "limit"?: number; "cursor"?: string; "order"?: "asc" | "desc" };
    body: null;
    answer: {
      data: Array<Wait>;
      cursor?: Cursor;
    };
  };
  // List a run's streams by name
  "GET /v1/runs/{id}/streams": {
    path: { "id": string };
    query: {  };
    body: null;
    answer: {
      data: Array<Stream>;
    };
  };
  // List the chunks of a stream
  "GET /v1/runs/{id}/streams/{name}": {
    path: { "id": string; "name": string };
    query: { "decoded"?: boolean; "limit"?: number; "cursor"?: string };
    body: null;
    answer: Chunks;
  };
  // Follow a stream until it is closed
  "GET /v1/runs/{id}/streams/{name}/tail": {
    path: { "id": string; "name": string };
    query: { "from"?: number; "decoded"?: boolean; "wait"?: boolean };
    body: null;
    answer: null;
  };
  // List a run's events
  "GET /v1/runs/{id}/events": {
    path: { "id": string };
    query: { "after"?: number; "type"?: Array<EventType>; "correlationId"?: string; "from"?: string; "to"?: string; "payloads"?: boolean; "limit"?: number; "cursor"?: string; "order"?: "asc" | "desc" };
    body: null;
    answer: {
      data: Array<Event>;
      cursor?: string;
    };
  };
  // Follow a run's log until the run has ended
  "GET /v1/runs/{id}/events/stream": {
    path: { "id": string };
    query: { "after"?: number; "type"?: Array<EventType>; "correlationId"?: string; "from"?: string; "to"?: string; "payloads"?: boolean };
    body: null;
    answer: null;
  };
  // Get an event, with its payload
  "GET /v1/runs/{id}/events/{seq}": {
    path: { "id": string; "seq": number };
    query: {  };
    body: null;
    answer: Event;
  };
  // Get the bytes of an event's payload, as they were sent
  "GET /v1/runs/{id}/events/{seq}/payload": {
    path: { "id": string; "seq": number };
    query: {  };
    body: null;
    answer: null;
  };
  // List what a run did and when
  "GET /v1/runs/{id}/timeline": {
    path: { "id": string };
    query: { "name"?: string; "status"?: Array<StepStatus>; "limit"?: number; "cursor"?: string; "order"?: "asc" | "desc" };
    body: null;
    answer: {
      data: Array<TimelinePart>;
      cursor?: Cursor;
    };
  };
  // Sum up the steps of a run by their names
  "GET /v1/runs/{id}/timeline/names": {
    path: { "id": string };
    query: { "cursor"?: string };
    body: null;
    answer: TimelineNames;
  };
  // Get the graph of a flow's run, and how far its steps are
  "GET /v1/runs/{id}/graph": {
    path: { "id": string };
    query: {  };
    body: null;
    answer: FlowGraph;
  };
  // List the events of all runs
  "GET /v1/events": {
    path: {  };
    query: { "runId"?: string; "type"?: Array<EventType>; "correlationId"?: string; "from"?: string; "to"?: string; "payloads"?: boolean; "limit"?: number; "cursor"?: string; "order"?: "asc" | "desc" };
    body: null;
    answer: {
      data: Array<Event>;
      cursor?: string;
    };
  };
  // Follow the events of all runs
  "GET /v1/events/stream": {
    path: {  };
    query: { "after"?: string; "runId"?: string; "type"?: Array<EventType>; "correlationId"?: string; "from"?: string; "to"?: string; "payloads"?: boolean };
    body: null;
    answer: null;
  };
  // Follow what changes, for a view
  "GET /v1/live": {
    path: {  };
    query: { "run"?: string; "after"?: number; "runs"?: boolean; "topics"?: boolean; "workflow"?: string; "status"?: Array<RunStatus>; "deployment"?: string; "key"?: string; "errorCode"?: string; "parentId"?: string; "forkOf"?: string; "createdAfter"?: string; "createdBefore"?: string; "endedAfter"?: string; "endedBefore"?: string; [key: `attribute.${string}`]: string };
    body: null;
    answer: null;
  };
  // Record a signal
  "POST /v1/signals/{name}": {
    path: { "name": string };
    query: {  };
    body: {
      data?: unknown;
      id?: string;
      keepFor?: string;
    };
    answer: Signal;
  };
  // List archived runs, newest first
  "GET /v1/archive/runs": {
    path: {  };
    query: { "workflow"?: string; "status"?: Array<RunStatus>; "deployment"?: string; "key"?: string; "errorCode"?: string; "parentId"?: string; "forkOf"?: string; "createdAfter"?: string; "createdBefore"?: string; "endedAfter"?: string; "endedBefore"?: string; [key: `attribute.${string}`]: string; "limit"?: number; "cursor"?: string; "order"?: "asc" | "desc" };
    body: null;
    answer: {
      data: Array<Run>;
      cursor?: Cursor;
    };
  };
  // Get an archived run
  "GET /v1/archive/runs/{id}": {
    path: { "id": string };
    query: {  };
    body: null;
    answer: Run;
  };
  // List the events of an archived run
  "GET /v1/archive/runs/{id}/events": {
    path: { "id": string };
    query: { "after"?: number; "payloads"?: boolean; "limit"?: number; "cursor"?: string };
    body: null;
    answer: {
      data: Array<Event>;
      cursor?: string;
    };
  };
  // Count runs in intervals of time
  "GET /v1/stats/runs": {
    path: {  };
    query: { "from"?: string; "to"?: string; "workflow"?: string; "step"?: string; "by"?: "workflow" | "deployment" };
    body: null;
    answer: {
      completeTo: CompleteTo;
      data: Array<RunSeries>;
    };
  };
  // Count steps by their name
  "GET /v1/stats/steps": {
    path: {  };
    query: { "from"?: string; "to"?: string; "workflow"?: string };
    body: null;
    answer: {
      completeTo: CompleteTo;
      data: Array<StepStats>;
    };
  };
  // Count failed runs by the code of their error
  "GET /v1/stats/failures": {
    path: {  };
    query: { "from"?: string; "to"?: string; "workflow"?: string };
    body: null;
    answer: {
      completeTo: CompleteTo;
      data: Array<FailureStats>;
    };
  };
  // Count the open runs and the queue
  "GET /v1/stats/now": {
    path: {  };
    query: {  };
    body: null;
    answer: Gauges;
  };
  // List what needs attention
  "GET /v1/attention": {
    path: {  };
    query: {  };
    body: null;
    answer: Attention;
  };
  // List failed runs in groups
  "GET /v1/failures": {
    path: {  };
    query: { "window"?: string };
    body: null;
    answer: FailureGroups;
  };
  // List the workflows that have runs
  "GET /v1/workflows": {
    path: {  };
    query: { "limit"?: number; "cursor"?: string };
    body: null;
    answer: {
      data: Array<WorkflowSummary>;
      cursor?: Cursor;
    };
  };
  // Find the runs that a text may mean
  "GET /v1/search": {
    path: {  };
    query: { "text"?: string };
    body: null;
    answer: Found;
  };
  // List stored signals in order of recording
  "GET /v1/signals": {
    path: {  };
    query: { "name"?: string; "limit"?: number; "cursor"?: string; "order"?: "asc" | "desc" };
    body: null;
    answer: {
      data: Array<ListedSignal>;
      cursor?: Cursor;
    };
  };
  // List flows by name
  "GET /v1/flows": {
    path: {  };
    query: {  };
    body: null;
    answer: {
      data: Array<Flow>;
    };
  };
  // Store a document as the newest version of its flow
  "POST /v1/flows": {
    path: {  };
    query: {  };
    body: {
      document: string;
      dryRun?: boolean;
    };
    answer: Flow;
  };
  // Get the JSON Schema of flow documents
  "GET /v1/flows/schema": {
    path: {  };
    query: {  };
    body: null;
    answer: null;
  };
  // Get a version of a flow
  "GET /v1/flows/{name}": {
    path: { "name": string };
    query: { "version"?: number };
    body: null;
    answer: Flow;
  };
  // Get the graph of a version of a flow
  "GET /v1/flows/{name}/graph": {
    path: { "name": string };
    query: { "version"?: number };
    body: null;
    answer: FlowGraph;
  };
  // Have an alias point to a version of a flow
  "PUT /v1/flows/{name}/aliases/{alias}": {
    path: { "name": string; "alias": string };
    query: {  };
    body: {
      version: number;
    };
    answer: FlowAlias;
  };
  // Remove an alias of a flow
  "DELETE /v1/flows/{name}/aliases/{alias}": {
    path: { "name": string; "alias": string };
    query: {  };
    body: null;
    answer: null;
  };
  // Retire a version of a flow
  "POST /v1/flows/{name}/versions/{version}/retire": {
    path: { "name": string; "version": number };
    query: {  };
    body: null;
    answer: Flow;
  };
  // List catalogs by name
  "GET /v1/catalogs": {
    path: {  };
    query: {  };
    body: null;
    answer: {
      data: Array<Catalog>;
    };
  };
  // Store a document as the newest version of its catalog
  "POST /v1/catalogs": {
    path: {  };
    query: {  };
    body: {
      document: string;
      dryRun?: boolean;
    };
    answer: Catalog;
  };
  // Get a version of a catalog
  "GET /v1/catalogs/{name}": {
    path: { "name": string };
    query: { "version"?: number };
    body: null;
    answer: Catalog;
  };
  // Show the plan that a start would have
  "POST /v1/catalogs/{name}/preview": {
    path: { "name": string };
    query: {  };
    body: {
      want: Array<string>;
      have?: Array<string>;
      haveAll?: Array<string>;
      version?: number;
    };
    answer: Preview;
  };
  // List the runs that collect starts
  "GET /v1/collections": {
    path: {  };
    query: { "limit"?: number; "cursor"?: string; "order"?: "asc" | "desc" };
    body: null;
    answer: {
      data: Array<Collection>;
      cursor?: Cursor;
    };
  };
  // Get a run that collects starts, and why it has not started
  "GET /v1/collections/{id}": {
    path: { "id": string };
    query: {  };
    body: null;
    answer: Collection;
  };
  // Drop a collection with its starts
  "DELETE /v1/collections/{id}": {
    path: { "id": string };
    query: {  };
    body: null;
    answer: null;
  };
  // Start the run of a collection now
  "POST /v1/collections/{id}/flush": {
    path: { "id": string };
    query: {  };
    body: null;
    answer: Run;
  };
  // List schedules by name
  "GET /v1/schedules": {
    path: {  };
    query: { "limit"?: number; "cursor"?: string; "order"?: "asc" | "desc" };
    body: null;
    answer: {
      data: Array<Schedule>;
      cursor?: Cursor;
    };
  };
  // Get a schedule, its next ticks, and why it starts nothing
  "GET /v1/schedules/{name}": {
    path: { "name": string };
    query: {  };
    body: null;
    answer: Schedule;
  };
  // Create or replace a schedule
  "PUT /v1/schedules/{name}": {
    path: { "name": string };
    query: {  };
    body: ScheduleSpec;
    answer: Schedule;
  };
  // Remove a schedule with its ticks
  "DELETE /v1/schedules/{name}": {
    path: { "name": string };
    query: {  };
    body: null;
    answer: null;
  };
  // Pause a schedule
  "POST /v1/schedules/{name}/pause": {
    path: { "name": string };
    query: {  };
    body: {
      note?: string;
    };
    answer: Schedule;
  };
  // Resume a paused schedule
  "POST /v1/schedules/{name}/resume": {
    path: { "name": string };
    query: {  };
    body: null;
    answer: Schedule;
  };
  // Start a run of a schedule now
  "POST /v1/schedules/{name}/trigger": {
    path: { "name": string };
    query: {  };
    body: null;
    answer: Tick;
  };
  // Start runs for ticks of the past
  "POST /v1/schedules/{name}/backfill": {
    path: { "name": string };
    query: {  };
    body: {
      from: string;
      to: string;
      repeat?: boolean;
    };
    answer: Schedule;
  };
  // End the backfill under way
  "DELETE /v1/schedules/{name}/backfill": {
    path: { "name": string };
    query: {  };
    body: null;
    answer: Schedule;
  };
  // List what was decided about ticks, the last decision first
  "GET /v1/schedules/{name}/ticks": {
    path: { "name": string };
    query: { "limit"?: number; "cursor"?: string; "order"?: "asc" | "desc" };
    body: null;
    answer: {
      data: Array<Tick>;
      cursor?: Cursor;
    };
  };
  // List triggers by name
  "GET /v1/triggers": {
    path: {  };
    query: { "limit"?: number; "cursor"?: string; "order"?: "asc" | "desc" };
    body: null;
    answer: {
      data: Array<Trigger>;
      cursor?: Cursor;
    };
  };
  // Get a trigger, and what became of the last events
  "GET /v1/triggers/{name}": {
    path: { "name": string };
    query: {  };
    body: null;
    answer: Trigger;
  };
  // Create or replace a trigger
  "PUT /v1/triggers/{name}": {
    path: { "name": string };
    query: {  };
    body: TriggerSpec;
    answer: Trigger;
  };
  // Remove a trigger with its history
  "DELETE /v1/triggers/{name}": {
    path: { "name": string };
    query: {  };
    body: null;
    answer: null;
  };
  // Pause a trigger
  "POST /v1/triggers/{name}/pause": {
    path: { "name": string };
    query: {  };
    body: {
      note?: string;
    };
    answer: Trigger;
  };
  // Resume a paused trigger
  "POST /v1/triggers/{name}/resume": {
    path: { "name": string };
    query: {  };
    body: null;
    answer: Trigger;
  };
  // List what became of events, the last decision first
  "GET /v1/triggers/{name}/history": {
    path: { "name": string };
    query: { "limit"?: number; "cursor"?: string; "order"?: "asc" | "desc" };
    body: null;
    answer: {
      data: Array<TriggerEvent>;
      cursor?: Cursor;
    };
  };
  // List limits by name
  "GET /v1/limits": {
    path: {  };
    query: { "limit"?: number; "cursor"?: string; "order"?: "asc" | "desc" };
    body: null;
    answer: {
      data: Array<Limit>;
      cursor?: Cursor;
    };
  };
  // Get a limit, and how many hold or await a slot
  "GET /v1/limits/{name}": {
    path: { "name": string };
    query: {  };
    body: null;
    answer: Limit;
  };
  // Create or replace a limit
  "PUT /v1/limits/{name}": {
    path: { "name": string };
    query: {  };
    body: LimitSpec;
    answer: Limit;
  };
  // Remove a limit
  "DELETE /v1/limits/{name}": {
    path: { "name": string };
    query: { "force"?: boolean };
    body: null;
    answer: null;
  };
  // List the keys of a limit that something holds or awaits
  "GET /v1/limits/{name}/keys": {
    path: { "name": string };
    query: { "limit"?: number; "cursor"?: string };
    body: null;
    answer: {
      data: Array<LimitKey>;
      cursor?: Cursor;
    };
  };
  // Get who holds the slots of a key, and who waits
  "GET /v1/limits/{name}/slots": {
    path: { "name": string };
    query: { "key"?: string; "limit"?: number };
    body: null;
    answer: Slots;
  };
  // List policies by workflow
  "GET /v1/policies": {
    path: {  };
    query: { "limit"?: number; "cursor"?: string; "order"?: "asc" | "desc" };
    body: null;
    answer: {
      data: Array<Policy>;
      cursor?: Cursor;
    };
  };
  // Get the policy of a workflow
  "GET /v1/policies/{workflow}": {
    path: { "workflow": string };
    query: {  };
    body: null;
    answer: Policy;
  };
  // Create or replace the policy of a workflow
  "PUT /v1/policies/{workflow}": {
    path: { "workflow": string };
    query: {  };
    body: PolicySpec;
    answer: Policy;
  };
  // Remove the policy of a workflow
  "DELETE /v1/policies/{workflow}": {
    path: { "workflow": string };
    query: {  };
    body: null;
    answer: null;
  };
  // List all deployments by ID
  "GET /v1/deployments": {
    path: {  };
    query: {  };
    body: null;
    answer: {
      data: Array<Deployment>;
    };
  };
  // Get a deployment
  "GET /v1/deployments/{id}": {
    path: { "id": string };
    query: {  };
    body: null;
    answer: Deployment;
  };
  // Register a deployment, or change it
  "PUT /v1/deployments/{id}": {
    path: { "id": string };
    query: {  };
    body: Registration;
    answer: Deployment;
  };
  // Change a deployment, such as its URL
  "PATCH /v1/deployments/{id}": {
    path: { "id": string };
    query: {  };
    body: Registration;
    answer: Deployment;
  };
  // Remove a deployment
  "DELETE /v1/deployments/{id}": {
    path: { "id": string };
    query: {  };
    body: null;
    answer: null;
  };
  // Replay the open runs of a deployment before their code changes
  "POST /v1/deployments/{id}/check": {
    path: { "id": string };
    query: {  };
    body: {
      url?: string;
      limit?: number;
      cursor?: string;
    };
    answer: CheckedRuns;
  };
  // List what is paused, the oldest pause first
  "GET /v1/pauses": {
    path: {  };
    query: {  };
    body: null;
    answer: {
      data: Array<Pause>;
    };
  };
  // Pause a run, a workflow or a deployment
  "PUT /v1/pauses/{kind}/{name}": {
    path: { "kind": PauseKind; "name": string };
    query: {  };
    body: {
      note?: string;
    };
    answer: Pause;
  };
  // Resume what is paused
  "DELETE /v1/pauses/{kind}/{name}": {
    path: { "kind": PauseKind; "name": string };
    query: {  };
    body: null;
    answer: null;
  };
  // Take calls as a worker
  "POST /v1/work": {
    path: {  };
    query: {  };
    body: {
      deployment: string;
      worker: string;
      slots: number;
      wait?: string;
      calls?: Array<string>;
      registration?: WorkerRegistration;
    };
    answer: TakenCalls;
  };
  // List all secrets by name, without their values
  "GET /v1/secrets": {
    path: {  };
    query: {  };
    body: null;
    answer: {
      data: Array<Secret>;
    };
  };
  // Create or replace a secret
  "PUT /v1/secrets/{name}": {
    path: { "name": string };
    query: {  };
    body: {
      values: Array<string>;
      origins?: Array<string>;
    };
    answer: Secret;
  };
  // Remove a secret
  "DELETE /v1/secrets/{name}": {
    path: { "name": string };
    query: {  };
    body: null;
    answer: null;
  };
  // List all signing keys, oldest first, without their secrets
  "GET /v1/signing-keys": {
    path: {  };
    query: {  };
    body: null;
    answer: {
      data: Array<SigningKey>;
    };
  };
  // Create a signing key, and return its secret once
  "POST /v1/signing-keys": {
    path: {  };
    query: {  };
    body: null;
    answer: MadeSigningKey;
  };
  // Delete a signing key
  "DELETE /v1/signing-keys/{id}": {
    path: { "id": string };
    query: {  };
    body: null;
    answer: null;
  };
  // List messages
  "GET /v1/messages": {
    path: {  };
    query: { "state"?: QueueState; "runId"?: string; "deployment"?: string; "work"?: Work; "errorContains"?: string; "limit"?: number; "cursor"?: string; "order"?: "asc" | "desc" };
    body: null;
    answer: {
      data: Array<Message>;
      cursor?: Cursor;
    };
  };
  // Count the messages by state
  "GET /v1/messages/count": {
    path: {  };
    query: {  };
    body: null;
    answer: MessageCounts;
  };
  // Retry all matching messages now
  "POST /v1/messages/retry": {
    path: {  };
    query: {  };
    body: {
      state?: "parked" | "retrying";
      runId?: string;
      deployment?: string;
      work?: Work;
      errorContains?: string;
      messageIds?: Array<string>;
      dryRun?: boolean;
      limit?: number;
    };
    answer: ChangedMessages;
  };
  // Discard all matching messages
  "POST /v1/messages/discard": {
    path: {  };
    query: {  };
    body: {
      state?: "parked" | "retrying" | "due" | "delayed";
      runId?: string;
      deployment?: string;
      work?: Work;
      errorContains?: string;
      messageIds?: Array<string>;
      dryRun?: boolean;
      limit?: number;
    };
    answer: ChangedMessages;
  };
  // Get a message
  "GET /v1/messages/{id}": {
    path: { "id": string };
    query: {  };
    body: null;
    answer: Message;
  };
  // Discard a message in any state
  "DELETE /v1/messages/{id}": {
    path: { "id": string };
    query: {  };
    body: null;
    answer: null;
  };
  // Retry a failed message now
  "POST /v1/messages/{id}/retry": {
    path: { "id": string };
    query: {  };
    body: null;
    answer: Message;
  };
  // Get the project and the role of the key that makes the request
  "GET /v1/whoami": {
    path: {  };
    query: {  };
    body: null;
    answer: Client;
  };
  // List a project's API keys, newest first
  "GET /v1/keys": {
    path: {  };
    query: { "project"?: string; "limit"?: number; "cursor"?: string; "order"?: "asc" | "desc" };
    body: null;
    answer: {
      data: Array<Key>;
      cursor?: Cursor;
    };
  };
  // Create an API key
  "POST /v1/keys": {
    path: {  };
    query: {  };
    body: {
      name: string;
      role: Role;
      deployments?: string;
      project?: string;
      expiresAt?: string;
    };
    answer: MadeKey;
  };
  // Get an API key
  "GET /v1/keys/{id}": {
    path: { "id": string };
    query: { "project"?: string };
    body: null;
    answer: Key;
  };
  // Revoke an API key permanently
  "DELETE /v1/keys/{id}": {
    path: { "id": string };
    query: { "project"?: string };
    body: null;
    answer: null;
  };
  // List all projects by name
  "GET /v1/projects": {
    path: {  };
    query: {  };
    body: null;
    answer: {
      data: Array<Project>;
    };
  };
  // Create a project unless it exists, set its limits, encrypt, pause or resume it
  "PUT /v1/projects/{name}": {
    path: { "name": string };
    query: {  };
    body: {
      paused?: boolean;
      encryption?: "on" | "rotate" | "run-keys" | "rewrap" | "shred";
      limits?: {
        dailyStarts?: number | null;
        storageBytes?: number | null;
        maxDepth?: number | null;
        maxDescendants?: number | null;
      };
    };
    answer: Project;
  };
  // List a project's audit log, newest first
  "GET /v1/audit": {
    path: {  };
    query: { "project"?: string; "actor"?: string; "action"?: string; "subject"?: string; "limit"?: number; "cursor"?: string; "order"?: "asc" | "desc" };
    body: null;
    answer: {
      data: Array<Action>;
      cursor?: Cursor;
    };
  };
  // List the servers that deliver, and the stranded runs of all projects
  "GET /v1/servers": {
    path: {  };
    query: {  };
    body: null;
    answer: Servers;
  };
  // Make a code that opens the project in a browser
  "POST /v1/ui/codes": {
    path: {  };
    query: {  };
    body: null;
    answer: SignInCode;
  };
  // List the sessions of the dashboard that have opened the project
  "GET /v1/ui/sessions": {
    path: {  };
    query: { "limit"?: number; "cursor"?: string };
    body: null;
    answer: {
      data: Array<Session>;
      cursor?: Cursor;
    };
  };
  // End a session of the dashboard
  "DELETE /v1/ui/sessions/{id}": {
    path: { "id": string };
    query: {  };
    body: null;
    answer: null;
  };
}

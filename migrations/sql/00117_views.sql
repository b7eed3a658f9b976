-- Views for reports: where runs come from, the child of a step, waits, signals and pauses.

-- +goose Up
CREATE OR REPLACE VIEW v_runs AS
SELECT r.id AS run_id, r.project, r.workflow_name AS workflow, r.deployment_id AS deployment, r.status::text AS status,
    r.unique_key, r.idempotency_key, r.attributes,
    payload_json(first.payload) AS input,
    CASE WHEN r.status = 'completed' THEN payload_json(last.payload) END AS output,
    CASE WHEN r.status = 'failed' THEN payload_json(last.payload) END AS error,
    r.error_code,
    r.parent_id AS parent_run_id, r.parent_step AS parent_step_id,
    r.root_id AS root_run_id, r.depth, r.last_seq AS events,
    r.created_at, r.started_at, r.completed_at AS ended_at, r.deadline,
    r.fork_of AS forked_from, r.fork_seq AS forked_events, r.continued_from, r.continued_as
FROM runs r
LEFT JOIN events first ON first.run_id = r.id AND first.seq = 1
LEFT JOIN events last ON last.run_id = r.id AND last.seq = r.end_seq;

-- The token of a webhook is a secret, in the log as in v_hooks.
CREATE OR REPLACE VIEW v_events AS
SELECT e.run_id, e.seq, e.project, e.type::text AS type, e.correlation_id AS entity_id,
    CASE WHEN e.data ->> 'isWebhook' = 'true' THEN e.data - 'token' ELSE e.data END AS data,
    payload_json(e.payload) AS payload, e.payload AS payload_bytes, e.created_at, e.occurred_at
FROM events e;

CREATE OR REPLACE VIEW v_steps AS
SELECT s.run_id, s.id AS step_id, r.project, r.workflow_name AS workflow, s.name, s.status::text AS status, s.attempt,
    payload_json(input.payload) AS input,
    CASE WHEN s.status = 'completed' THEN payload_json(result.payload) END AS output,
    CASE WHEN s.status <> 'completed' THEN payload_json(result.payload) END AS error,
    coalesce(result.data ->> 'errorCode', '') AS error_code,
    s.created_at, s.started_at, s.completed_at AS ended_at, s.retry_after,
    coalesce(input.data -> 'step' ->> 'childId', '') AS child_run_id
FROM steps s
JOIN runs r ON r.id = s.run_id
LEFT JOIN events input ON input.run_id = s.run_id AND input.seq = s.created_seq
LEFT JOIN events result ON result.run_id = s.run_id AND result.seq = s.result_seq;

CREATE VIEW v_waits AS
SELECT w.run_id, w.id AS wait_id, r.project, r.workflow_name AS workflow, w.status, w.resume_at, w.created_at,
    w.completed_at AS ended_at
FROM waits w JOIN runs r ON r.id = w.run_id;

CREATE VIEW v_signals AS
SELECT s.id AS signal_id, s.project, s.name, s.key AS idempotency_key, payload_json(s.data) AS data,
    s.root_id AS root_run_id, s.created_at, s.expires_at
FROM signals s;

CREATE VIEW v_pauses AS
SELECT p.project, p.kind, p.name, p.note, p.paused_by, p.paused_at FROM pauses p WHERE p.resumed_at IS NULL;

-- +goose Down
DROP VIEW v_pauses, v_signals, v_waits, v_steps, v_events, v_runs;

CREATE VIEW v_runs AS
SELECT r.id AS run_id, r.project, r.workflow_name AS workflow, r.deployment_id AS deployment, r.status::text AS status,
    r.unique_key, r.idempotency_key, r.attributes,
    payload_json(first.payload) AS input,
    CASE WHEN r.status = 'completed' THEN payload_json(last.payload) END AS output,
    CASE WHEN r.status = 'failed' THEN payload_json(last.payload) END AS error,
    r.error_code,
    r.parent_id AS parent_run_id, r.parent_step AS parent_step_id,
    r.root_id AS root_run_id, r.depth, r.last_seq AS events,
    r.created_at, r.started_at, r.completed_at AS ended_at, r.deadline
FROM runs r
LEFT JOIN events first ON first.run_id = r.id AND first.seq = 1
LEFT JOIN events last ON last.run_id = r.id AND last.seq = r.end_seq;

CREATE VIEW v_events AS
SELECT e.run_id, e.seq, e.project, e.type::text AS type, e.correlation_id AS entity_id, e.data,
    payload_json(e.payload) AS payload, e.payload AS payload_bytes, e.created_at, e.occurred_at
FROM events e;

CREATE VIEW v_steps AS
SELECT s.run_id, s.id AS step_id, r.project, r.workflow_name AS workflow, s.name, s.status::text AS status, s.attempt,
    payload_json(input.payload) AS input,
    CASE WHEN s.status = 'completed' THEN payload_json(result.payload) END AS output,
    CASE WHEN s.status <> 'completed' THEN payload_json(result.payload) END AS error,
    coalesce(result.data ->> 'errorCode', '') AS error_code,
    s.created_at, s.started_at, s.completed_at AS ended_at, s.retry_after
FROM steps s
JOIN runs r ON r.id = s.run_id
LEFT JOIN events input ON input.run_id = s.run_id AND input.seq = s.created_seq
LEFT JOIN events result ON result.run_id = s.run_id AND result.seq = s.result_seq;

-- Rows of the project shop in each table, and of another one in some, so that their numbers differ.
INSERT INTO projects (name, daily_starts) VALUES ('shop', 7), ('other', NULL);
INSERT INTO api_keys (id, project, name, role, prefix, hash, created_at)
    VALUES ('key_1', 'shop', 'k', 'admin', 'sw_eu1_abcdef', sha256('k'), now());
INSERT INTO deployments (project, id, url, max_concurrent) VALUES ('shop', 'order@1', 'http://127.0.0.1:1', 3);
INSERT INTO flow_versions (project, name, version, deployment_id, digest, document, created_at)
    VALUES ('shop', 'order', 1, 'order@1', '\x01', 'flow: order', now());
INSERT INTO flow_aliases (project, name, alias, version, id, updated_at) VALUES ('shop', 'order', 'live', 1, 'order@live', now());
INSERT INTO catalogs (project, name, version, digest, document, created_at) VALUES ('shop', 'c', 1, '\x01', 'catalog: c', now());
INSERT INTO secrets (project, name, "values", created_at, updated_at) VALUES ('shop', 's', '{v}', now(), now());
INSERT INTO signing_keys (project, id, slot, secret, created_at) VALUES ('shop', 'whk_1', 1, sha256('s'), now());
INSERT INTO data_keys (id, project, wrapped_by, wrapped, revision)
    VALUES (substr(sha256('a'), 1, 16), 'other', 'm', '\x01', 4), (substr(sha256('b'), 1, 16), 'shop', 'm', '\x01', 5);
INSERT INTO run_keys (run_id, project, secret) VALUES ('wrun_1', 'shop', sha256('r'));
INSERT INTO retention (project, keep) VALUES ('shop', '30 days');
INSERT INTO limits (project, name, per_key, total, rate, per, burst, fair, on_full, paused, created_at, updated_at)
    VALUES ('shop', 'l', 1, 2, 3, '1 s', 4, true, 'wait', false, now(), now());
INSERT INTO policies (project, workflow, limits, priority, created_at, updated_at)
    VALUES ('shop', 'order', '[]', '1 s', now(), now());
INSERT INTO limit_clocks (project, name, kind, key, at) VALUES ('shop', 'l', 'rate', 'k', now());
INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, last_seq, created_at, updated_at)
    VALUES ('wrun_1', 'shop', 'order@1', 'order', 'running', 2, 2, now(), now()),
        ('wrun_2', 'other', 'd', 'w', 'running', 2, 1, now(), now());
INSERT INTO events (xid, run_id, seq, created_at, spec_version, type, data, payload, project, blob_size)
    VALUES ('40', 'wrun_1', 1, now(), 2, 'run_created', '{"a": 1}', '\x00ff', 'shop', NULL),
        ('41', 'wrun_1', 2, now(), 2, 'run_started', '{}', '\x01', 'shop', 9),
        ('42', 'wrun_2', 1, now(), 2, 'run_created', '{}', NULL, 'other', NULL);
INSERT INTO steps (run_id, id, name, status, attempt, spec_version, created_seq, created_at, updated_at)
    VALUES ('wrun_1', 'step_1', 's', 'running', 1, 2, 1, now(), now());
INSERT INTO hooks (run_id, id, project, token, is_webhook, spec_version, created_seq, created_at)
    VALUES ('wrun_1', 'hook_1', 'shop', 't', true, 2, 1, now());
INSERT INTO waits (run_id, id, status, spec_version, resume_at, created_at, updated_at, project)
    VALUES ('wrun_1', 'wait_1', 'waiting', 2, now(), now(), now(), 'shop');
INSERT INTO run_attributes (run_id, key, value, project, workflow_name, created_at)
    VALUES ('wrun_1', 'k', 'v', 'shop', 'order', now());
INSERT INTO run_store (run_id, key, value, seq) VALUES ('wrun_1', 'k', '1', 2);
INSERT INTO run_wakes (run_id, acked_seq) VALUES ('wrun_1', 1), ('wrun_2', 1);
INSERT INTO step_results (run_id, step_id, result) VALUES ('wrun_1', 'step_1', '{"a": 1}');
INSERT INTO archived_runs (id, project, deployment_id, workflow_name, status, spec_version, last_seq, created_at, updated_at,
    attributes, error_code, end_seq, driver, unique_key, idempotency_key, parent_id, parent_step, detached, store_seq, seq_in_band,
    root_id, depth, continued_from, continued_as, fork_of, fork_seq)
    SELECT 'wrun_0', project, deployment_id, workflow_name, status, spec_version, last_seq, created_at, updated_at, attributes,
        error_code, end_seq, driver, unique_key, idempotency_key, parent_id, parent_step, detached, store_seq, seq_in_band,
        root_id, depth, continued_from, continued_as, fork_of, fork_seq
    FROM runs WHERE id = 'wrun_1';
INSERT INTO archived_attributes (run_id, key, value, project, created_at) VALUES ('wrun_0', 'k', 'v', 'shop', now());
INSERT INTO archive_files (run_id, file, part, last, project, data) VALUES ('wrun_0', 7, 0, true, 'shop', '\x01');
INSERT INTO blobs (id, project, run_id, size)
    VALUES ('00000000-0000-4000-8000-000000000001', 'shop', 'wrun_1', 9),
        ('00000000-0000-4000-8000-000000000002', 'shop', NULL, 9);
INSERT INTO streams (project, name, run_id, chunks, created_at)
    VALUES ('other', 's', 'wrun_2', 1, now()), ('shop', 'a', 'wrun_1', 1, now()), ('other', 't', 'wrun_2', 0, now()),
        ('shop', 'b', 'wrun_1', 1, now());
INSERT INTO stream_chunks (stream_id, idx, data) SELECT id, 0, convert_to(project || name, 'UTF8') FROM streams WHERE chunks > 0;
INSERT INTO stream_writers (stream_id, writer, attempt, next) SELECT id, 'w', name, 1 FROM streams WHERE chunks > 0;
INSERT INTO pauses (project, kind, name, paused_by) VALUES ('other', 'workflow', 'w', 'me'), ('shop', 'workflow', 'order', 'me'),
    ('shop', 'run', 'wrun_1', 'me');
INSERT INTO messages (id, project, topic, deployment_id, run_id, content_type, body, expires_at, due_at, ticket, lease, holder,
    held_by, delivery_count, work, subject, unreached_count)
    VALUES ('msg_1', 'shop', 't', 'order@1', 'wrun_1', '', '\x01', now() + interval '1 day', now() + interval '1 hour', 7, 'rh_1',
            'proc_1', NULL, 2, 'run', '', 3),
        ('msg_2', 'shop', 't', 'order@1', 'wrun_1', '', '\x02', now() + interval '1 day', '2201-01-01', 8, '', '',
            (SELECT id FROM pauses WHERE project = 'shop' AND kind = 'run'), 0, 'step', 'step_1', 3);
INSERT INTO message_keys (project, deployment_id, topic, key, message_id, expires_at)
    VALUES ('shop', 'order@1', 't', 'k', 'msg_1', now() + interval '1 day');
INSERT INTO permits (holder, project, name, key, tenant, cost, run_id, message_id, created_at, rank_at)
    VALUES ('msg_2', 'shop', 'l', 'k', '', 1, 'wrun_1', 'msg_2', now(), now());
INSERT INTO signals (project, id, name, data, keep_until, expires_at, xid)
    VALUES ('shop', 'sig_1', 's', '{}', now() + interval '1 day', now() + interval '1 day', '41');
INSERT INTO schedules (project, name, id, cron, every, time_zone, workflow, deployment, input, attributes, timeout, overlap,
    catch_up, catch_up_window, jitter, decided_until, created_at, updated_at)
    VALUES ('shop', 's', 'sched_1', '* * * * *', '0', 'UTC', 'order', '', '\x', '{}', '0', 'skip', 'all', '1 h', '0', now(), now(), now());
INSERT INTO schedule_ticks (schedule_id, kind, at, project, seq, decision, run_id, reason, count, last_at, decided_at)
    VALUES ('sched_1', 'tick', now(), 'shop', 1, 'started', 'wrun_1', '', 1, now(), now());
INSERT INTO collections (run_id, project, workflow, kind, key, quiet, max_wait, keep, size, max_bytes, deployment, data, timeout,
    input, count, bytes, first_at, last_at, due_at)
    VALUES ('wrun_3', 'shop', 'order', 'batch', 'k', '1 s', '1 m', 'all', 2, 10, '', '{}', '0', '\x', 1, 1, now(), now(), now());
INSERT INTO collected (run_id, seq, project, idempotency_key, digest, input) VALUES ('wrun_3', 1, 'shop', 'i', 'd', '\x01');
INSERT INTO triggers (project, name, id, kind, source, condition, statuses, verify, secret, workflow, deployment, input,
    attributes, unique_key, joins, timeout, pause_note, revision, created_at, updated_at)
    VALUES ('other', 't', 'trg_0', 'signal', 's', '', '{}', '', '', 'w', '', '\x', '{}', '', false, '0', '', 1, now(), now()),
        ('shop', 't', 'trg_1', 'signal', 's', '', '{}', '', '', 'order', '', '\x', '{}', '', false, '0', '', 1, now(), now());
INSERT INTO trigger_events (trigger_id, event, project, decision, run_id, reason, decided_at)
    VALUES ('trg_0', 'e', 'other', 'skipped', '', '', now()), ('trg_1', 'b', 'shop', 'started', 'wrun_1', '', now()),
        ('trg_1', 'a', 'shop', 'skipped', '', '', now());
INSERT INTO stats (project, width, metric, at, workflow, label, took, count) VALUES ('shop', 1, 'm', now(), 'order', '', 0, 3);
INSERT INTO stats_progress (project, xid, run_id, seq) VALUES ('shop', '41', 'wrun_1', 2);
INSERT INTO audit (project, actor, action, subject, detail)
    VALUES ('other', 'cli', 'key.create', 'k', '{}'), ('shop', 'cli', 'key.create', 'key_1', '{}'),
        ('shop', 'cli', 'secret.put', 's', '{}');
INSERT INTO arrivals (project, cell, calls, departed_at) VALUES ('shop', 'ap1', sha256('c'), now());
INSERT INTO arrived_epochs (project, id, kept) VALUES ('shop', '01234567', 12);

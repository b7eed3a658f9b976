package model_test

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/e2e/model"
)

// rows reads the rows of the runs into the model's types. Logs are read over HTTP instead.
func (s *server) rows(ctx context.Context, runs []string) (map[string]*model.History, error) {
	found := map[string]*model.History{}
	var b pgx.Batch
	queueRuns(&b, runs, found)
	queueSteps(&b, runs, found)
	queueHooks(&b, runs, s.clock(), found)
	queueWaits(&b, runs, found)
	return found, s.pool.SendBatch(ctx, &b).Close()
}

// each scans each row of a query into the pointers, and then calls add.
func each(q *pgx.QueuedQuery, into []any, add func()) {
	q.Query(func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, into, func() error { add(); return nil })
		return err
	})
}

func queueRuns(b *pgx.Batch, runs []string, found map[string]*model.History) {
	var r model.Run
	var created, updated, started, ended *time.Time
	var input, output []byte
	var inBand int
	each(b.Queue(`
		SELECT r.id, status, deployment_id, workflow_name, r.spec_version, attributes, error_code,
			r.created_at, updated_at, started_at, completed_at, i.payload, o.payload, seq_in_band
		FROM runs r
			LEFT JOIN events i ON i.run_id = r.id AND i.seq = 1
			LEFT JOIN events o ON o.run_id = r.id AND o.seq = end_seq
		WHERE r.id = ANY($1)`, runs),
		[]any{
			&r.ID, &r.Status, &r.Deployment, &r.Workflow, &r.Spec, &r.Attributes, &r.ErrorCode,
			&created, &updated, &started, &ended, &input, &output, &inBand,
		},
		func() {
			r.Created, r.Updated, r.Started, r.Ended = ms(created), ms(updated), ms(started), ms(ended)
			r.Input, r.Output = string(input), string(output)
			found[r.ID] = &model.History{
				Run: r, InBand: inBand, Steps: map[string]model.Step{}, Hooks: map[string]model.Hook{}, Waits: map[string]model.Wait{},
			}
			r.Attributes = nil // or the next scan would add to the same map
		})
}

func queueSteps(b *pgx.Batch, runs []string, found map[string]*model.History) {
	var run string
	var v model.Step
	var created, updated, started, ended, retry *time.Time
	var input, output []byte
	each(b.Queue(`
		SELECT s.run_id, s.id, name, status, attempt, s.created_at, updated_at, started_at, completed_at, retry_after,
			i.payload, o.payload
		FROM steps s
			LEFT JOIN events i ON i.run_id = s.run_id AND i.seq = created_seq
			LEFT JOIN events o ON o.run_id = s.run_id AND o.seq = result_seq
		WHERE s.run_id = ANY($1)`, runs),
		[]any{
			&run, &v.ID, &v.Name, &v.Status, &v.Attempt, &created, &updated, &started, &ended, &retry, &input, &output,
		},
		func() {
			v.Created, v.Updated, v.Started, v.Ended = ms(created), ms(updated), ms(started), ms(ended)
			v.RetryAfter, v.Input, v.Output = ms(retry), string(input), string(output)
			found[run].Steps[v.ID] = v
		})
}

// queueHooks reads the hooks that have not expired. Rows of expired hooks are deleted only when their token is claimed.
func queueHooks(b *pgx.Batch, runs []string, now time.Time, found map[string]*model.History) {
	var v model.Hook
	var created, retain *time.Time
	var metadata []byte
	each(b.Queue(`
		SELECT h.run_id, id, token, is_webhook, h.created_at, retain_until, payload,
			coalesce(concat_ws('/', claimed_from->>'runId', claimed_from->>'hookId'), '')
		FROM hooks h LEFT JOIN events ON events.run_id = h.run_id AND seq = created_seq
		WHERE h.run_id = ANY($1) AND (expires_at IS NULL OR expires_at > $2)`, runs, now),
		[]any{&v.Run, &v.ID, &v.Token, &v.Webhook, &created, &retain, &metadata, &v.From},
		func() {
			v.Created, v.Retain, v.Metadata = ms(created), ms(retain), string(metadata)
			found[v.Run].Hooks[v.ID] = v
		})
}

func queueWaits(b *pgx.Batch, runs []string, found map[string]*model.History) {
	var run string
	var v model.Wait
	var due, created, updated, ended *time.Time
	each(b.Queue(`
		SELECT run_id, id, status, resume_at, created_at, updated_at, completed_at
		FROM waits WHERE run_id = ANY($1)`, runs),
		[]any{&run, &v.ID, &v.Status, &due, &created, &updated, &ended},
		func() {
			v.Due, v.Created, v.Updated, v.Ended = ms(due), ms(created), ms(updated), ms(ended)
			found[run].Waits[v.ID] = v
		})
}

func ms(t *time.Time) int64 {
	if t == nil {
		return 0
	}
	return t.UnixMilli()
}

// messages reads the rows of the messages. A worker's temporary lease of a message without an address can be visible
// for a moment.
func (s *server) messages(ctx context.Context, ids []string) (map[string]model.Message, error) {
	rows, err := s.pool.Query(ctx, `
		SELECT id, topic, body, ticket = 0, CASE WHEN due_at > now() THEN lease ELSE '' END, delivery_count
		FROM messages WHERE id = ANY($1)`, ids)
	if err != nil {
		return nil, err
	}
	found := map[string]model.Message{}
	var m model.Message
	var body []byte
	_, err = pgx.ForEachRow(rows, []any{&m.ID, &m.Topic, &body, &m.Delayed, &m.Handle, &m.Count}, func() error {
		m.Body = string(body)
		found[m.ID] = m
		return nil
	})
	return found, err
}

// jobs counts the pending jobs of each message that has any.
func (s *server) jobs(ctx context.Context, ids []string) (map[string]int, error) {
	rows, err := s.pool.Query(ctx, `
		SELECT m.id, count(*)
		FROM messages m JOIN river_job j ON j.args->>'message' = m.id AND (j.args->>'ticket')::integer = m.ticket
		WHERE m.id = ANY($1) AND j.state IN ('available', 'pending', 'retryable', 'running', 'scheduled')
		GROUP BY m.id`, ids)
	if err != nil {
		return nil, err
	}
	found := map[string]int{}
	var id string
	var n int
	_, err = pgx.ForEachRow(rows, []any{&id, &n}, func() error {
		found[id] = n
		return nil
	})
	return found, err
}

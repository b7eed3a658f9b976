package queue

import (
	"time"

	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/pg"
)

// severalSteps divides messages into new work on steps that one statement can store, and others. There are none of the
// former or at least two.
func severalSteps(messages []message.Message) (others, steps []message.Message) {
	for _, m := range messages {
		if m.New && m.Work == message.WorkStep && !m.Gated && m.Limits == nil && m.Body == nil &&
			(len(steps) == 0 || m.RunID == steps[0].RunID) {
			steps = append(steps, m)
		} else {
			others = append(others, m)
		}
	}
	if len(steps) < 2 {
		return messages, nil
	}
	return others, steps
}

// writeSteps adds the write of new work on several steps.
func (b *workBatch) writeSteps(w pg.Writer, q *Queue, steps []message.Message) []*storedWork {
	if len(steps) == 0 {
		return nil
	}
	from := len(b.stored)
	for _, m := range steps {
		b.add(q, m)
	}
	w.Add(insertSteps(steps, b.stored[from:]))
	return b.stored[from:]
}

// insertSteps is [upsertWork] for new work on several steps of a run, by a statement whose text does not depend on
// their number.
func insertSteps(work []message.Message, stored []*storedWork) pg.Write {
	found := make(map[string]*storedWork, len(work))
	var row storedWork
	var ids, topics, deployments, subjects, handles, holders []string
	var delays, leases []time.Duration
	var tickets, deliveries []int
	var begins []bool
	for i, m := range work {
		s := stored[i]
		found[s.ID] = s
		ids, topics, deployments = append(ids, s.ID), append(topics, m.Topic), append(deployments, m.DeploymentID)
		subjects, handles, holders = append(subjects, m.Subject), append(handles, s.handle), append(holders, s.holder)
		delays, leases = append(delays, m.Delay), append(leases, s.lease)
		tickets, deliveries = append(tickets, ticketOf(m)), append(deliveries, m.Deliveries)
		begins = append(begins, m.BeginsRun)
	}
	return pg.Write{What: "enqueue work", Rows: len(work), SQL: `
		INSERT INTO messages AS m (id, project, topic, deployment_id, run_id, work, subject, content_type, body,
			expires_at, ticket, due_at, begins_run, lease, holder, delivery_count)
		SELECT id, $1::text, topic, deployment_id, $2::text, $3::text, subject, '', '', now() + delay + $4::interval, ticket,
			now() + CASE WHEN taken THEN lasts ELSE delay END, begins AND NOT taken, CASE WHEN taken THEN handle ELSE '' END,
			CASE WHEN taken THEN holder ELSE '' END, deliveries + taken::integer
		FROM (SELECT n.*, ` + mayLease("holder", "$1::text", "deployment_id", "$3::text") + ` AS taken
			FROM unnest($5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[], $11::interval[],
				$12::interval[], $13::integer[], $14::integer[], $15::boolean[])
				AS n (id, topic, deployment_id, subject, handle, holder, delay, lasts, ticket, deliveries, begins)
			OFFSET 0) AS o -- OFFSET 0: evaluate it once
		WHERE true`,
		Args: []any{
			work[0].Project, work[0].RunID, work[0].Work, maxRetention, ids, topics, deployments, subjects, handles, holders,
			delays, leases, tickets, deliveries, begins,
		},
		Returning: deliveryColumns + `, lease <> '' AS taken`,
		Into:      append(row.columns(), &row.Taken),
		Each: func() {
			s := found[row.ID]
			row.Inline = s.Inline
			s.Delivery, s.Taken = row.Delivery, row.Taken
		},
	}
}

// liveLeases is the condition that all leases $1 are live, of the work $4 of run $3 in project $2. OFFSET 0 has
// Postgres look up one lease after the other: a join may read all leases.
const liveLeases = `(SELECT count(*) FROM unnest($1::text[]) AS l (lease), LATERAL (SELECT FROM messages
		WHERE lease = l.lease AND lease <> '' AND (project, run_id, work) IS NOT DISTINCT FROM ($2, $3, $4)
			AND due_at > clock_timestamp() FOR UPDATE OFFSET 0) AS live)
	= cardinality($1::text[])`

// RequireLeases makes a conditional statement depend on the live leases of several deliveries of one kind of work on a
// run.
func RequireLeases(c *pg.Conditional, all []Delivery) {
	c.Require(liveLeases, leasesOf(all), all[0].Project, all[0].RunID, all[0].Work)
}

// EndAll adds the deletion of the work of several deliveries.
func EndAll(w pg.Writer, all []Delivery) {
	w.Add(pg.Write{SQL: endAllWork, Args: []any{leasesOf(all)}})
}

func leasesOf(all []Delivery) []string {
	leases := make([]string, len(all))
	for i, d := range all {
		leases[i] = d.Lease
	}
	return leases
}

// endAllWork is [endWork] for several leases. It looks up one lease after the other: a join may read all leases.
const endAllWork = `
	DELETE FROM messages WHERE ctid IN (
		SELECT ended.place FROM unnest($1::text[]) AS l (lease), LATERAL (
			SELECT ctid AS place FROM messages WHERE lease = l.lease AND lease <> '' OFFSET 0) AS ended)`

package eventlog

import (
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/capacity/limit"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/atrest"
	"github.com/stepwell-dev/stepwell/eventlog/blob"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/starts/trigger"
)

// The xid of an event is the place of its transaction ([pg.FeedPosition]), but never less than that of the run's
// previous event: the feed of a project lists events by xid, and must list those of a run in their order.
var (
	// xidOfNow is for transactions that begin after the previous event was committed, as those of cached runs do.
	xidOfNow = pg.FeedPosition(`pg_current_xact_id()`)
	// xidInOrder is for transactions that may have waited for the run's lock: their place may be before that of a
	// transaction that appended meanwhile.
	xidInOrder = `greatest(` + xidOfNow + `, (SELECT xid FROM events WHERE run_id = $1 AND seq = $2::bigint - 1))`
)

// queueAlone queues the writes of a decision about another run than the append's, whose lock the transaction holds.
func (d decision) queueAlone(b *pgx.Batch) {
	var s pg.Conditional
	d.addTo(&s, facts{Snapshot: d.before}, xidInOrder)
	s.QueueLocked(b)
}

// addDecision adds to an append's statement the writes of the decision, and what it depends on besides the length of
// the log. Limits adds those of the runs that it creates or starts.
func (c call) addDecision(s *pg.Conditional, f facts, d decision, xid string, limits func(*pg.Conditional)) {
	for _, child := range d.children {
		s.UnderLock(child.queueAlone)
	}
	named, all := f.stepUses(c.requests)
	if len(named) > 0 {
		limit.RequireKnown(s, c.project, named)
	}
	if len(all) > len(named) { // with those of the policy
		limit.RequireFits(s, c.project, all)
	}
	limits(s)
	if d.changes() {
		d.addTo(s, f, xid)
	}
	d.requireMovement(s)
	if d.endsRun() {
		trigger.RequireNoneOnEnd(s, c.project, d.after.Run.WorkflowName)
	}
}

// addTo adds the decision's writes to a conditional statement: the run's row, the events, and the difference between
// the entities before and after, which is the fold of the events (I2).
func (d decision) addTo(s *pg.Conditional, f facts, xid string) {
	store.WriteRun(s, d.before.Run, d.after.Run)
	store.WriteAttributes(s, d.before.Run, d.after.Run)
	d.insertEvents(s, xid)
	for _, e := range d.events {
		d.audit(s, e)
	}
	store.WriteValues(s, d.after.Run, d.before.Store, d.after.Store)
	writeChanged(s, d.before.Steps, d.after.Steps, store.InsertSteps, store.UpdateSteps)
	writeHooks(s, f, d.after)
	if d.endsRun() {
		if len(d.after.Run.Limits) > 0 && d.next == nil { // else the next run gets the permits
			limit.Release(s, d.after.Run.ID)
		}
		if f.mayHave(entities.KindHook, d.events) {
			store.EndHooks(s, d.after.Run.ID, *d.after.Run.CompletedAt)
		}
		if f.mayHave(entities.KindWait, d.events) {
			store.DeleteWaits(s, d.after.Run.ID)
		}
	} else {
		writeChanged(s, d.before.Waits, d.after.Waits, eachAlone(store.InsertWait), eachAlone(store.UpdateWait))
	}
}

// audit adds the audit entry of a client's cancellation, request to cancel, or rerun.
func (d decision) audit(s *pg.Conditional, e entities.Event) {
	if d.source.Actor == "" || d.source.Actor == admin.ActorServer {
		return
	}
	action := admin.Action{Project: d.after.Run.Project, Action: admin.ActionRunCancel, Subject: string(e.RunID)}
	var detail map[string]any
	switch {
	case e.Type == entities.EventRunCreated && d.rerunOf != "":
		action.Action, action.Subject = admin.ActionRunRerun, string(d.rerunOf)
		detail = map[string]any{"runId": e.RunID}
	case e.Type != entities.EventRunCancelled && e.Type != entities.EventCancelRequested:
		return
	}
	admin.WriteAction(s, d.source, action, detail)
}

// insertEvents adds consecutive events of one run by one write.
func insertEvents(w pg.Writer, xid string, project entities.Project, events []entities.Event) {
	switch len(events) {
	case 0:
	case 1:
		insertEvent(w, xid, project, events[0])
	default:
		insertSeveral(w, xid, project, events)
	}
}

// payloadsOf returns what an event has of users.
func payloadsOf(project entities.Project, e *entities.Event) (extra, payload atrest.Payload) {
	at := atrest.Place{Kind: atrest.Extra, Owner: string(e.RunID), Seq: e.Seq}
	extra = atrest.Payload{Place: at, Project: string(project), Bytes: e.Extra}
	at.Kind = atrest.Event
	return extra, atrest.Payload{Place: at, Project: string(project), Bytes: e.Payload}
}

// insertEvent adds an event.
func insertEvent(w pg.Writer, xid string, project entities.Project, e entities.Event) {
	extra, payload := payloadsOf(project, &e)
	insertRow(w, xid, project, e, argument(extra), argument(payload))
}

// argument returns a payload as an argument. None needs no memory.
func argument(p atrest.Payload) any {
	if p.Bytes == nil {
		return []byte(nil)
	}
	return p
}

// insertRow adds the row of an event. The SELECT has a WHERE clause because a conditional statement appends its
// condition.
func insertRow(w pg.Writer, xid string, project entities.Project, e entities.Event, extra, payload any) {
	w.Add(pg.Write{What: "insert event", SQL: `
		INSERT INTO events (` + rowColumns + `)
		SELECT ` + rowValues + xid + ` WHERE true`, Args: []any{
		e.RunID, e.Seq, e.Type, e.CorrelationID, e.SpecVersion, e.CreatedAt, e.OccurredAt, e.Data, extra, payload, project,
	}})
}

// The columns of a row, and the arguments for them but for the last one.
const (
	rowColumns = read.EventColumns + `, payload, project, xid`
	rowValues  = `$1::text, $2::bigint, $3::text, $4::text, $5::integer, $6::timestamptz, $7::timestamptz, $8::jsonb,
			$9::bytea, $10::bytea, $11::text, `
)

// insertEvents adds the events of the decision in their order, those with references each by a write of its own.
func (d *decision) insertEvents(w pg.Writer, xid string) {
	project, rest := d.after.Run.Project, d.events
	for len(d.blobs) > 0 && len(rest) > 0 {
		n := slices.IndexFunc(rest, d.blobs.has)
		if n < 0 {
			break
		}
		insertEvents(w, xid, project, rest[:n])
		insertReference(w, xid, project, rest[n], d.blobs.of(&rest[n]))
		rest = rest[n+1:]
	}
	insertEvents(w, xid, project, rest)
	blob.Claim(w, d.after.Run.ID, d.claimed())
}

// insertReference adds an event with a reference in place of its payload.
func insertReference(w pg.Writer, xid string, project entities.Project, e entities.Event, ref blob.Reference) {
	extra, _ := payloadsOf(project, &e)
	w.Add(pg.Write{What: "insert event", SQL: `
		INSERT INTO events (` + rowColumns + `, blob_size)
		SELECT ` + rowValues + xid + `, $12::bigint WHERE true`, Args: []any{
		e.RunID, e.Seq, e.Type, e.CorrelationID, e.SpecVersion, e.CreatedAt, e.OccurredAt, e.Data, extra, ref.Stored(),
		project, len(e.Payload),
	}})
}

// insertSeveral adds events by a statement whose text does not depend on their number, so that it is planned once. Its
// arrays cost more than [insertEvent] if there is one event. Like that, the SELECT has a WHERE clause for conditions.
func insertSeveral(w pg.Writer, xid string, project entities.Project, events []entities.Event) {
	n := len(events)
	var (
		seqs                = make([]int64, n)
		types, correlations = make([]string, n), make([]string, n)
		versions            = make([]int, n)
		created             = make([]time.Time, n)
		occurred            = make([]*time.Time, n)
		data                = make([]*entities.EventData, n)
		extras, payloads    = make([]atrest.Payload, n), make([]atrest.Payload, n)
	)
	for i := range events {
		e := &events[i]
		seqs[i], types[i], correlations[i] = e.Seq, string(e.Type), e.CorrelationID
		versions[i], created[i], occurred[i] = e.SpecVersion, e.CreatedAt, e.OccurredAt
		data[i] = &e.Data
		extras[i], payloads[i] = payloadsOf(project, e)
	}
	w.Add(pg.Write{What: "insert events", Rows: n, SQL: `
		INSERT INTO events (` + read.EventColumns + `, payload, project, xid)
		SELECT $1::text, e.seq, e.type, e.correlation_id, e.spec_version, e.created_at, e.occurred_at, e.data, e.extra,
			e.payload, $11::text, ` + xid + `
		FROM unnest($3::bigint[], $4::text[], $5::text[], $6::integer[], $7::timestamptz[], $8::timestamptz[], $9::jsonb[],
			$10::bytea[], $12::bytea[])
			AS e (seq, type, correlation_id, spec_version, created_at, occurred_at, data, extra, payload)
		WHERE $2::bigint > 0`, Args: []any{
		events[0].RunID, events[0].Seq, seqs, types, correlations, versions, created, occurred, data, extras, project,
		payloads,
	}})
}

// QueueImport queues the insertion of an event that another database logged, exactly as it was stored there. Imported
// events are not decided again; the import checks the log as a whole.
func QueueImport(b *pgx.Batch, project entities.Project, e entities.Event) {
	insertRow(pg.Batch{Batch: b}, xidInOrder, project, e, e.Extra, e.Payload)
}

// writeChanged writes the rows that differ, and then those that are new: a random order would make several statements
// of one, each of which Postgres has to plan.
func writeChanged[K, V comparable](w pg.Writer, before, after map[K]V, insert, update func(pg.Writer, []V)) {
	var changed, added []V
	for id, row := range after {
		if was, ok := before[id]; !ok {
			added = append(added, row)
		} else if was != row {
			changed = append(changed, row)
		}
	}
	update(w, changed)
	insert(w, added)
}

// eachAlone returns a function that writes each row by itself.
func eachAlone[V any](write func(pg.Writer, *V)) func(pg.Writer, []V) {
	return func(w pg.Writer, rows []V) {
		for i := range rows {
			write(w, &rows[i])
		}
	}
}

// writeHooks writes the hooks that changed. Deletions come first, because a new hook may take the token of a deleted
// one.
func writeHooks(w pg.Writer, before facts, after *Snapshot) {
	for id, hook := range before.Hooks {
		if _, ok := after.Hooks[id]; !ok {
			store.DeleteHook(w, hook.RunID, id)
		}
	}
	for id, hook := range after.Hooks {
		if _, ok := before.Hooks[id]; ok {
			continue
		}
		if holder := before.holders[hook.Token]; holder != nil {
			store.DeleteExpiredHook(w, holder) // a live holder would have made this a hook_conflict
		}
		store.InsertHook(w, &hook)
	}
}

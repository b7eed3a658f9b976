package queue

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/gate"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue/cluster"
)

// together executes statements in one transaction, as group commit does.
func together(ctx context.Context, pool *pgxpool.Pool, members ...pg.Statement) error {
	var b pgx.Batch
	for _, m := range members {
		m.Queue(&b)
	}
	return pool.SendBatch(ctx, &b).Close()
}

// reserved returns a group-commit statement that sends a message with a reservation of the process.
func reserved(id, process string, options ...func(*message.Message)) *insertion {
	m := newMessage(options...)
	m.Retention = defaultRetention
	return &insertion{Message: m, id: id, Reservation: Reservation{handle: "rh_" + id, holder: process, lease: leaseTime}}
}

// ends returns a group-commit statement that acknowledges a message.
func ends(topic, handle string) *acknowledgement {
	return &acknowledgement{project: project, topic: topic, handle: handle}
}

func ofRun(id entities.RunID) func(*message.Message) {
	return func(m *message.Message) { m.RunID = id }
}

// hooked creates an open run with a hook.
func (r *replica) hooked(t *testing.T, id entities.RunID) {
	t.Helper()
	r.newRun(t, id, 0)
	r.Exec(t, `
		INSERT INTO hooks (run_id, id, project, token, is_webhook, spec_version, created_seq, created_at)
		VALUES ($1, 'hook_1', $2, 'token of ' || $1, false, 3, 1, now())`, id, project)
}

func TestMessagesInAGroupCommit(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	r.registerProcess(t, "proc_1")
	r.Exec(t, `INSERT INTO message_keys (project, deployment_id, topic, key, message_id, expires_at)
		SELECT $1, $2, $3, key, 'msg_before', expires_at
		FROM (VALUES ('alive', now() + interval '1 h'), ('over', now())) AS k (key, expires_at)`, project, deployment, topic)
	members := []*insertion{
		reserved("msg_new", "proc_1", keyed("new")), reserved("msg_again", "proc_1", keyed("new")),
		reserved("msg_alive", "proc_1", keyed("alive")), reserved("msg_over", "proc_1", keyed("over")),
		reserved("msg_free", "proc_1"), reserved("msg_free_too", "proc_1"), reserved("msg_orphan", "proc_unknown"),
	}
	var all []pg.Statement
	for _, m := range members {
		all = append(all, m)
	}
	if err := together(t.Context(), r.pool, all...); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"msg_new": "rh_msg_new", "msg_over": "rh_msg_over", "msg_free": "rh_msg_free", "msg_free_too": "rh_msg_free_too",
		"msg_orphan": "", // its process is not registered
	}
	got := map[string]string{}
	for _, m := range members {
		for _, d := range m.stored {
			got[d.ID] = d.Lease
			if s := r.stored(t, d.ID); s.Lease != d.Lease || d.Lease != "" && s.DeliveryCount != 1 {
				t.Errorf("%s: got the row %+v, want the lease %q", d.ID, s, d.Lease)
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("leases by stored message (-want +got):\n%s", diff)
	}
	r.Want(t, "messages", len(want), `SELECT count(*) FROM messages`)
	for m, first := range map[*insertion]string{members[1]: "msg_new", members[2]: "msg_before"} {
		if err := m.resolve(t.Context(), r.pool); err != nil || m.id != first {
			t.Errorf("key %s stands for %s, %v; want %s", m.Key, m.id, err, first)
		}
	}
}

// TestAcknowledgementsInAGroupCommit: the shared statement leaves messages that need a note and those without a live
// lease.
func TestAcknowledgementsInAGroupCommit(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	r.registerProcess(t, "proc_1")
	r.newRun(t, "wrun_1", 0)
	r.hooked(t, "wrun_hooked")
	const stepTopic = "__wkf_step_charge"
	step := func(m *message.Message) { m.Topic = stepTopic }
	sent := []pg.Statement{
		reserved("msg_1", "proc_1", ofRun("wrun_1")), reserved("msg_none", "proc_1"), reserved("msg_over", "proc_1"),
		reserved("msg_hooked", "proc_1", ofRun("wrun_hooked")), reserved("msg_step", "proc_1", ofRun("wrun_hooked"), step),
		reserved("msg_other", "proc_1"),
	}
	if err := together(t.Context(), r.pool, sent...); err != nil {
		t.Fatal(err)
	}
	r.Exec(t, `UPDATE messages SET due_at = now() WHERE id = 'msg_over'`)
	acks := map[string]*acknowledgement{
		"about a run": ends(topic, "rh_msg_1"), "about no run": ends(topic, "rh_msg_none"),
		"about a step of a run with a hook": ends(stepTopic, "rh_msg_step"),
		"about a run with a hook":           ends(topic, "rh_msg_hooked"), "too late": ends(topic, "rh_msg_over"),
		"of another topic": ends("other", "rh_msg_other"), "unknown": ends(topic, "rh_unknown"), "nameless": ends(topic, ""),
	}
	var members []pg.Statement
	for _, a := range acks {
		members = append(members, a)
	}
	if err := together(t.Context(), r.pool, members...); err != nil {
		t.Fatal(err)
	}
	for name, a := range acks {
		want := slices.Contains([]string{"rh_msg_1", "rh_msg_none", "rh_msg_step"}, a.handle)
		if a.ended != want || !a.shared {
			t.Errorf("%s: ended %v, shared %v; want %v, true", name, a.ended, a.shared, want)
		}
	}
	if n := r.Count(t, `SELECT count(*) FROM messages WHERE id IN ('msg_over', 'msg_hooked', 'msg_other')`) -
		r.Count(t, `SELECT count(*) FROM run_wakes`); n != 3 {
		t.Errorf("%d messages are left, want 3, and no note", n)
	}
	if a := acks["about a run with a hook"]; a.Execute(t.Context(), r.pool) != nil || !a.ended || a.shared {
		t.Errorf("by itself: got %+v, want it ended", a)
	}
	r.Want(t, "events are noted as seen", 1, `SELECT acked_seq FROM run_wakes WHERE run_id = 'wrun_hooked'`)
}

// contended stores two leased messages of two runs, each with a step whose message was lost. The order of the rows in
// their tables differs from the lock order.
func (s *site) contended(t *testing.T) {
	t.Helper()
	s.empty(t)
	s.Exec(t, `DELETE FROM steps`)
	s.Exec(t, `DELETE FROM runs`)
	s.newRun(t, "wrun_1", time.Hour)
	s.newRun(t, "wrun_2", time.Hour)
	s.Exec(t, `INSERT INTO steps (run_id, id, name, status, attempt, spec_version, created_seq, created_at, updated_at)
		VALUES ('wrun_1', 'step_b', 'charge', 'pending', 0, 3, 1, now(), now()),
			('wrun_2', 'step_a', 'charge', 'pending', 0, 3, 1, now(), now())`)
	s.Exec(t, `INSERT INTO message_keys (project, deployment_id, topic, key, message_id, expires_at)
		SELECT $1, $2, '__wkf_step_charge', key, 'msg_gone', now() + interval '1 h'
		FROM unnest(ARRAY['step_b', 'step_a']) AS key`, project, deployment)
	first, second := reserved("msg_1", frozen, ofRun("wrun_1")), reserved("msg_2", frozen, ofRun("wrun_2"))
	first.handle, second.handle = "rh_b", "rh_a"
	if err := together(t.Context(), s.pool, first, second); err != nil {
		t.Fatal(err)
	}
}

// TestGroupCommitLocksInOneOrder: a transaction that locks several rows which group-commit statements also lock does so
// in the lock order, or skips locked rows.
func TestGroupCommitLocksInOneOrder(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	home := on(t, withoutHints(t, dsn).pool)
	// Of two equally good indexes the planner takes the older one; this one does not return rows in lock order.
	home.Exec(t, `DROP INDEX messages_lease_key`)
	home.Exec(t, `CREATE UNIQUE INDEX messages_lease_key ON messages (lease) WHERE lease <> ''`)
	acknowledge := []pg.Statement{ends(topic, "rh_a"), ends(topic, "rh_b")}
	step := func(m *message.Message) { m.Topic = "__wkf_step_charge" }
	send := []pg.Statement{
		reserved("msg_a", frozen, keyed("step_a"), step), reserved("msg_b", frozen, keyed("step_b"), step),
	}
	inTx := func(fn func(ctx context.Context, tx pgx.Tx) error) operation {
		return func(ctx context.Context, s *site) (any, error) {
			return nil, pg.InTx(ctx, s.pool, func(tx pgx.Tx) error { return fn(ctx, tx) })
		}
	}
	for name, test := range map[string]struct {
		members []pg.Statement
		other   operation
	}{
		"acknowledge × take over": {members: acknowledge, other: reaps},
		"acknowledge × release": {members: acknowledge, other: inTx(func(ctx context.Context, tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `DELETE FROM processes`); err != nil {
				return err
			}
			_, err := cluster.ReleaseOrphans(ctx, tx)
			return err
		})},
		"acknowledge × retention": {members: acknowledge, other: inTx(func(ctx context.Context, tx pgx.Tx) error {
			return DeleteRunMessages(ctx, tx, project, []entities.RunID{"wrun_1", "wrun_2"})
		})},
		"send × send a batch": {members: send, other: func(ctx context.Context, s *site) (any, error) {
			return s.SendAll(ctx, []message.Message{newMessage(keyed("step_b"), step), newMessage(keyed("step_a"), step)})
		}},
		"send × sweep": {members: send, other: inTx(func(ctx context.Context, tx pgx.Tx) error {
			for _, id := range []entities.RunID{"wrun_1", "wrun_2"} {
				if err := cluster.ForgetLostKeys(ctx, tx, cluster.Stranded{ID: id, Project: project, DeploymentID: deployment}); err != nil {
					return err
				}
			}
			return nil
		})},
	} {
		t.Run(name, func(t *testing.T) { // not in parallel: they use the same rows
			matters := func(sql string) bool { return !strings.HasPrefix(sql, "BEGIN") }
			one, two := gate.Open(t, dsn, home.pool, matters), gate.Open(t, dsn, home.pool, matters)
			other := on(t, two.Pool)
			waits := 0
			n := gate.Explore(t, one, two, func(s *gate.Schedule) {
				home.contended(t)
				var errs [2]error
				s.Run(t,
					func() { errs[0] = together(t.Context(), one.Pool, test.members...) },
					func() { _, errs[1] = test.other(t.Context(), other) })
				if waits += s.Waits; s.Deadlocked || errs != [2]error{} {
					t.Errorf("deadlock %v, errors %v:\n%s", s.Deadlocked, errs, s)
				}
			})
			if waits == 0 {
				t.Errorf("in %d schedules none waited", n)
			}
			t.Logf("%d schedules, %d waits", n, waits)
		})
	}
}

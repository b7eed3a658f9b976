package queue

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue/health"
)

// audit lists the audited actions in the tests' project, oldest first.
func (r *replica) audit(t *testing.T) []string {
	t.Helper()
	list, _, err := admin.ListActions(t.Context(), r.pool, project, admin.ActionFilter{}, pg.Page{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for _, a := range list {
		words = append(words, strings.Join([]string{string(a.Actor), string(a.Action), a.Subject}, " "))
	}
	return words
}

// administration returns every audited action of the queue, and the messages that two of them affect.
func (r *replica) administration(t *testing.T) (retried, discarded string, do []func(context.Context) error) {
	t.Helper()
	retried, discarded = r.send(t), r.send(t)
	r.park(t, retried)
	parked, waiting := r.send(t), r.send(t)
	r.park(t, parked)
	return retried, discarded, []func(context.Context) error{
		func(ctx context.Context) error {
			_, err := r.PutDeployment(ctx, project, "blog", "http://b.test")
			return err
		},
		func(ctx context.Context) error { return r.RemoveDeployment(ctx, project, "old") },
		func(ctx context.Context) error { _, err := r.Retry(ctx, project, retried); return err },
		func(ctx context.Context) error { return r.Discard(ctx, project, discarded) },
		func(ctx context.Context) error {
			_, err := r.RetryAll(ctx, project, Filter{State: StateParked}, []string{parked, waiting})
			return err
		},
		func(ctx context.Context) error {
			_, err := r.DiscardAll(ctx, project, Filter{}, []string{parked, waiting})
			return err
		},
	}
}

func TestAuditRecordsActorAndAction(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	r.register(t, "old", "http://o.test")
	retried, discarded, all := r.administration(t)
	for _, do := range all {
		if err := do(admin.WithActor(t.Context(), "key_1")); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		"server deployment.put old", "key_1 deployment.put blog", "key_1 deployment.remove old",
		"key_1 message.retry " + retried, "key_1 message.discard " + discarded,
		"key_1 messages.retry parked", "key_1 messages.discard ",
	}
	if diff := cmp.Diff(want, r.audit(t)); diff != "" {
		t.Errorf("audit (-want +got):\n%s", diff)
	}
}

func TestAuditSkipsUnchangedRegistrations(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	for range 3 {
		r.register(t, "a", "http://a.test")
	}
	r.register(t, "a", "http://moved.test")
	if _, err := r.PutDeployment(t.Context(), project, "a", "http://moved.test", "order"); err != nil {
		t.Fatal(err)
	}
	if err := r.RemoveDeployment(t.Context(), project, "none"); !errors.Is(err, message.ErrDeploymentNotFound) {
		t.Error(err)
	}
	if err := r.Discard(t.Context(), project, "msg_none"); !errors.Is(err, message.ErrMessageNotFound) {
		t.Error(err)
	}
	if _, err := r.Retry(t.Context(), project, r.send(t)); !errors.Is(err, entities.ErrConflict) {
		t.Error(err)
	}
	want := []string{"server deployment.put a", "server deployment.put a", "server deployment.put a"}
	if diff := cmp.Diff(want, r.audit(t)); diff != "" {
		t.Errorf("audit (-want +got):\n%s", diff)
	}
}

// TestAuditSaysWhatChanged of a registration: the bound and the probes are there if they are others than before.
func TestAuditSaysWhatChanged(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	bound := func(n int) *int { return &n }
	probes := &health.Settings{Path: "/healthz"}
	const common = `"url": "http://a.test", "workflows": []`
	var want []string
	for _, put := range []struct {
		d    Deployment
		want string // "none" if there is no entry
	}{
		{Deployment{}, ``},
		{Deployment{MaxConcurrent: bound(5)}, `, "maxConcurrent": 5`},
		{Deployment{MaxConcurrent: bound(5)}, "none"},
		{Deployment{Health: probes}, `, "health": {"path": "/healthz", "every": "30s", "timeout": "3s", "failAfter": 3,
			"recoverAfter": 1, "trialEvery": "10m0s"}`},
		{Deployment{Health: probes}, "none"},
		{Deployment{}, "none"},
		{Deployment{MaxConcurrent: bound(0)}, `, "maxConcurrent": null`},
		{Deployment{Health: &health.Settings{}}, `, "health": null`},
	} {
		put.d.ID, put.d.URL = "a", "http://a.test"
		if _, err := r.Register(t.Context(), project, put.d); err != nil {
			t.Fatal(err)
		}
		if put.want != "none" {
			want = append(want, "{"+common+put.want+"}")
		}
	}
	var same bool
	r.Scan(t, `SELECT array_agg(detail ORDER BY seq) = $1::jsonb[] FROM audit`, []any{want}, &same)
	if !same {
		var got []string
		r.Scan(t, `SELECT array_agg(detail::text ORDER BY seq) FROM audit`, nil, &got)
		t.Errorf("got %s", strings.Join(got, "\n"))
	}
}

// TestActionFailsIfItCannotBeAudited makes the last write of each action, its audit entry, fail.
func TestActionFailsIfItCannotBeAudited(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	r.register(t, "old", "http://o.test")
	_, _, all := r.administration(t)
	dump := func() string {
		t.Helper()
		rows, err := r.pool.Query(t.Context(), `
			SELECT string_agg(row, E'\n' ORDER BY row) FROM (
				SELECT d::text AS row FROM deployments d UNION ALL SELECT m::text FROM messages m) all_rows`)
		if err != nil {
			t.Fatal(err)
		}
		text, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	before := dump()
	r.Exec(t, `ALTER TABLE audit ADD CONSTRAINT silent CHECK (false) NOT VALID`)
	for i, do := range all {
		if err := do(t.Context()); err == nil || !strings.Contains(err.Error(), "silent") {
			t.Errorf("action %d: got %v, want the constraint's refusal", i, err)
		}
	}
	if diff := cmp.Diff(before, dump()); diff != "" {
		t.Errorf("rows (-before +after):\n%s", diff)
	}
}

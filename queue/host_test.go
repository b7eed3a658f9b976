package queue

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
)

const embeddedURL = EmbeddedScheme + "orders"

// done is work that was done.
type done struct{ process, subject string }

// hosting makes the replica, a process of the given name, do the steps of an app, and report them.
func (r *replica) hosting(t *testing.T, name, deployment string, all chan<- done) {
	t.Helper()
	if deployment != "" {
		r.Host(&Hosted{Project: project, Deployment: deployment, URL: embeddedURL})
	}
	r.worker(t, func(o *WorkerOptions) {
		o.Handlers = map[message.Work]Handler{message.WorkStep: func(ctx context.Context, d Delivery) error {
			all <- done{name, d.Subject}
			return d.End(ctx)
		}}
	})
}

func (r *replica) embeds(t *testing.T, id string) {
	t.Helper()
	if _, err := r.PutDeployment(t.Context(), project, id, embeddedURL); err != nil {
		t.Fatal(err)
	}
}

// accept stores work, which the process does itself if it has a slot.
func (r *replica) accept(t *testing.T, m message.Message) {
	t.Helper()
	err := pg.InTxThen(t.Context(), r.pool, func(tx pgx.Tx) (func(error), error) {
		_, ended, err := r.Enqueue(t.Context(), tx, &pgx.Batch{}, []message.Message{m})
		return ended, err
	})
	if err != nil {
		t.Errorf("accept %s: %v", m.Subject, err)
	}
}

func embeddedStep(deployment string, n int) message.Message {
	return message.Message{
		Project: project, DeploymentID: deployment, Topic: "t", Work: message.WorkStep,
		RunID: entities.RunID(fmt.Sprintf("wrun_%d", n)), Subject: fmt.Sprint("s", n),
	}
}

// TestHostsRace: three processes accept steps of an embedded app, two of which have it. Each step is done once, by one
// of these.
func TestHostsRace(t *testing.T) {
	t.Parallel()
	const steps = 200
	dsn := testdb.New(t)
	all := make(chan done, 2*steps)
	replicas := []*replica{open(t, dsn), open(t, dsn), open(t, dsn)}
	replicas[0].embeds(t, "orders@1")
	for i, deployment := range []string{"orders@1", "orders@1", ""} {
		replicas[i].hosting(t, []string{"first host", "second host", "plain"}[i], deployment, all)
	}
	var storing sync.WaitGroup
	for n := range steps {
		storing.Go(func() { replicas[n%3].accept(t, embeddedStep("orders@1", n)) })
	}
	storing.Wait()
	testdb.Eventually(t, "all steps are done", func() bool { return replicas[2].Count(t, `SELECT count(*) FROM messages`) == 0 })
	seen := map[string]bool{}
	for range len(all) {
		d := <-all
		if d.process == "plain" || seen[d.subject] {
			t.Errorf("%s was done by %s, again: %t", d.subject, d.process, seen[d.subject])
		}
		seen[d.subject] = true
	}
	if len(seen) != steps {
		t.Errorf("%d steps were done, want %d", len(seen), steps)
	}
}

// TestHostsKeepToTheirBuild as long as a process has the other one: they do its work when nobody does.
func TestHostsKeepToTheirBuild(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	all := make(chan done, 10)
	older, newer := open(t, dsn), open(t, dsn)
	for _, id := range []string{"orders@1", "orders@2", "orders@0"} {
		older.embeds(t, id)
	}
	older.hosting(t, "older", "orders@1", all)
	newer.hosting(t, "newer", "orders@2", all)
	newer.accept(t, embeddedStep("orders@1", 1))
	older.accept(t, embeddedStep("orders@2", 2))
	for range 2 {
		if got, want := testdb.Receive(t, "a step", all), map[string]string{"s1": "older", "s2": "newer"}; want[got.subject] != got.process {
			t.Errorf("%s was done by %s", got.subject, got.process)
		}
	}
	newer.accept(t, embeddedStep("orders@0", 3))
	if got := testdb.Receive(t, "a step of a build that no process has", all); got.subject != "s3" {
		t.Errorf("got %+v", got)
	}
}

// TestEmbeddedDeploymentsAreChecked: the URL needs a name, and there is nothing to probe and no bound.
func TestEmbeddedDeploymentsAreChecked(t *testing.T) {
	t.Parallel()
	r := open(t, testdb.New(t))
	bound := 1
	for name, d := range map[string]Deployment{
		"no name": {ID: "a", URL: EmbeddedScheme}, "a path": {ID: "a", URL: EmbeddedScheme + "a/b"},
		"a bound": {ID: "a", URL: embeddedURL, MaxConcurrent: &bound},
	} {
		_, err := r.Register(t.Context(), project, d)
		testdb.WantError(t, name, err, entities.ErrInvalid)
	}
}

// TestNewCallsHere: of the calls to the app in this process, those are new whose leases are, as long as they are made,
// unless the app could not be reached before.
func TestNewCallsHere(t *testing.T) {
	t.Parallel()
	claimed := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		lease     string
		age       time.Duration
		unreached int
		want      bool
	}{
		{"own", 0, 0, true},
		{"own", keptBefore - time.Millisecond, 0, true},
		{"own", keptBefore, 0, false},
		{"own", 0, 1, false},
		{"other", 0, 0, false},
	} {
		var q Queue
		now, called := claimed.Add(c.age), false
		q.Host(&Hosted{Calls: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			called = true
			if got := q.IsNewCallHere(c.lease, now); got != c.want {
				t.Errorf("%+v: got %t", c, got)
			}
		})})
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, embeddedURL, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := q.hosted.call(req, Delivery{Lease: "own", ClaimedAt: claimed, UnreachedCount: c.unreached})
		if err != nil || !called {
			t.Fatalf("called: %t, %v", called, err)
		}
		_ = resp.Body.Close()
		if q.IsNewCallHere("own", now) {
			t.Errorf("%+v: the call is over", c)
		}
	}
	if new(Queue).IsNewCallHere("own", claimed) {
		t.Error("a process without an app makes no such call")
	}
}

package queue

import (
	"encoding/json"
	"errors"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
)

// deployments lists a project's deployments as "id url".
func (r *replica) deployments(t testing.TB, p entities.Project) []string {
	t.Helper()
	list, err := r.Deployments(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range list {
		got = append(got, d.ID+" "+d.URL)
	}
	return got
}

func TestDeploymentsAreListedPerProject(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	r.register(t, "b", "http://b.test")
	r.register(t, "a", "https://a.test:8443/base")
	if _, err := r.PutDeployment(t.Context(), "other", "a", "http://other.test"); err != nil {
		t.Fatal(err)
	}
	want := map[entities.Project][]string{
		project: {"a https://a.test:8443/base", "b http://b.test"}, "other": {"a http://other.test"}, "third": nil,
	}
	for p, list := range want {
		if diff := cmp.Diff(list, r.deployments(t, p)); diff != "" {
			t.Errorf("deployments of %s (-want +got):\n%s", p, diff)
		}
	}
}

func TestPutDeploymentMovesIt(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	first, err := r.PutDeployment(t.Context(), project, "a", "http://old.test")
	if err != nil {
		t.Fatal(err)
	}
	second, err := r.PutDeployment(t.Context(), project, "a", "http://new.test")
	if err != nil {
		t.Fatal(err)
	}
	if !second.CreatedAt.Equal(first.CreatedAt) || !second.UpdatedAt.After(first.UpdatedAt) {
		t.Errorf("got %+v after %+v, want it created at the same time and updated later", second, first)
	}
	if diff := cmp.Diff([]string{"a http://new.test"}, r.deployments(t, project)); diff != "" {
		t.Errorf("deployments (-want +got):\n%s", diff)
	}
}

// TestRegistrationKeepsWhatItDoesNotHave registers a deployment again with a part of what it has.
func TestRegistrationKeepsWhatItDoesNotHave(t *testing.T) {
	t.Parallel()
	const schemas = `{"order": {"input": {"type": "string"}}}`
	tests := map[string]struct {
		again     Deployment
		url       string
		workflows []string
		build     string
		schemas   string
	}{
		"only a URL": {Deployment{URL: "http://b.test"}, "http://b.test", []string{"order"}, "b1", schemas},
		"workflows":  {Deployment{URL: "http://a.test", Workflows: []string{"refund"}}, "http://a.test", []string{"refund"}, "b1", ""},
		"any workflow": {
			Deployment{URL: "http://a.test", Workflows: []string{}}, "http://a.test", []string{}, "b1", "",
		},
		"build": {Deployment{URL: "http://a.test", Build: "b2"}, "http://a.test", []string{"order"}, "b2", schemas},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := withoutHints(t, testdb.New(t))
			first := Deployment{
				ID: "shop", URL: "http://a.test", Workflows: []string{"order"}, Build: "b1", Schemas: json.RawMessage(schemas),
			}
			if _, err := r.Register(t.Context(), project, first); err != nil {
				t.Fatal(err)
			}
			test.again.ID = "shop"
			got, err := r.Register(t.Context(), project, test.again)
			if err != nil {
				t.Fatal(err)
			}
			if got.URL != test.url || !slices.Equal(got.Workflows, test.workflows) || got.Build != test.build ||
				string(got.Schemas) != test.schemas {
				t.Errorf("got %+v with schemas %s", got, got.Schemas)
			}
		})
	}
}

// TestChangeDeploymentNeedsOne moves a deployment that there is, and one that there is not.
func TestChangeDeploymentNeedsOne(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	_, err := r.ChangeDeployment(t.Context(), project, Deployment{ID: "shop", URL: "http://b.test"})
	if !errors.Is(err, message.ErrDeploymentNotFound) {
		t.Errorf("got %v before it is registered, want that it is not found", err)
	}
	if got := r.deployments(t, project); len(got) > 0 {
		t.Errorf("the refused change has registered %q", got)
	}
	if _, err := r.PutDeployment(t.Context(), project, "shop", "http://a.test", "order"); err != nil {
		t.Fatal(err)
	}
	five := 5
	for _, change := range []Deployment{{ID: "shop", URL: "http://b.test"}, {ID: "shop", MaxConcurrent: &five}} {
		if _, err := r.ChangeDeployment(t.Context(), project, change); err != nil {
			t.Fatal(err)
		}
	}
	got, err := r.Deployment(t.Context(), project, "shop")
	if err != nil || got.URL != "http://b.test" || !slices.Equal(got.Workflows, []string{"order"}) || *got.MaxConcurrent != 5 {
		t.Errorf("got %+v, %v", got, err)
	}
}

// TestDeploymentDetails counts the open runs of each deployment, and not those of other projects.
func TestDeploymentDetails(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	schemas := `{"order": {"input": {"type": "string"}}}`
	for _, p := range []entities.Project{project, "other"} {
		for _, id := range []string{"a", "b"} {
			_, err := r.Register(t.Context(), p, Deployment{
				ID: id, URL: "http://a.test", Workflows: []string{"order"}, Build: "1", Schemas: json.RawMessage(schemas),
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	fill(t, r, 10)
	r.Exec(t, `UPDATE runs SET deployment_id = 'a'`)
	for p, open := range map[entities.Project]int64{project: 5, "other": 0} {
		d, err := r.DeploymentDetails(t.Context(), p, "a")
		if err != nil || d.OpenRuns != open || d.Build != "1" || string(d.Schemas) != schemas {
			t.Errorf("%s: got %+v %v", p, d, err)
		}
		list, err := r.Deployments(t.Context(), p)
		if err != nil || len(list) != 2 || list[0].OpenRuns != open || list[1].OpenRuns != 0 || list[0].Schemas != nil {
			t.Errorf("%s: got %+v %v", p, list, err)
		}
	}
	var audited int
	err := r.pool.QueryRow(t.Context(),
		`SELECT count(*) FROM audit WHERE action = 'deployment.put' AND detail->>'build' = '1'`).Scan(&audited)
	if err != nil || audited != 4 {
		t.Errorf("%d registrations are in the audit, want 4 (%v)", audited, err)
	}
}

func TestPutDeploymentNeedsABaseURL(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	for _, url := range []string{
		"", "localhost:3000", "/path", "//host", "ftp://host", "http://", "http:///path", "http://host?q", "http://host#f",
		"http://host?", "http://host/#", "http://u:p@host", "http://u@host", "http://ho st", "http://host:port",
		"http://host/%zz", "http://host\x00", "http://:80", "javascript:alert(1)",
	} {
		_, err := r.PutDeployment(t.Context(), project, "a", url)
		testdb.WantError(t, url, err, entities.ErrInvalid)
	}
	for _, id := range []string{"", "a/b", "a b", "..", "a\x00", strings.Repeat("a", 10_000)} {
		_, err := r.PutDeployment(t.Context(), project, id, "http://host")
		testdb.WantError(t, id, err, entities.ErrInvalid)
	}
	if diff := cmp.Diff([]string(nil), r.deployments(t, project)); diff != "" {
		t.Errorf("deployments (-want +got):\n%s", diff)
	}
}

func TestRemoveDeployment(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	r.register(t, "a", "http://a.test")
	testdb.WantError(t, "foreign project", r.RemoveDeployment(t.Context(), "other", "a"), message.ErrDeploymentNotFound)
	testdb.WantError(t, "unknown", r.RemoveDeployment(t.Context(), project, "b"), message.ErrDeploymentNotFound)
	if err := r.RemoveDeployment(t.Context(), project, "a"); err != nil {
		t.Errorf("remove: %v", err)
	}
	testdb.WantError(t, "removed", r.RemoveDeployment(t.Context(), project, "a"), message.ErrDeploymentNotFound)
}

func TestDeliveriesGoToTheProjectsOwnDeployment(t *testing.T) {
	t.Parallel()
	ours, theirs := newApp(t, nil), newApp(t, nil)
	r := start(t, ours)
	if _, err := r.PutDeployment(t.Context(), "other", deployment, theirs.URL); err != nil {
		t.Fatal(err)
	}
	id := r.send(t, func(m *message.Message) { m.Project = "other" })
	c := theirs.next(t)
	if c.id() != id {
		t.Errorf("the other project got %s, want %s", c.id(), id)
	}
	testdb.WantError(t, "acknowledge as ours", r.Acknowledge(t.Context(), project, topic, c.handle()), message.ErrLeaseNotFound)
	own := r.send(t)
	if got := ours.next(t).id(); got != own {
		t.Errorf("we got %s, want %s", got, own)
	}
}

func TestPutDeploymentMakesOnlyItsFailedMessagesDue(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	in := func(p entities.Project, d string) string {
		id := r.send(t, func(m *message.Message) { m.Project, m.DeploymentID = p, d })
		r.Exec(t, `UPDATE messages SET last_error = 'down', due_at = now() + interval '1 h' WHERE id = $1`, id)
		return id
	}
	failed, foreign, elsewhere := in(project, "a"), in("other", "a"), in(project, "b")
	leased, parked := in(project, "a"), in(project, "a")
	r.Exec(t, `UPDATE messages SET lease = 'rh_1' WHERE id = $1`, leased)
	r.Exec(t, `UPDATE messages SET parked_at = now() WHERE id = $1`, parked)
	waiting := r.send(t, delayed(time.Hour), func(m *message.Message) { m.DeploymentID = "a" })

	r.register(t, "a", "http://a.test")
	due := map[string]bool{}
	for name, id := range map[string]string{
		"failed": failed, "foreign": foreign, "elsewhere": elsewhere, "leased": leased, "parked": parked, "delayed": waiting,
	} {
		due[name] = r.stored(t, id).Wait <= 0
	}
	want := map[string]bool{
		"failed": true, "foreign": false, "elsewhere": false, "leased": false, "parked": false, "delayed": false,
	}
	if diff := cmp.Diff(want, due); diff != "" {
		t.Errorf("due after the registration (-want +got):\n%s", diff)
	}
}

// unreached stores n messages that wait for a deployment after a delivery that did not reach it.
func (r *replica) unreached(t testing.TB, n int) {
	t.Helper()
	r.Exec(t, `
		INSERT INTO messages (id, project, topic, deployment_id, content_type, body, expires_at, due_at, ticket,
			last_error, unreached_count)
		SELECT 'msg_' || i, $2, 'w', $3, '', '', now(), now() + interval '1 min' * (1 + i % 2), 2, 'away', 1
		FROM generate_series(1, $1) i`, n, project, deployment)
}

func TestPutDeploymentMakesABacklogDueInBatches(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	r.register(t, deployment, "http://a.test")
	r.unreached(t, 2*dueBatch+100)
	r.Exec(t, `UPDATE messages SET unreached_count = 0 WHERE id = 'msg_1'`) // it reached the app and failed
	err := pg.InTx(t.Context(), r.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `SELECT FROM messages WHERE id = 'msg_2' FOR UPDATE`); err != nil {
			return err
		}
		r.register(t, deployment, "http://a.test") // does not wait for the locked row
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	const left = `SELECT coalesce(array_agg(id ORDER BY id), '{}') FROM messages WHERE due_at > now()`
	var got []string
	r.Scan(t, left, nil, &got)
	if diff := cmp.Diff([]string{"msg_1", "msg_2"}, got); diff != "" {
		t.Errorf("not made due (-want +got):\n%s", diff)
	}
	r.register(t, deployment, "http://b.test")
	r.Scan(t, left, nil, &got)
	if len(got) > 0 {
		t.Errorf("after the move: got %v not due, want none", got)
	}
}

func TestPutDeploymentIsStoredIfReschedulingFails(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	r.unreached(t, 1)
	r.Exec(t, `
		CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$;
		CREATE TRIGGER refuse BEFORE UPDATE ON messages FOR EACH ROW EXECUTE FUNCTION refuse()`)
	_, err := r.PutDeployment(t.Context(), project, deployment, "http://a.test")
	testdb.WantError(t, "rescheduling fails", err, ErrNotRescheduled)
	if diff := cmp.Diff([]string{deployment + " http://a.test"}, r.deployments(t, project)); diff != "" {
		t.Errorf("deployments (-want +got):\n%s", diff)
	}
}

// TestARetiredFlowIsNotTheWorkflowOfAnApp: an app that lists no workflows does not stand in for a flow that is retired.
func TestARetiredFlowIsNotTheWorkflowOfAnApp(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	if _, err := r.PutDeployment(t.Context(), project, "any", "http://a.test"); err != nil {
		t.Fatal(err)
	}
	r.Exec(t, `INSERT INTO deployments (project, id, url, workflows, retired_at)
		VALUES ('`+string(project)+`', 'order@1', 'flow:order@1', '{order}', now())`)
	_, err := r.StartDeployment(t.Context(), project, "order", "")
	testdb.WantError(t, "order", err, message.ErrDeploymentRetired)
	if d, err := r.StartDeployment(t.Context(), project, "ship", ""); err != nil || d.ID != "any" {
		t.Errorf("ship: got %s (%v), want any", d.ID, err)
	}
	r.Exec(t, `INSERT INTO deployments (project, id, url, workflows)
		VALUES ('`+string(project)+`', 'order@2', 'flow:order@2', '{order}')`)
	if d, err := r.StartDeployment(t.Context(), project, "order", ""); err != nil || d.ID != "order@2" {
		t.Errorf("order: got %s (%v), want order@2", d.ID, err)
	}
	_, err = r.StartDeployment(t.Context(), project, "ship", "order@2")
	testdb.WantError(t, "ship on a version of order", err, entities.ErrInvalid)
}

func TestNewestDeploymentHasTheWorkflow(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	put := func(p entities.Project, id string, workflows ...string) {
		t.Helper()
		if _, err := r.PutDeployment(t.Context(), p, id, "http://a.test", workflows...); err != nil {
			t.Fatal(err)
		}
	}
	want := func(workflow, id string) {
		t.Helper()
		d, err := r.NewestDeployment(t.Context(), project, workflow)
		if id == "" {
			testdb.WantError(t, workflow, err, message.ErrDeploymentNotFound)
		} else if err != nil || d.ID != id {
			t.Errorf("%s: got %s and error %v, want %s", workflow, d.ID, err, id)
		}
	}
	put("other", "foreign")
	want("order", "")
	put(project, "v1", "order", "refund", "order")
	want("order", "v1")
	want("ship", "")
	put(project, "any")
	want("order", "v1") // older, but lists the workflow
	want("ship", "any")
	put(project, "v2", "order")
	want("order", "v2")
	want("refund", "v1")
	put(project, "v1", "order", "refund") // registering again does not make it newer
	want("order", "v2")
	put(project, "any2")
	want("ship", "any2")
	put(project, "v2") // says nothing of its workflows, and keeps them
	want("order", "v2")
	put(project, "v2", "bill")
	want("order", "v1")

	d, err := r.Deployment(t.Context(), project, "v1")
	if err != nil || !slices.Equal(d.Workflows, []string{"order", "refund"}) {
		t.Errorf("got %+v and error %v, want each of its workflows once", d, err)
	}
	_, err = r.Deployment(t.Context(), project, "foreign")
	testdb.WantError(t, "another project's", err, message.ErrDeploymentNotFound)
	for _, bad := range [][]string{{""}, {"a\x00"}, make([]string, 1001)} {
		_, err := r.PutDeployment(t.Context(), project, "v1", "http://a.test", bad...)
		testdb.WantError(t, "workflows", err, entities.ErrInvalid)
	}
}

// TestStepsOnly: no run goes to a deployment that executes steps only, until it is registered as another one.
func TestStepsOnly(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	yes, no := true, false
	for _, test := range []struct {
		name    string
		put     Deployment
		order   error
		another error
		named   error
	}{
		{"any workflow", Deployment{}, nil, nil, nil},
		{"steps", Deployment{StepsOnly: &yes}, message.ErrDeploymentNotFound, message.ErrDeploymentNotFound, message.ErrStepsOnly},
		{"kept", Deployment{Build: "b"}, message.ErrDeploymentNotFound, message.ErrDeploymentNotFound, message.ErrStepsOnly},
		{"workflows", Deployment{Workflows: []string{"order"}}, nil, message.ErrDeploymentNotFound, nil},
		{"not for steps only", Deployment{StepsOnly: &no}, nil, message.ErrDeploymentNotFound, nil},
		{"steps instead", Deployment{StepsOnly: &yes}, message.ErrDeploymentNotFound, message.ErrDeploymentNotFound, message.ErrStepsOnly},
		{"no longer", Deployment{StepsOnly: &no}, nil, nil, nil},
		{"steps again", Deployment{StepsOnly: &yes}, message.ErrDeploymentNotFound, message.ErrDeploymentNotFound, message.ErrStepsOnly},
		{"none listed", Deployment{Workflows: []string{}}, nil, nil, nil},
	} {
		test.put.ID, test.put.URL = "shop", "http://a.test"
		if _, err := r.Register(t.Context(), project, test.put); err != nil {
			t.Fatal(test.name, err)
		}
		for start, want := range map[[2]string]error{
			{"order", ""}: test.order, {"another", ""}: test.another, {"order", "shop"}: test.named,
		} {
			if _, err := r.StartDeployment(t.Context(), project, start[0], start[1]); !errors.Is(err, want) {
				t.Errorf("%s: the start of %v: %v, want %v", test.name, start, err, want)
			}
		}
	}
	_, err := r.Register(t.Context(), project, Deployment{
		ID: "shop", URL: "http://a.test", StepsOnly: &yes, Workflows: []string{"order"},
	})
	testdb.WantError(t, "both", err, entities.ErrInvalid)
}

// TestDeploymentSaysSinceWhenItCannotBeReached: from the first call that is refused until it answers or moves.
func TestDeploymentSaysSinceWhenItCannotBeReached(t *testing.T) {
	t.Parallel()
	a := newApp(t, nil)
	gone := httptest.NewServer(nil)
	gone.Close()
	r := open(t, testdb.New(t))
	r.register(t, deployment, gone.URL)
	r.worker(t)
	state := func() Deployment {
		t.Helper()
		d, err := r.DeploymentDetails(t.Context(), project, deployment)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	if d := state(); d.Reached != (Reached{}) || d.Waiting != 0 {
		t.Errorf("before the first call: got %+v", d)
	}
	r.send(t)
	testdb.Eventually(t, "the message has failed", func() bool { return state().Waiting == 1 })
	away := state()
	if away.UnreachableSince == nil || away.FailedAt == nil || !strings.Contains(away.Failure, "refused") || away.AnsweredAt != nil {
		t.Fatalf("away: got %+v", away)
	}
	r.register(t, deployment, gone.URL) // again
	if d := state(); d.UnreachableSince == nil || !d.UnreachableSince.Equal(*away.UnreachableSince) {
		t.Errorf("registered again: got %+v", d)
	}
	r.register(t, deployment, a.URL)
	if d := state(); d.UnreachableSince != nil || d.Failure == "" {
		t.Errorf("moved: got %+v", d)
	}
	r.ack(t, a.next(t)) // it is delivered at once
	testdb.Eventually(t, "the answer is noted", func() bool { return state().AnsweredAt != nil })
	if err := noteUnreachable(t.Context(), r.pool, project, deployment, gone.URL, "late"); err != nil || state().UnreachableSince != nil {
		t.Errorf("a late call at the old URL: got %+v, %v", state(), err)
	}
	long := func(ago string) time.Duration {
		t.Helper()
		r.Exec(t, `UPDATE deployments SET failed_at = now() - $1::interval, unreachable_since = now() - interval '1 d'`, ago)
		if err := noteUnreachable(t.Context(), r.pool, project, deployment, a.URL, "again"); err != nil {
			t.Fatal(err)
		}
		return time.Since(*state().UnreachableSince)
	}
	if d := long("1 min"); d < 23*time.Hour {
		t.Errorf("a failure soon after another: away for %s, want a day", d)
	}
	if d := long("10 min"); d > time.Hour { // it must have been back, or nothing was sent
		t.Errorf("a failure long after another: away for %s, want a new outage", d)
	}
}

// TestNewestDeploymentIsNoPlan: a catalog's workflow is that of an app which lists it, and otherwise refused.
func TestNewestDeploymentIsNoPlan(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	if _, err := r.PutDeployment(t.Context(), project, "any", "http://a.test"); err != nil {
		t.Fatal(err)
	}
	r.Exec(t, `INSERT INTO catalogs (project, name, version, digest, document, created_at)
		VALUES ('`+string(project)+`', 'order', 1, '', '', now());
		INSERT INTO deployments (project, id, url, workflows)
		VALUES ('`+string(project)+`', 'order@1', 'flow:order@1', '{order}')`)
	_, err := r.StartDeployment(t.Context(), project, "order", "")
	testdb.WantError(t, "order", err, message.ErrIsCatalog)
	if d, err := r.StartDeployment(t.Context(), project, "order", "order@1"); err != nil || d.ID != "order@1" {
		t.Errorf("order on a plan: got %s (%v), want order@1", d.ID, err)
	}
	if _, err := r.PutDeployment(t.Context(), project, "shop", "http://a.test", "order"); err != nil {
		t.Fatal(err)
	}
	if d, err := r.StartDeployment(t.Context(), project, "order", ""); err != nil || d.ID != "shop" {
		t.Errorf("order, which an app lists: got %s (%v), want shop", d.ID, err)
	}
}

package eventlog

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/gate"
	"github.com/stepwell-dev/stepwell/pg"
)

// name returns an event as text.
func name(e entities.Event) string { return fmt.Sprintf("%s/%d %s", e.RunID, e.Seq, e.Type) }

func names(entries []read.Entry) (list []string) {
	for _, e := range entries {
		list = append(list, name(e.Event()))
	}
	return list
}

// waitForOpenTransactions waits until no open transaction blocks an event, not even one of another test's database: all
// databases of the server share transaction numbers.
func (f *fixture) waitForOpenTransactions(t tb) {
	t.Helper()
	for deadline := time.After(testTimeout); ; {
		var settled bool
		if err := f.pool.QueryRow(t.Context(), `
			SELECT NOT EXISTS (SELECT FROM events WHERE project = $1 AND xid >= `+pg.FeedPosition(`pg_snapshot_xmin(pg_current_snapshot())`)+`)`,
			home).Scan(&settled); err != nil {
			t.Fatal(err)
		}
		if settled {
			return
		}
		select {
		case <-deadline:
			t.Fatal("events are blocked for too long")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// feed reads the events of the home project page by page.
func (f *fixture) feed(t tb, q read.EventQuery, p pg.Page) (list []string) {
	t.Helper()
	for {
		page, err := f.ProjectEvents(t.Context(), home, q, p, read.WithPayloads)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, names(page.Entries)...)
		if p.Cursor = page.Cursor; !page.More {
			return list
		}
		if len(page.Entries) != p.Limit {
			t.Fatalf("a page of %d has %d events and a next page", p.Limit, len(page.Entries))
		}
	}
}

// interleavedRuns creates runs with interleaved events, and returns all events in the order of their writing.
func (f *fixture) interleavedRuns(t tb) (ids []entities.RunID, all []entities.Event) {
	t.Helper()
	add := func(r Request) {
		f.clock.move(time.Second)
		all = append(all, *f.must(t, r).Event)
	}
	for range 3 {
		ids = append(ids, newRunID())
		add(runCreated(ids[len(ids)-1]))
	}
	other := runCreated(newRunID())
	if _, err := f.Append(t.Context(), stranger, other); err != nil { // must not be listed
		t.Fatal(err)
	}
	for _, id := range ids {
		add(onRun(id, entities.EventRunStarted))
	}
	for i, id := range ids {
		add(on(id, entities.EventStepCreated, "charge"))
		add(on(id, entities.EventStepStarted, "charge"))
		add(on(ids[0], entities.EventAttrSet, fmt.Sprintf("attr_%d", i)))
		add(on(id, entities.EventStepCompleted, "charge"))
	}
	add(onRun(ids[1], entities.EventRunCompleted))
	return ids, all
}

func TestProjectEventsAreCompleteAndOrdered(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ids, all := f.interleavedRuns(t)
	f.waitForOpenTransactions(t)
	at := func(i int) time.Time { return all[i].CreatedAt }
	for what, test := range map[string]struct {
		q    read.EventQuery
		want func(int, entities.Event) bool
	}{
		"all":      {read.EventQuery{}, func(int, entities.Event) bool { return true }},
		"one type": {read.EventQuery{Types: []entities.EventType{"run_started"}}, func(_ int, e entities.Event) bool { return e.Type == "run_started" }},
		"two types, one twice": {read.EventQuery{Types: []entities.EventType{"run_started", "attr_set", "run_started"}},
			func(_ int, e entities.Event) bool { return e.Type == "run_started" || e.Type == "attr_set" }},
		"a correlation ID": {read.EventQuery{CorrelationID: "charge"}, func(_ int, e entities.Event) bool { return e.CorrelationID == "charge" }},
		"a correlation ID and a type": {read.EventQuery{CorrelationID: "charge", Types: []entities.EventType{"step_started"}},
			func(_ int, e entities.Event) bool { return e.Type == "step_started" }},
		"a run":       {read.EventQuery{RunID: ids[0]}, func(_ int, e entities.Event) bool { return e.RunID == ids[0] }},
		"from a time": {read.EventQuery{Created: store.Window{From: at(4)}}, func(i int, _ entities.Event) bool { return i >= 4 }},
		"to a time":   {read.EventQuery{Created: store.Window{To: at(4)}}, func(i int, _ entities.Event) bool { return i <= 4 }},
		"all conditions": {read.EventQuery{
			CorrelationID: "charge", RunID: ids[1], Created: store.Window{From: at(1), To: at(12)},
			Types: []entities.EventType{"step_started", "step_created"},
		}, func(i int, e entities.Event) bool {
			return e.RunID == ids[1] && i <= 12 && (e.Type == "step_started" || e.Type == "step_created")
		}},
		"none": {read.EventQuery{CorrelationID: "refund"}, func(int, entities.Event) bool { return false }},
	} {
		var want []string
		for i, e := range all {
			if test.want(i, e) {
				want = append(want, name(e))
			}
		}
		if len(want) == 0 && what != "none" {
			t.Fatalf("%s: no event is wanted", what)
		}
		for _, limit := range []int{1, 2, 5, 100} {
			if diff := gocmp.Diff(want, f.feed(t, test.q, pg.Page{Limit: limit})); diff != "" {
				t.Errorf("%s in pages of %d differs (-want +got):\n%s", what, limit, diff)
			}
			backwards := f.feed(t, test.q, pg.Page{Limit: limit, Descending: true})
			slices.Reverse(backwards)
			if diff := gocmp.Diff(want, backwards); diff != "" {
				t.Errorf("%s in descending pages of %d differs (-want +got):\n%s", what, limit, diff)
			}
		}
	}
}

func TestRunEvents(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ids, _ := f.interleavedRuns(t)
	log := f.events(t, ids[0])
	list := func(q read.EventQuery, p pg.Page) (got []int64) {
		t.Helper()
		for more := true; more; {
			page, err := f.RunEvents(t.Context(), home, ids[0], q, p, read.WithoutPayloads)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range page.Entries {
				got = append(got, e.Seq)
				if diff := gocmp.Diff(log[e.Seq-1].Data, *e.Data); diff != "" || e.Payload != nil || e.Size != int64(len(log[e.Seq-1].Payload)) {
					t.Errorf("event %d has %d of %d bytes and other data (-want +got):\n%s", e.Seq, len(e.Payload), e.Size, diff)
				}
			}
			p.Cursor, more = page.Cursor, page.More
		}
		return got
	}
	for _, test := range []struct {
		q    read.EventQuery
		p    pg.Page
		want []int64
	}{
		{read.EventQuery{}, pg.Page{Limit: 2}, []int64{1, 2, 3, 4, 5, 6, 7, 8}},
		{read.EventQuery{}, pg.Page{Limit: 3, Descending: true}, []int64{8, 7, 6, 5, 4, 3, 2, 1}},
		{read.EventQuery{After: 5}, pg.Page{Limit: 2}, []int64{6, 7, 8}},
		{read.EventQuery{After: 5}, pg.Page{Limit: 2, Descending: true}, []int64{8, 7, 6}},
		{read.EventQuery{After: 8}, pg.Page{Limit: 2}, nil},
		{read.EventQuery{Types: []entities.EventType{"attr_set"}}, pg.Page{Limit: 2}, []int64{5, 7, 8}},
		{read.EventQuery{CorrelationID: "charge"}, pg.Page{Limit: 2}, []int64{3, 4, 6}},
		{read.EventQuery{Created: store.Window{From: log[6].CreatedAt}}, pg.Page{Limit: 100}, []int64{7, 8}},
	} {
		if diff := gocmp.Diff(test.want, list(test.q, test.p)); diff != "" {
			t.Errorf("%+v, %+v: positions differ (-want +got):\n%s", test.q, test.p, diff)
		}
	}
}

func TestEventListsRejectInvalidQueries(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.run(t)
	ctx, page := t.Context(), pg.Page{Limit: 10}
	for _, cursor := range []string{"x", "1", "1:2", "-1:wrun_1:1", "1:wrun_1:-1", "1:wrun 1:1", "9999999999999999999::0", "1:w:x"} {
		if _, err := f.ProjectEvents(ctx, home, read.EventQuery{}, pg.Page{Limit: 1, Cursor: cursor}, read.WithPayloads); !errors.Is(err, entities.ErrInvalid) {
			t.Errorf("cursor %q: got error %v, want ErrInvalid", cursor, err)
		}
	}
	for _, cursor := range []string{"x", "-1", "1:2"} {
		if _, err := f.RunEvents(ctx, home, id, read.EventQuery{}, pg.Page{Limit: 1, Cursor: cursor}, read.WithPayloads); !errors.Is(err, entities.ErrInvalid) {
			t.Errorf("cursor %q: got error %v, want ErrInvalid", cursor, err)
		}
	}
	for _, q := range []read.EventQuery{
		{Types: []entities.EventType{"run_started", "none"}}, {Created: store.Window{From: day, To: day.Add(-1)}},
	} {
		_, ofProject := f.ProjectEvents(ctx, home, q, page, read.WithPayloads)
		_, ofRun := f.RunEvents(ctx, home, id, q, page, read.WithPayloads)
		_, following := f.FollowProject(ctx, home, q, nil, read.WithPayloads)
		_, followingRun := f.FollowRun(ctx, home, id, q, read.WithPayloads)
		for _, err := range []error{ofProject, ofRun, following, followingRun} {
			if !errors.Is(err, entities.ErrInvalid) {
				t.Errorf("%+v: got error %v, want ErrInvalid", q, err)
			}
		}
	}
	for _, project := range []entities.Project{home, stranger} {
		missing := id
		if project == home {
			missing = newRunID()
		}
		_, list := f.RunEvents(ctx, project, missing, read.EventQuery{}, page, read.WithPayloads)
		_, follow := f.FollowRun(ctx, project, missing, read.EventQuery{}, read.WithPayloads)
		if !errors.Is(list, entities.ErrRunNotFound) || !errors.Is(follow, entities.ErrRunNotFound) {
			t.Errorf("project %s: got errors %v and %v, want ErrRunNotFound", project, list, follow)
		}
	}
}

// TestEventListsOmitLargePayloads checks that payloads above the limit are left out, and those beyond the end of the
// page.
func TestEventListsOmitLargePayloads(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.run(t, started, hook("hook_created"))
	for _, size := range []int{read.MaxListedPayload, read.MaxListedPayload + 1} {
		r := on(id, "hook_received", "hook_1")
		r.Payload = bytes.Repeat([]byte("x"), size)
		f.must(t, r)
	}
	for range 2*read.MaxPageBytes/read.MaxListedPayload - 1 {
		r := on(id, "hook_received", "hook_1")
		r.Payload = bytes.Repeat([]byte("y"), read.MaxListedPayload)
		f.must(t, r)
	}
	first, err := f.RunEvents(t.Context(), home, id, read.EventQuery{}, pg.Page{Limit: 100}, read.WithPayloads)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(first.Entries); n < 10 || n > 25 || !first.More {
		t.Errorf("the first page has %d events, more %t", n, first.More)
	}
	for _, e := range first.Entries {
		if want := e.Size; e.Size > read.MaxListedPayload && len(e.Payload) > 0 || e.Size <= read.MaxListedPayload && int64(len(e.Payload)) != want {
			t.Errorf("event %d: %d bytes of %d", e.Seq, len(e.Payload), e.Size)
		}
	}
	f.waitForOpenTransactions(t)
	if got := f.feed(t, read.EventQuery{}, pg.Page{Limit: 1}); len(got) != 5+2*read.MaxPageBytes/read.MaxListedPayload-1 {
		t.Errorf("in pages of one there are %d events", len(got))
	}
}

// TestProjectEventsWaitForOpenTransactions: an event that is committed late is neither skipped nor read out of order.
func TestProjectEventsWaitForOpenTransactions(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	early := f.run(t)
	f.waitForOpenTransactions(t)
	follower, err := f.FollowProject(t.Context(), home, read.EventQuery{}, &read.FeedCursor{}, read.WithPayloads)
	if err != nil {
		t.Fatal(err)
	}
	defer follower.Close()
	next := func() []string {
		t.Helper()
		entries, err := follower.Next(t.Context(), ended())
		if err != nil {
			t.Fatal(err)
		}
		return names(entries)
	}
	created := func(id entities.RunID) []string { return []string{string(id) + "/1 run_created"} }
	if diff := gocmp.Diff(created(early), next()); diff != "" {
		t.Fatalf("at first (-want +got):\n%s", diff)
	}
	held, release, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	late := runCreated(newRunID())
	late.Messages = messages
	go func() {
		_, err := f.with(queueFunc(func(context.Context, pgx.Tx, *pgx.Batch, []message.Message) (func(error), error) {
			close(held)
			<-release
			return func(error) {}, nil
		})).Append(t.Context(), home, late)
		done <- err
	}()
	<-held
	second := f.run(t) // committed, by a later transaction
	if got := next(); got != nil {
		t.Errorf("while the first transaction is open: got %v", got)
	}
	if got := f.feed(t, read.EventQuery{}, pg.Page{Limit: 10}); len(got) != 1 {
		t.Errorf("the list meanwhile: %v", got)
	}
	close(release)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	want := append(created(late.RunID), created(second)...)
	var got []string
	for len(got) < len(want) { // a transaction of another database may be between the two
		entries, err := follower.Next(t.Context(), t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, names(entries)...)
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("afterwards (-want +got):\n%s", diff)
	}
}

// ended returns a context that has ended.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// TestFollowersMissNoEventInAnyCommitOrder explores all interleavings of an append and a follower, statement by
// statement. In the end the follower has read all events, each once and in order.
func TestFollowersMissNoEventInAnyCommitOrder(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	f := fixtureOn(t, dsn)
	matters := func(sql string) bool { return !strings.Contains(sql, "pg_notify") }
	one, two := gate.Open(t, dsn, f.pool, matters), gate.Open(t, dsn, f.pool, matters)
	writer, reader := f.logOver(one.Pool, 0), f.logOver(two.Pool, 0)
	n := gate.Explore(t, one, two, func(s *gate.Schedule) {
		id, other := f.run(t), f.run(t)
		f.waitForOpenTransactions(t)
		start, err := f.ProjectEvents(t.Context(), home, read.EventQuery{}, pg.Page{Limit: 1, Descending: true}, read.WithPayloads)
		if err != nil || len(start.Entries) != 1 {
			t.Fatalf("got %d events, error %v", len(start.Entries), err)
		}
		from := read.FeedCursorOf(start.Entries[0])
		follower, err := reader.FollowProject(t.Context(), home, read.EventQuery{}, &from, read.WithPayloads)
		if err != nil {
			t.Fatal(err)
		}
		defer follower.Close()
		var got []string
		s.Run(t, func() {
			if _, err := writer.Append(t.Context(), home, onRun(id, "run_started")); err != nil {
				t.Error(err)
			}
		}, func() {
			entries, err := follower.Next(t.Context(), ended())
			if err != nil {
				t.Error(err)
			}
			got = names(entries)
		})
		f.must(t, onRun(other, "run_started"))
		f.waitForOpenTransactions(t)
		for range 2 {
			cursor, err := read.ParseFeedCursor(follower.Cursor())
			if err != nil {
				t.Fatal(err)
			}
			again, err := f.FollowProject(t.Context(), home, read.EventQuery{}, &cursor, read.WithPayloads)
			if err != nil {
				t.Fatal(err)
			}
			entries, err := again.Next(t.Context(), ended())
			again.Close()
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, names(entries)...)
			follower = again
		}
		want := []string{string(id) + "/2 run_started", string(other) + "/2 run_started"}
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("what the reader got differs (-want +got):\n%s\n%s", diff, s)
		}
	})
	if n < 3 {
		t.Errorf("explored only %d orders", n)
	}
}

// TestXidsNeverDecreaseInALog has many clients append to a run at once. The feed of a run relies on the order.
func TestXidsNeverDecreaseInALog(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.run(t, started)
	for _, err := range race(func(i int) error {
		for n := range 5 {
			if _, err := f.Append(t.Context(), home, on(id, "attr_set", fmt.Sprintf("attr_%d_%d", i, n))); err != nil {
				return err
			}
		}
		return nil
	}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	page, err := f.RunEvents(t.Context(), home, id, read.EventQuery{}, pg.Page{Limit: 1000}, read.WithoutPayloads)
	if err != nil || len(page.Entries) != 2+5*racers {
		t.Fatalf("got %d events, error %v", len(page.Entries), err)
	}
	if !slices.IsSortedFunc(page.Entries, func(a, b read.Entry) int { return cmp.Compare(a.Xid, b.Xid) }) {
		t.Error("xids decrease")
	}
}

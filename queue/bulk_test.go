package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
)

// backOff makes a message one that failed and waits for its backoff.
func (r *replica) backOff(t testing.TB, id, reason string) {
	t.Helper()
	r.Exec(t, `UPDATE messages SET last_error = $2, ticket = 3, delivery_count = 2, due_at = now() + interval '10 min' WHERE id = $1`,
		id, reason)
}

// TestWaitingMessagesAreInOnePart: each waiting message is retrying, due or delayed, and counted there.
func TestWaitingMessagesAreInOnePart(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	later, parked, retrying, due, sooner := r.send(t, delayed(2*time.Hour)), r.send(t), r.send(t), r.send(t), r.send(t, delayed(time.Hour))
	ticketed, rescheduled := r.send(t), r.send(t)
	r.park(t, parked)
	r.backOff(t, retrying, "x")
	r.Exec(t, `UPDATE messages SET due_at = now() - interval '1 s' WHERE id = $1`, due)
	r.Exec(t, `UPDATE messages SET due_at = now() + interval '20 s', ticket = 1 WHERE id = $1`, ticketed)
	r.Exec(t, `UPDATE messages SET due_at = now() + interval '90 min', ticket = 5 WHERE id = $1`, rescheduled) // a wait of its run
	leased := r.claimed(t, "proc_1")
	all := []string{later, parked, retrying, due, sooner, ticketed, rescheduled, leased.ID}
	for s, want := range map[State][]string{
		"":          all,
		StateParked: {parked}, StateRetrying: {retrying}, StateDue: {due, ticketed}, StateDelayed: {sooner, rescheduled, later},
		StateLeased: {leased.ID}, StateWaiting: {later, retrying, due, sooner, ticketed, rescheduled},
	} {
		for _, limit := range []int{1, 2, 9} {
			got := r.pages(t, Filter{State: s}, pg.Page{Limit: limit})
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s, %d a page (-want +got):\n%s", s, limit, diff)
			}
			slices.Reverse(got)
			if diff := cmp.Diff(got, r.pages(t, Filter{State: s}, pg.Page{Limit: limit, Descending: true})); diff != "" {
				t.Errorf("%s, descending (-want +got):\n%s", s, diff)
			}
		}
	}
	for id, want := range map[string]State{parked: StateParked, due: StateWaiting, leased.ID: StateLeased} {
		if e, err := r.Message(t.Context(), project, id); err != nil || e.ID != id || e.State != want {
			t.Errorf("got %+v and error %v, want it %s", e, err, want)
		}
	}
	_, err := r.Message(t.Context(), "other", due)
	testdb.WantError(t, "another project's", err, message.ErrMessageNotFound)
	list, _, err := r.Messages(t.Context(), "other", Filter{}, pg.Page{Limit: 9})
	if len(list) > 0 || err != nil {
		t.Errorf("another project has %+v, error %v", list, err)
	}
	for _, bad := range []struct{ state, cursor string }{{"lost", ""}, {"parked", "a b"}} {
		_, _, err := r.Messages(t.Context(), project, Filter{State: State(bad.state)}, pg.Page{Limit: 1, Cursor: bad.cursor})
		testdb.WantError(t, fmt.Sprint(bad), err, entities.ErrInvalid)
	}
	got, err := r.Counts(t.Context(), project)
	if err != nil || got.OldestDue == nil || time.Since(*got.OldestDue) < time.Second {
		t.Fatalf("got %+v, %v, want the oldest due a second ago", got, err)
	}
	got.OldestDue = nil
	if diff := cmp.Diff(Counts{Number{Count: 1}, Number{Count: 1}, Number{Count: 1}, Number{Count: 2}, Number{Count: 3}, nil}, got); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}

// pages lists the IDs of the messages that match, page by page.
func (r *replica) pages(t testing.TB, f Filter, p pg.Page) (ids []string) {
	t.Helper()
	for {
		entries, next, err := r.Messages(t.Context(), project, f, p)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			ids = append(ids, e.ID)
		}
		if p.Cursor = next; next == "" {
			return ids
		}
	}
}

func TestMessagesAreFiltered(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	refused, other, step := r.send(t), r.send(t, func(m *message.Message) { m.DeploymentID = "blog" }), r.send(t)
	r.backOff(t, refused, "dial tcp 10.1.2.3:80: connection refused")
	r.backOff(t, other, "answered 500")
	r.backOff(t, step, "answered 500")
	r.Exec(t, `UPDATE messages SET run_id = 'wrun_1', work = 'step', subject = 'charge' WHERE id = $1`, step)
	for name, tt := range map[string]struct {
		filter Filter
		want   []string
	}{
		"run":            {Filter{RunID: "wrun_1"}, []string{step}},
		"deployment":     {Filter{DeploymentID: "blog"}, []string{other}},
		"work":           {Filter{State: StateRetrying, Work: message.WorkStep}, []string{step}},
		"error":          {Filter{State: StateRetrying, ErrorContains: "refused"}, []string{refused}},
		"hidden address": {Filter{State: StateRetrying, ErrorContains: "10.1.2.3", Redacted: true}, nil},
		"shown address":  {Filter{State: StateRetrying, ErrorContains: "10.1.2.3"}, []string{refused}},
		"all":            {Filter{DeploymentID: deployment, Work: message.WorkStep, ErrorContains: "500"}, []string{step}},
	} {
		if diff := cmp.Diff(tt.want, r.pages(t, tt.filter, pg.Page{Limit: 1})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestPagesReadFewMessages: a filter that few messages match reads no more than the limit for each page, and the
// pages together have all that match.
func TestPagesReadFewMessages(t *testing.T) {
	t.Parallel()
	dsn := testdb.Indexed(t)
	var ids []string
	func() {
		r := withoutHints(t, dsn)
		defer r.pool.Close()
		r.Exec(t, `INSERT INTO messages (id, project, topic, deployment_id, run_id, content_type, body, expires_at, due_at, last_error)
			SELECT 'msg_' || lpad(i::text, 10, '0'), 'default', 'w', CASE WHEN i = 25000 THEN 'rare' ELSE 'dpl' END, '', '', '', now(),
				now() + interval '1 d' + i * interval '1 s', CASE i % 2 WHEN 0 THEN 'x' ELSE '' END
			FROM generate_series(1, $1) i`, 3*scanLimit)
		r.Exec(t, `ANALYZE messages`)
		ids = r.pages(t, Filter{State: StateRetrying, DeploymentID: "rare"}, pg.Page{Limit: 10})
		if c, err := r.Counts(t.Context(), project); err != nil || c.Retrying != (Number{countLimit, true}) || c.Delayed != (Number{countLimit, true}) {
			t.Errorf("got %+v, %v, want 1,000 and more", c, err)
		}
	}()
	if diff := cmp.Diff([]string{"msg_0000025000"}, ids); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// Two pages of up to 10,000 entries each, and the counts.
	read := testdb.Read(t, dsn)
	if n := read["messages_failed_idx"]; n > 2*scanLimit+2*countLimit {
		t.Errorf("%d entries read: %v", n, read)
	}
	if n := read["messages_begun_due_idx"] + read["messages_due_idx"]; n > 4*countLimit {
		t.Errorf("%d entries read to count what is delayed: %v", n, read)
	}
}

// TestMessagesOfARunAreReadFromIndexes: a list of a run's messages reads none of other runs, in whatever state, nor of the
// app that the server calls with a message before there is a run.
func TestMessagesOfARunAreReadFromIndexes(t *testing.T) {
	t.Parallel()
	dsn := testdb.Indexed(t)
	func() {
		r := withoutHints(t, dsn)
		defer r.pool.Close()
		run := r.created(t)
		r.register(t, deployment, "http://127.0.0.1:1")
		r.Exec(t, `INSERT INTO messages (id, project, topic, deployment_id, run_id, work, subject, content_type, body, expires_at, due_at, last_error, parked_at)
			SELECT 'msg_' || lpad(i::text, 10, '0'), $2, 'w', $3, CASE WHEN i % 10000 < 2 THEN $4 WHEN i % 10000 = 2 THEN 'wrun_new' ELSE 'wrun_' || i END,
				CASE i % 2 WHEN 0 THEN 'step' ELSE '' END, i, '', '', now(), now() + interval '1 d', 'x', CASE WHEN i > $1 / 2 THEN now() END
			FROM generate_series(1, $1) i WHERE i % 10000 <> 2 OR i = 2`, 2*scanLimit, project, deployment, run.RunID)
		r.Exec(t, `UPDATE messages SET work = '' WHERE id = 'msg_0000000002'`)
		r.Exec(t, `ANALYZE messages`)
		for _, tt := range []struct {
			filter Filter
			want   []string
		}{
			{Filter{RunID: run.RunID}, []string{"msg_0000000001", "msg_0000010000", "msg_0000010001", "msg_0000020000"}},
			{Filter{RunID: run.RunID, State: StateRetrying}, []string{"msg_0000000001", "msg_0000010000"}},
			{Filter{RunID: run.RunID, State: StateParked}, []string{"msg_0000010001", "msg_0000020000"}},
			{Filter{RunID: run.RunID, State: StateDelayed}, nil},
			{Filter{RunID: "wrun_new"}, []string{"msg_0000000002"}},
		} {
			if diff := cmp.Diff(tt.want, r.pages(t, tt.filter, pg.Page{Limit: 3})); diff != "" {
				t.Errorf("%+v (-want +got):\n%s", tt.filter, diff)
			}
		}
		for _, cursor := range []string{"msg_1", "x:msg_1", "-9223372036854775808:msg_1", "1:"} {
			if _, _, err := r.Messages(t.Context(), project, Filter{State: StateDelayed}, pg.Page{Limit: 1, Cursor: cursor}); !errors.Is(err, entities.ErrInvalid) {
				t.Errorf("cursor %q: got %v, want ErrInvalid", cursor, err)
			}
		}
	}()
	for index, n := range testdb.Read(t, dsn) {
		if n > 1000 {
			t.Errorf("%d entries of %s were read", n, index)
		}
	}
}

func TestMatchingMessagesAreRetriedAndDiscarded(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	parked, failed, waiting, foreign := r.send(t), r.send(t), r.send(t), r.send(t, func(m *message.Message) { m.Project = "other" })
	all := []string{parked, failed, waiting, foreign}
	r.park(t, parked)
	r.park(t, foreign)
	r.backOff(t, failed, "x")
	ctx := admin.WithActor(t.Context(), "key_1")
	for _, tt := range []struct {
		do    func(context.Context, entities.Project, Filter, []string) (int, error)
		state State
		want  int
	}{
		{r.RetryAll, StateDelayed, 0}, {r.RetryAll, StateRetrying, 1}, {r.RetryAll, StateParked, 1}, {r.RetryAll, StateParked, 0},
		{r.RetryAll, "", 2}, // the third one has not failed
		{r.DiscardAll, StateParked, 0}, {r.DiscardAll, "", 3}, {r.DiscardAll, "", 0},
	} {
		if n, err := tt.do(ctx, project, Filter{State: tt.state}, all); err != nil || n != tt.want {
			t.Errorf("%q: got %d, %v, want %d", tt.state, n, err, tt.want)
		}
		if tt.want == 1 && r.Count(t, `SELECT count(*) FROM messages WHERE due_at <= now() AND delivery_count = 0
			AND parked_at IS NULL AND id = ANY ($1)`, []string{parked, failed}) == 0 {
			t.Errorf("%q: no message is due", tt.state)
		}
	}
	r.Want(t, "parked messages of the other project", 1, `SELECT count(*) FROM messages WHERE id = $1 AND parked_at IS NOT NULL`, foreign)
	want := []string{"key_1 messages.retry retrying", "key_1 messages.retry parked", "key_1 messages.retry ", "key_1 messages.discard "}
	if diff := cmp.Diff(want, r.audit(t)); diff != "" {
		t.Errorf("audit (-want +got):\n%s", diff)
	}
}

// TestRacersRetryEachMessageOnce: of several requests that retry and discard the same messages, each message counts for
// one of them.
func TestRacersRetryEachMessageOnce(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	const messages = 40
	ids := make([]string, messages)
	for i := range ids {
		ids[i] = r.send(t, keyed(fmt.Sprint(i)))
		r.park(t, ids[i])
	}
	done := make(chan int, 8)
	race(8, func(i int) bool {
		do := r.RetryAll
		if i%2 == 1 {
			do = r.DiscardAll
		}
		n, err := do(context.Background(), project, Filter{State: StateParked}, ids)
		if err != nil {
			t.Error(err)
		}
		done <- n
		return n > 0
	})
	close(done)
	sum := 0
	for n := range done {
		sum += n
	}
	if sum != messages {
		t.Errorf("%d messages were changed, want %d", sum, messages)
	}
	r.Want(t, "messages in the audit", messages, `SELECT coalesce(sum((detail->>'count')::int), 0) FROM audit WHERE action LIKE 'messages.%'`)
	if n, keys := r.Count(t, `SELECT count(*) FROM messages`), r.Count(t, `SELECT count(*) FROM message_keys`); n != keys {
		t.Errorf("%d messages are left with %d keys", n, keys)
	}
}

package eventlog

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/stepwell-dev/stepwell/entities"
)

// TestI1I2RowsAreTheFoldOfADenseLog sends whatever comes to mind to two runs that contend for tokens, and to
// a model of each in memory. Both agree on every answer; in the end each log is dense, and the rows, the
// model and the fold of the log are one.
func TestI1I2RowsAreTheFoldOfADenseLog(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	rapid.Check(t, func(rt *rapid.T) {
		runs := []*model{newModel(rt), newModel(rt)}
		now := day
		log := New(f.pool, f.hub, noQueue{}, func() time.Time { return now })
		for range rapid.IntRange(1, 40).Draw(rt, "requests") {
			i := rapid.IntRange(0, 1).Draw(rt, "run")
			one, other := runs[i], runs[1-i]
			// The clock mostly runs, now and then jumps back, and does not stop at milliseconds.
			now = now.Add(time.Duration(rapid.Int64Range(-2e9, 20e9).Draw(rt, "passed")))
			r := drawRequest(rt, one, other)
			one.compare(rt, log, other, r, now)
		}
		for _, one := range runs {
			one.conclude(rt, f)
		}
	})
}

// model is a run as memory has it.
type model struct {
	*story
	id entities.RunID
}

func newModel(t tb) *model { return &model{story: tell(t), id: newRunID()} }

func (m *model) compare(t *rapid.T, log *Log, other *model, r Request, now time.Time) {
	t.Helper()
	m.at = now.Truncate(time.Millisecond)
	m.held = map[string]entities.Hook{}
	for _, hook := range other.snapshot.Hooks {
		m.held[hook.Token] = hook
	}
	var want []entities.Event
	wantErr := r.exact().validate(m.at)
	if wantErr == nil {
		want, wantErr = m.append(r.exact())
	}
	got, err := log.Append(t.Context(), home, r)
	if errors.Is(wantErr, errRepeat) {
		wantErr = nil
	}
	if fmt.Sprint(wantErr) != fmt.Sprint(unwrapped(err)) {
		t.Fatalf("%s %s: got error %v, want %v", r.Type, r.CorrelationID, err, wantErr)
	}
	if len(want) == 0 {
		if got.Event != nil && !got.Repeated {
			t.Fatalf("%s %s: got an event, want none new", r.Type, r.CorrelationID)
		}
		return
	}
	if diff := cmp.Diff(&want[len(want)-1], got.Event); diff != "" {
		t.Fatalf("event differs (-want +got):\n%s", diff)
	}
}

// unwrapped is the error without what Append puts before it.
func unwrapped(err error) error {
	if inner := errors.Unwrap(err); inner != nil {
		return inner
	}
	return err
}

func (m *model) conclude(t *rapid.T, f *fixture) {
	t.Helper()
	rows := f.rows(t, m.id)
	if diff := cmp.Diff(m.snapshot, rows); diff != "" {
		t.Fatalf("rows are not as the model has them (-model +rows):\n%s", diff)
	}
	if m.snapshot.Run == nil {
		return
	}
	events := f.events(t, m.id)
	if diff := cmp.Diff(m.log, events); diff != "" {
		t.Fatalf("log is not as the model has it (-model +log):\n%s", diff)
	}
	if diff := cmp.Diff(fold(events), rows); diff != "" {
		t.Fatalf("rows are not the fold of the log (-fold +rows):\n%s", diff)
	}
	wantDense(t, events)
}

// wantDense fails the test unless positions count from 1 and times never go back (I1).
func wantDense(t tb, events []entities.Event) {
	t.Helper()
	last := time.Time{}
	for i, e := range events {
		if e.Seq != int64(i+1) {
			t.Fatalf("event %d has position %d: %v", i+1, e.Seq, typesOf(events))
		}
		if e.CreatedAt.Before(last) {
			t.Fatalf("event %d is from %s, before the one before it, %s", i+1, e.CreatedAt, last)
		}
		last = e.CreatedAt
	}
}

// drawRequest is a request that may well be legal: it comes from a small world of few IDs and tokens.
func drawRequest(t *rapid.T, m, other *model) Request {
	events := allEvents
	if m.snapshot.Run == nil {
		events = []entities.EventType{"run_created", "run_created", "run_started", "step_created", "run_failed"}
	} else if rapid.IntRange(0, 9).Draw(t, "let it live") > 0 {
		events = allEvents[5:]
	}
	event := rapid.SampledFrom(events).Draw(t, "event")
	r := on(m.id, event, rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "ID"))
	r.Payload = rapid.SliceOfN(rapid.Byte(), 1, 8).Draw(t, "payload")
	if rapid.Bool().Draw(t, "with clock") {
		r.OccurredAt = ptr(day.Add(time.Duration(rapid.Int64Range(-1e9, 1e9).Draw(t, "occurred"))).Local())
	}
	switch event {
	case entities.EventRunCreated, entities.EventRunStarted:
		r.Data, r.CorrelationID = runCreated(m.id).Data, ""
	case entities.EventHookCreated:
		r.Data.Token = rapid.SampledFrom([]string{"S ", "T "}).Draw(t, "token") + string(min(m.id, other.id))
		r.Data.IsWebhook = rapid.SampledFrom([]*bool{nil, ptr(true), ptr(false)}).Draw(t, "webhook")
	case entities.EventStepRetrying:
		if rapid.Bool().Draw(t, "later") {
			r.Data.RetryAfter = ptr(m.at.Add(time.Duration(rapid.Int64Range(-5e9, 60e9).Draw(t, "retry after"))))
		}
	case entities.EventRunFailed:
		r.Data.ErrorCode = rapid.SampledFrom([]string{"", "USER_ERROR"}).Draw(t, "code")
	case entities.EventAttrSet:
		r.Data.Changes[0].Key = rapid.SampledFrom([]string{"x", "y", "$z"}).Draw(t, "key")
		r.Data.AllowReserved = rapid.Bool().Draw(t, "reserved")
		if rapid.Bool().Draw(t, "remove") {
			r.Data.Changes[0].Value = nil
		}
	default: // the others need nothing
	}
	return r
}

package triggers_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/capacity/limit"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/starts/collection"
	"github.com/stepwell-dev/stepwell/starts/trigger"
	"github.com/stepwell-dev/stepwell/starts/trigger/triggers"
)

// batches collects so many events of a customer.
func batches(t *testing.T, size int) *collection.Rule {
	t.Helper()
	rule, err := collection.NewBatch("${data.customer}", size, time.Hour, 0)
	if err != nil {
		t.Fatal(err)
	}
	return &rule
}

// TestStartHasValuesOfTheEvent in its input and its texts, and all options of a start.
func TestStartHasValuesOfTheEvent(t *testing.T) {
	t.Parallel()
	s := newApp(t)
	if _, err := limit.NewStore(s.Pool, time.Now).Put(t.Context(), project, "stripe", limit.Spec{PerKey: 1}); err != nil {
		t.Fatal(err)
	}
	spec := onSignal("")
	spec.Input = []byte(`{"of": "${data.order}", "text": "order ${data.order.id} of ${signal.name}", "price": "$${5}", "n": 9007199254740993}`)
	spec.UniqueKey, spec.Attributes = "order-${data.order.id}", map[string]string{"customer": "${data.customer}"}
	spec.Timeout = time.Hour
	spec.Options = trigger.Options{
		Limits:   []entities.LimitUse{{Name: "stripe", Key: "${data.customer}", Cost: 1}},
		Priority: time.Minute, Delay: time.Hour,
	}
	s.put(t, spec)
	s.post(t, `{"customer": 7, "order": {"id": 18014398509481985, "sum": 1.50}}`)
	s.settle(t)
	e := s.wantHistory(t, trigger.Started)[0]
	want := `{"of":{"id": 18014398509481985, "sum": 1.50},"text":"order 18014398509481985 of paid","price":"${5}","n":9007199254740993}`
	if got := s.input(t, e.RunID); got != want {
		t.Errorf("got the input  %s\nwant           %s", got, want)
	}
	run, err := store.RunByID(t.Context(), pg.NewPool(s.Pool), project, e.RunID)
	if err != nil {
		t.Fatal(err)
	}
	first, err := s.Log.Event(t.Context(), project, e.RunID, 1)
	if err != nil {
		t.Fatal(err)
	}
	if run.UniqueKey != "order-18014398509481985" || run.Attributes["customer"] != "7" {
		t.Errorf("the run has the key %q and the attributes %v", run.UniqueKey, run.Attributes)
	}
	d := first.Data
	if len(d.Limits) != 1 || d.Limits[0].Key != "7" || d.PriorityMS != 60_000 || d.StartAt == nil || d.Deadline == nil ||
		d.Deadline.Sub(*d.StartAt) != time.Hour {
		t.Errorf("the run was started with %+v", d)
	}
}

// TestEventWithoutTheValuesIsRefused, and so is a trigger whose expressions cannot be compiled.
func TestEventWithoutTheValuesIsRefused(t *testing.T) {
	t.Parallel()
	s := newApp(t)
	spec := onSignal("")
	spec.UniqueKey = "${data.customer}"
	s.put(t, spec)
	s.post(t, `{}`)
	s.settle(t)
	if e := s.wantHistory(t, trigger.Refused)[0]; !strings.Contains(e.Reason, "start.key") {
		t.Errorf("got the reason %q, want one that names start.key", e.Reason)
	}
	for text, want := range map[string]string{
		`"${data."`: "no \"}\"", `"${data +}"`: "cannot be compiled", `"${now}"`: "known are data, signal and run",
		`["` + strings.Repeat("${1}", 101) + `"]`: "limit is 100",
	} {
		spec.Input = []byte(text)
		_, _, err := s.Put(t.Context(), project, "t", spec)
		field, ok := errors.AsType[*entities.FieldError](err)
		if !ok || field.Field != "start.input" || !errors.Is(err, entities.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: got %v, want start.input and %q", text, err, want)
		}
	}
}

// TestEventsWithOneIdempotencyKeyStartOneRun, also if they are requests with other contents.
func TestEventsWithOneIdempotencyKeyStartOneRun(t *testing.T) {
	t.Parallel()
	s := newApp(t)
	spec := trigger.Spec{Kind: trigger.KindWebhook, Workflow: "report"}
	spec.Options.IdempotencyKey = "${data.order}"
	hook := s.put(t, spec)
	var first trigger.Event
	for i, want := range []trigger.Decision{trigger.Started, trigger.Joined, trigger.Joined} {
		done, err := s.Receive(t.Context(), hook, triggers.Request{
			ID: fmt.Sprint("hreq_", i), Digest: fmt.Sprint(i), Payload: fmt.Appendf(nil, `{"order": 1, "n": %d}`, i),
		})
		if i == 0 {
			first = done
		}
		if err != nil || done.Decision != want || done.RunID != first.RunID {
			t.Errorf("event %d: got %+v, %v; want %s and run %s", i, done, err, want, first.RunID)
		}
	}
	again, err := s.Receive(t.Context(), hook, triggers.Request{ID: "hreq_0", Digest: "0", Payload: []byte(`{"order": 1, "n": 0}`)})
	if err != nil || again.RunID != first.RunID {
		t.Errorf("the first event again: got %+v, %v", again, err)
	}
	s.wantHistory(t, trigger.Started, trigger.Joined, trigger.Joined)
}

// TestRacersCollectAnEventOnce: two servers and many deliveries of the same work. Three events make a batch of three.
func TestRacersCollectAnEventOnce(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	servers := []*server{newServer(t, dsn), newServer(t, dsn)}
	servers[0].Register(t)
	spec := onSignal("")
	spec.Input, spec.Options.Collect = []byte(`"${data.n}"`), batches(t, 3)
	servers[0].put(t, spec)
	for n := range 3 {
		servers[0].post(t, fmt.Sprintf(`{"customer": "c7", "n": %d}`, n))
		servers[0].do(t, message.WorkSignal)
		d, _ := servers[0].Claim(t, message.WorkTrigger, "")
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				s := servers[i%2]
				if err := s.Handle(t.Context(), s.Bind(t, d)); err != nil && !errors.Is(err, message.ErrStale) {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	servers[0].settle(t)
	list := servers[0].history(t)
	if len(list) != 3 {
		t.Fatalf("got %+v, want three events", list)
	}
	for _, e := range list {
		if e.Decision != trigger.Collected || e.RunID != list[0].RunID {
			t.Errorf("got %+v, want one that was collected for %s", e, list[0].RunID)
		}
	}
	if got := servers[0].input(t, list[0].RunID); got != "[0,1,2]" {
		t.Errorf("got the input %s, want [0,1,2]", got)
	}
	if n := servers[0].Count(t, `SELECT (SELECT count(*) FROM collections) + (SELECT count(*) FROM messages WHERE work = 'trigger')`); n != 0 {
		t.Errorf("%d collections and pieces of work are left", n)
	}
}

// TestFailedCollectingLeavesNoTrace makes the last statement fail, which ends the work.
func TestFailedCollectingLeavesNoTrace(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]int{"the first event": 0, "one that adds": 1, "one that makes the list full": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newApp(t)
			spec := onSignal("")
			spec.Options.Collect = batches(t, 3)
			s.put(t, spec)
			for range before {
				s.post(t, `{"customer": "c7"}`)
				s.settle(t)
			}
			s.post(t, `{"customer": "c7"}`)
			s.do(t, message.WorkSignal)
			d, _ := s.Claim(t, message.WorkTrigger, "")
			s.Exec(t, `
				CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''broken''; END';
				CREATE TRIGGER broken BEFORE DELETE ON messages FOR EACH ROW EXECUTE FUNCTION refuse()`)
			if err := s.Handle(t.Context(), d); err == nil {
				t.Fatal("got no error")
			}
			const traces = `SELECT (SELECT coalesce(sum(count), 0) FROM collections) + 10 * (SELECT count(*) FROM events)`
			if n := s.Count(t, traces); n != before {
				t.Errorf("there are %d starts and tens of events, want %d", n, before)
			}
			s.Exec(t, `DROP TRIGGER broken ON messages`)
			s.settle(t)
			want := before + 1
			if want == 3 {
				want = 10
			}
			if n := s.Count(t, traces); n != want {
				t.Errorf("then there are %d starts and tens of events, want %d", n, want)
			}
		})
	}
}

// TestDeletedTriggerCollectsNothing, even if an event was read before.
func TestDeletedTriggerCollectsNothing(t *testing.T) {
	t.Parallel()
	s := newApp(t)
	spec := onSignal("")
	spec.Options.Collect = batches(t, 3)
	s.put(t, spec)
	s.post(t, `{"customer": "c7"}`)
	s.do(t, message.WorkSignal)
	if err := s.Delete(t.Context(), project, "t"); err != nil {
		t.Fatal(err)
	}
	s.settle(t)
	if n := s.Count(t, `SELECT count(*) FROM collections`); n != 0 {
		t.Errorf("there are %d collections", n)
	}
}

// TestEndOfARunFillsTheStart with what is known of the run.
func TestEndOfARunFillsTheStart(t *testing.T) {
	t.Parallel()
	s := newApp(t)
	spec := onEnd("")
	spec.Input = []byte(`["${run.id}", "${run.attributes.customer}", "${data.status}", "${data.output.sum + 1.0}"]`)
	s.put(t, spec)
	id := s.run(t, func(r *eventlog.Request) { r.Data.Attributes = map[string]string{"customer": "c7"} })
	s.end(t, id, entities.EventRunCompleted)
	s.settle(t)
	e := s.wantHistory(t, trigger.Started)[0]
	if got, want := s.input(t, e.RunID), fmt.Sprintf(`[%q,"c7","completed",8]`, id); got != want {
		t.Errorf("got the input %s, want %s", got, want)
	}
}

// TestEmptyKeyIsRefused: events whose key an expression leaves empty have nothing in common.
func TestEmptyKeyIsRefused(t *testing.T) {
	t.Parallel()
	collected := batches(t, 2)
	for field, options := range map[string]trigger.Options{
		"start.idempotencyKey":   {IdempotencyKey: "${data.customer}"},
		"start.limits[0].key":    {Limits: []entities.LimitUse{{Name: "stripe", Key: "${data.customer}"}}},
		"start.limits[0].tenant": {Limits: []entities.LimitUse{{Name: "stripe", Key: "k", Tenant: "${data.customer}"}}},
		"start.batch.key":        {Collect: collected},
		"start.key":              {},
	} {
		t.Run(field, func(t *testing.T) {
			t.Parallel()
			s := newApp(t)
			spec := onSignal("")
			if spec.Options = options; field == "start.key" {
				spec.UniqueKey = "${data.customer}"
			}
			s.put(t, spec)
			s.post(t, `{"customer": ""}`)
			s.settle(t)
			if e := s.wantHistory(t, trigger.Refused)[0]; !strings.Contains(e.Reason, field) ||
				!strings.Contains(e.Reason, "is empty for this event") {
				t.Errorf("got the reason %q, want one that names %s", e.Reason, field)
			}
		})
	}
}

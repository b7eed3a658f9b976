package queue

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/entities/rescue"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// allWork is the work of handlers.
var allWork = []message.Work{
	message.WorkRun, message.WorkStep, message.WorkDeadline, message.WorkCancel, message.WorkReport, message.WorkEnd,
	message.WorkSignal, message.WorkEmit, message.WorkLookBack, message.WorkSchedule, message.WorkCollection,
	message.WorkTrigger, message.WorkProbe, message.WorkRequest,
}

// panics are works whose handlers panic for one project, and count how often they do. For others they work.
type panics map[message.Work]*atomic.Int32

const hostile entities.Project = "hostile"

func newPanics() panics {
	p := panics{}
	for _, work := range allWork {
		p[work] = &atomic.Int32{}
	}
	return p
}

func (p panics) handlers() map[message.Work]Handler {
	handlers := map[message.Work]Handler{}
	for work, n := range p {
		handlers[work] = func(ctx context.Context, d Delivery) error {
			if d.Project == hostile {
				n.Add(1)
				panic("a secret")
			}
			return d.End(ctx)
		}
	}
	return handlers
}

// TestPanicParksTheMessage: in whichever way a message is delivered, one whose work panics is parked at once, with a
// code, and not delivered again until somebody retries it. All other work goes on.
func TestPanicParksTheMessage(t *testing.T) {
	t.Parallel()
	for name, deliver := range map[string]func(t *testing.T, r *replica, o func(*WorkerOptions), send func()){
		"here": func(t *testing.T, r *replica, o func(*WorkerOptions), send func()) {
			r.worker(t, o)
			send()
		},
		"by tickets": func(t *testing.T, r *replica, o func(*WorkerOptions), send func()) {
			r.worker(t, o)
			r.ticketsOnly()
			send()
		},
		"by a drain": func(t *testing.T, r *replica, o func(*WorkerOptions), send func()) {
			send()
			drain(t, r.drainer(t, o))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, p := open(t, testdb.New(t)), newPanics()
			o := func(o *WorkerOptions) { o.Handlers = p.handlers() }
			deliver(t, r, o, func() {
				for _, work := range allWork {
					for _, of := range []entities.Project{hostile, project} {
						m := invocation()
						m.Project, m.Work = of, work
						if work == message.WorkEnd { // which only runs with open children have
							r.addChild(t, m)
						}
						if _, err := r.SendAll(t.Context(), []message.Message{m}); err != nil {
							t.Fatal(err)
						}
					}
				}
			})
			testdb.Eventually(t, "all other work is done", func() bool {
				return r.Count(t, `SELECT count(*) FROM messages WHERE project = $1`, project) == 0
			})
			for _, work := range allWork {
				id := workOf(t, r, hostile, work)
				testdb.Eventually(t, "message is parked", func() bool { return r.stored(t, id).Parked })
				e, err := r.Message(t.Context(), hostile, id)
				if err != nil || e.State != StateParked || !strings.Contains(e.LastError, rescue.Code) ||
					strings.Contains(e.LastError, "nil map") {
					t.Errorf("%s: %s, %q, %v", work, e.State, e.LastError, err)
				}
				if code := blockedCode(t, r, id); code != rescue.Code {
					t.Errorf("%s: the code is %q", work, code)
				}
				if n := p[work].Load(); n != 1 {
					t.Errorf("%s: handled %d times", work, n)
				}
			}
		})
	}
}

// addChild adds an open child of the run that a message is about.
func (r *replica) addChild(t *testing.T, m message.Message) {
	t.Helper()
	r.Exec(t, `
		INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, attributes, last_seq, created_at,
			updated_at, parent_id)
		VALUES ($1, $2, $3, 'w', 'pending', 2, '{}', 1, now(), now(), $4)`,
		entities.NewRunID(time.Now()), m.Project, m.DeploymentID, m.RunID)
}

// workOf returns the ID of the message of a piece of work.
func workOf(t *testing.T, r *replica, p entities.Project, work message.Work) (id string) {
	t.Helper()
	r.Scan(t, `SELECT coalesce(max(id), '') FROM messages WHERE project = $1 AND work = $2`, []any{p, work}, &id)
	if id == "" {
		t.Fatalf("no message for %s", work)
	}
	return id
}

func blockedCode(t *testing.T, r *replica, id string) (code string) {
	t.Helper()
	r.Scan(t, `SELECT coalesce(blocked->>'code', '') FROM messages WHERE id = $1`, []any{id}, &code)
	return code
}

// TestParkedMessagesAreRetriedByHand: a retry delivers a message again that was parked because of a panic.
func TestParkedMessagesAreRetriedByHand(t *testing.T) {
	t.Parallel()
	r := open(t, testdb.New(t))
	var calls atomic.Int32
	r.worker(t, func(o *WorkerOptions) {
		o.Handlers = map[message.Work]Handler{message.WorkRun: func(ctx context.Context, d Delivery) error {
			if calls.Add(1) == 1 {
				panic("once")
			}
			return d.End(ctx)
		}}
	})
	if _, err := r.SendAll(t.Context(), []message.Message{invocation()}); err != nil {
		t.Fatal(err)
	}
	id := workOf(t, r, project, message.WorkRun)
	testdb.Eventually(t, "message is parked", func() bool { return r.stored(t, id).Parked })
	if _, err := r.Retry(t.Context(), project, id); err != nil {
		t.Fatal(err)
	}
	r.gone(t, id)
}

// TestTasksGoOnAfterAPanic: a panic ends one pass of what a process does all the time, and not the process.
func TestTasksGoOnAfterAPanic(t *testing.T) {
	t.Parallel()
	r := open(t, testdb.New(t))
	w := r.newWorker(t)
	passes := make(chan struct{})
	w.sweeper.Interval = 10 * time.Millisecond
	w.sweeper.AfterPass = func(ctx context.Context) {
		select {
		case passes <- struct{}{}:
		case <-ctx.Done():
		}
		panic("in the sweep")
	}
	startWorker(t, w)
	for range 3 {
		testdb.Receive(t, "a pass", passes)
	}
}

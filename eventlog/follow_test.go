package eventlog

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/pg"
)

// listedQueue keeps what was enqueued last.
type listedQueue struct {
	noQueue

	list []string
}

func (q *listedQueue) note(messages []message.Message) {
	q.list = nil
	for _, m := range messages {
		q.list = append(q.list, strings.TrimSpace(fmt.Sprint(m.Work, " ", m.Subject, " ", m.Delay)))
	}
}

func (q *listedQueue) Enqueue(
	ctx context.Context, tx pgx.Tx, before *pgx.Batch, messages []message.Message,
) ([]*InlineStart, func(error), error) {
	q.note(messages)
	return q.noQueue.Enqueue(ctx, tx, before, messages)
}

func (q *listedQueue) EnqueueOptimistic(
	s *pg.Conditional, messages []message.Message,
) ([]*InlineStart, func(error), bool) {
	q.note(messages)
	return q.noQueue.EnqueueOptimistic(s, messages)
}

// TestFollow appends the result of a step with what follows. Either both are written and the run is not invoked, or it
// is invoked and the result is written alone. Who was asked learns which.
func TestFollow(t *testing.T) {
	t.Parallel()
	known := func(requests ...Request) *Following { return &Following{Known: true, Requests: requests} }
	ends := on("", "run_completed", "")
	asked := on("", "step_failed", "other")
	asked.Data.Cancelled = true
	var many []Request
	for n := range longCall {
		many = append(many, serverStep("", fmt.Sprint("s", n)))
	}
	for name, tt := range map[string]struct {
		follow   *Following
		stale    bool
		want     []string // the events after the first ones
		messages []string
	}{
		"the next step": {
			follow: known(serverStep("", "next")), want: []string{"step_completed one", "step_created next"}, messages: []string{"step next 0s"},
		},
		"two waits": {
			follow:   known(waitUntil("", "long", day.Add(2*time.Hour)), waitUntil("", "short", day.Add(time.Hour))),
			want:     []string{"step_completed one", "wait_created long", "wait_created short"},
			messages: []string{"run  1h0m0s"},
		},
		"the end": {follow: known(ends), want: []string{"step_completed one", "run_completed"}, messages: []string{"end  0s"}},
		"nothing, beside another step": {
			follow: known(), want: []string{"step_completed one"}, messages: nil,
		},
		"unknown":       {follow: &Following{}, want: []string{"step_completed one"}, messages: []string{"run  0s"}},
		"nobody knows":  {want: []string{"step_completed one"}, messages: []string{"run  0s"}},
		"too much":      {follow: known(many...), want: []string{"step_completed one"}, messages: []string{"run  0s"}},
		"what is taken": {follow: known(on("", "step_completed", "none")), want: []string{"step_completed one"}, messages: []string{"run  0s"}},
		"what is not cached": {
			follow: known(asked), want: []string{"step_completed one"}, messages: []string{"run  0s"},
		},
		"a wait that is over": {
			follow: known(waitUntil("", "over", day)), want: []string{"step_completed one"}, messages: []string{"run  0s"},
		},
		"somebody else was first": {
			follow: known(serverStep("", "next")), stale: true, want: []string{"step_created theirs", "step_completed one"},
			messages: []string{"run  0s"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			q := &listedQueue{}
			log, id := f.with(q), newRunID()
			for _, r := range []Request{serverRun(id), on(id, "run_started", ""), serverStep(id, "one"), serverStep(id, "other")} {
				if _, err := log.Append(t.Context(), home, r); err != nil {
					t.Fatal(err)
				}
			}
			if tt.stale {
				if _, err := f.Append(t.Context(), home, serverStep(id, "theirs")); err != nil {
					t.Fatal(err)
				}
			}
			q.list = nil
			var told []string
			ask := func(_ context.Context, n NewEvents) *Following {
				if n.Events[0].Seq != int64(len(n.Log))+1 || n.Run.LastSeq != n.Events[0].Seq {
					t.Errorf("events of run at %d: %d events after %d", n.Run.LastSeq, len(n.Events), len(n.Log))
				}
				if tt.follow == nil {
					return nil
				}
				following := *tt.follow
				following.Ended = func(written []entities.Event, followed bool) {
					told = append(told, fmt.Sprint(len(written), followed))
				}
				return &following
			}
			result := on(id, "step_completed", "one")
			outcomes, err := log.AppendAll(t.Context(), home, id, []Request{result}, AppendOptions{Follow: ask})
			if err != nil || len(outcomes) != 1 || outcomes[0].Step.Status != entities.StepCompleted {
				t.Fatalf("got %+v (%v)", outcomes, err)
			}
			var got []string
			for _, e := range f.events(t, id)[4:] {
				got = append(got, strings.TrimSpace(fmt.Sprint(e.Type, " ", e.CorrelationID)))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if !slices.Equal(q.list, tt.messages) {
				t.Errorf("enqueued %q, want %q", q.list, tt.messages)
			}
			written := len(tt.want)
			if tt.stale {
				written--
			}
			wantTold := []string{fmt.Sprint(written, !slices.Equal(tt.messages, []string{"run  0s"}))}
			if tt.follow == nil {
				wantTold = nil
			}
			if !slices.Equal(told, wantTold) {
				t.Errorf("who was asked was told %q, want %q", told, wantTold)
			}
		})
	}
}

// TestNobodyDecidesThatNothingFollows for a run that would then wait for nothing: it is invoked (I5).
func TestNobodyDecidesThatNothingFollows(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := &listedQueue{}
	log, id := f.with(q), newRunID()
	for _, r := range []Request{serverRun(id), on(id, "run_started", ""), serverStep(id, "one")} {
		if _, err := log.Append(t.Context(), home, r); err != nil {
			t.Fatal(err)
		}
	}
	followed := true
	_, err := log.AppendAll(t.Context(), home, id, []Request{on(id, "step_completed", "one")}, AppendOptions{
		Follow: func(context.Context, NewEvents) *Following {
			return &Following{Known: true, Ended: func(_ []entities.Event, f bool) { followed = f }}
		},
	})
	if err != nil || followed || !slices.Equal(q.list, []string{"run  0s"}) {
		t.Errorf("enqueued %q; nothing followed: %t (%v)", q.list, followed, err)
	}
}

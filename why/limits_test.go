package why

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/capacity/limit"
	"github.com/stepwell-dev/stepwell/entities"
)

// gated lets the run itself wait for a slot of the limit stripe, key c7, and its step if it is not empty.
func gated(messageID string, change ...func(*LimitFact)) func(*Facts) {
	return func(f *Facts) {
		l := LimitFact{Awaited: limit.Awaited{
			Permit: limit.Permit{Name: "stripe", Key: "c7", Cost: 1, MessageID: messageID, CreatedAt: *at(-time.Minute)},
			Limit:  limit.Limit{Name: "stripe", Spec: limit.Spec{PerKey: 5, Total: 200}},
		}}
		for _, c := range change {
			c(&l)
		}
		f.Limits = append(f.Limits, l)
	}
}

func full(f *LimitFact) {
	f.Held, f.HeldInAll, f.Ahead = 5, 80, 11
	f.Holders = []limit.Permit{{RunID: "wrun_2", Subject: "pay", GrantedAt: at(-time.Hour)}}
}

func TestLimitsAreReasons(t *testing.T) {
	t.Parallel()
	reason := func(kind Kind, change ...func(*Reason)) Reason {
		r := Reason{Kind: kind, Limit: "stripe", Key: "c7", Since: at(-time.Minute), Remedies: []Remedy{PutLimit}}
		for _, c := range change {
			c(&r)
		}
		return r
	}
	ofStep := func(r *Reason) {
		r.StepID, r.Name, r.MessageID, r.DeploymentID, r.Attempt, r.MaxAttempts = "charge", "pay", "msg_1", "shop", 1, 5
	}
	isFull := func(r *Reason) {
		r.Held, r.Slots, r.Ahead, r.Holders = 5, 5, 11, []Holder{{"wrun_2", "pay", *at(-time.Hour)}}
	}
	rate := func(f *LimitFact) {
		f.Limit.Rate, f.Limit.Per, f.Limit.Burst = 60, time.Minute, 1
		f.RateAt, f.Ahead = at(10*time.Second), 3
	}
	paused := func(f *LimitFact) { f.Limit.Paused = true }
	due := func(m *Message) { m.DueAt = *at(100 * time.Hour) }
	for name, tt := range map[string]struct {
		facts   Facts
		verdict Verdict
		want    []Reason
	}{
		"run": {run(pending, gated("", full)), VerdictWaiting, []Reason{reason(LimitFull, isFull)}},
		"run whose work waits with it": {run(pending, gated("", full), with("run", due, fresh)), VerdictWaiting,
			[]Reason{reason(LimitFull, isFull)}},
		"step": {run(step(Step{Name: "pay", Spec: called()}, due), gated("msg_1", full)), VerdictWaiting,
			[]Reason{reason(LimitFull, ofStep, isFull)}},
		"step of an app of the SDK": {run(with("", due), gated("msg_1", full)), VerdictWaiting,
			[]Reason{reason(LimitFull, isFull, func(r *Reason) { r.MessageID, r.DeploymentID = "msg_1", "shop" })}},
		"bound of all keys": {run(gated("", func(f *LimitFact) { f.Held, f.HeldInAll = 1, 200 })), VerdictWaiting,
			[]Reason{reason(LimitFull, func(r *Reason) { r.Held, r.Slots, r.InAll = 200, 200, true })}},
		// A start moves the clock on by a second: the three before it begin at 10, 11 and 12 s.
		"rate": {run(gated("", rate)), VerdictWaiting,
			[]Reason{reason(Rate, func(r *Reason) { r.Ahead, r.At = 3, at(13*time.Second) })}},
		"paused and full": {run(gated("", paused, full)), VerdictBlocked,
			[]Reason{reason(LimitPaused, func(r *Reason) { r.Ahead = 11 })}},
		"one of two limits is full": {run(gated(""), gated("", full)), VerdictWaiting, []Reason{reason(LimitFull, isFull)}},
		"granted at any moment":     {run(pending, gated("")), VerdictWorking, []Reason{{Kind: Queued}}},
		"limit deleted": {run(pending, gated("", func(f *LimitFact) { f.Limit.Spec = limit.Spec{} })), VerdictWorking,
			[]Reason{{Kind: Queued}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := Explain(tt.facts)
			if diff := cmp.Diff(tt.want, e.Reasons); diff != "" {
				t.Errorf("reasons (-want +got):\n%s", diff)
			}
			if e.Verdict != tt.verdict {
				t.Errorf("got verdict %s, want %s", e.Verdict, tt.verdict)
			}
		})
	}
}

// TestRetriesComeBeforeLimits: a step that is tried again waits for its pause, and then for a slot.
func TestRetriesComeBeforeLimits(t *testing.T) {
	t.Parallel()
	later := func(f *LimitFact) { f.NotBefore = at(time.Minute) }
	failed := Step{Spec: called(), RetryAfter: at(time.Minute), Status: entities.StepPending, ResultSeq: 7}
	e := Explain(run(step(failed, fails(`{"message":"busy"}`)), gated("msg_1", full, later)))
	if got := kinds(e); !slices.Equal(got, []Kind{StepBackoff}) {
		t.Errorf("got %v, want only the pause", got)
	}
}

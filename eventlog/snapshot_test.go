package eventlog

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/entities"
)

// at is the time of the n-th event of a run in memory.
func at(n int) time.Time { return day.Add(time.Duration(n-1) * time.Second) }

func TestApplyFoldsTheRun(t *testing.T) {
	t.Parallel()
	base := entities.Run{
		ID: theRun, Project: home, DeploymentID: "dpl_1", WorkflowName: "order", SpecVersion: 3,
		Attributes: map[string]string{}, CreatedAt: day,
	}
	with := func(change func(*entities.Run)) entities.Run {
		run := base
		change(&run)
		return run
	}
	coded := failed
	coded.Data.ErrorCode = "USER_ERROR"
	removal := on(theRun, entities.EventAttrSet, "attr_2")
	removal.Data.Changes = []entities.AttributeChange{{Key: "k"}, {Key: "$sys", Value: ptr("1")}}
	removal.Data.AllowReserved = true
	tests := map[string]struct {
		before []Request
		want   entities.Run
	}{
		"created": {[]Request{created}, with(func(r *entities.Run) {
			r.Status, r.LastSeq, r.UpdatedAt = "pending", 1, at(1)
		})},
		"started": {[]Request{created, started}, with(func(r *entities.Run) {
			r.Status, r.LastSeq, r.UpdatedAt, r.StartedAt = "running", 2, at(2), ptr(at(2))
		})},
		"completed": {[]Request{created, started, completed}, with(func(r *entities.Run) {
			r.Status, r.LastSeq, r.UpdatedAt, r.StartedAt = "completed", 3, at(3), ptr(at(2))
			r.EndSeq, r.CompletedAt = 3, ptr(at(3))
		})},
		"completed without a start": {[]Request{created, completed}, with(func(r *entities.Run) {
			r.Status, r.LastSeq, r.UpdatedAt, r.EndSeq, r.CompletedAt = "completed", 2, at(2), 2, ptr(at(2))
		})},
		"failed": {[]Request{created, coded}, with(func(r *entities.Run) {
			r.Status, r.LastSeq, r.UpdatedAt, r.EndSeq, r.CompletedAt = "failed", 2, at(2), 2, ptr(at(2))
			r.ErrorCode = "USER_ERROR"
		})},
		"cancelled twice keeps its first end": {[]Request{created, cancelled, cancelled}, with(func(r *entities.Run) {
			r.Status, r.LastSeq, r.UpdatedAt, r.EndSeq, r.CompletedAt = "cancelled", 3, at(3), 2, ptr(at(2))
		})},
		"a step's event after the end changes only the position": {
			[]Request{created, step("step_created"), step("step_started"), completed, step("step_completed")},
			with(func(r *entities.Run) {
				r.Status, r.LastSeq, r.UpdatedAt, r.EndSeq, r.CompletedAt = "completed", 5, at(5), 4, ptr(at(4))
			}),
		},
		"attributes": {
			[]Request{created, on(theRun, entities.EventAttrSet, "attr_1"), removal},
			with(func(r *entities.Run) {
				r.Status, r.LastSeq, r.UpdatedAt = "pending", 3, at(3)
				r.Attributes = map[string]string{"$sys": "1"}
			}),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, *newMemoryRun(t, test.before...).snapshot.Run); diff != "" {
				t.Errorf("run differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestApplyFoldsSteps(t *testing.T) {
	t.Parallel()
	retrying := step("step_retrying")
	retrying.Data.RetryAfter = ptr(at(5)) // due at the fifth event
	base := entities.Step{
		RunID: theRun, ID: "step_1", Name: "charge", SpecVersion: 3, CreatedSeq: 2, CreatedAt: at(2),
	}
	with := func(change func(*entities.Step)) entities.Step {
		s := base
		change(&s)
		return s
	}
	tests := map[string]struct {
		before []Request // after created and step_created
		want   entities.Step
	}{
		"created": {nil, with(func(s *entities.Step) { s.Status, s.UpdatedAt = "pending", at(2) })},
		"started": {[]Request{step("step_started")}, with(func(s *entities.Step) {
			s.Status, s.UpdatedAt, s.Attempt, s.StartedAt = "running", at(3), 1, ptr(at(3))
		})},
		"a second start counts, and keeps the time of the first": {
			[]Request{step("step_started"), step("step_started")},
			with(func(s *entities.Step) {
				s.Status, s.UpdatedAt, s.Attempt, s.StartedAt = "running", at(4), 2, ptr(at(3))
			}),
		},
		"retrying": {[]Request{step("step_started"), retrying}, with(func(s *entities.Step) {
			s.Status, s.UpdatedAt, s.Attempt, s.StartedAt = "pending", at(4), 1, ptr(at(3))
			s.ResultSeq, s.RetryAfter = 4, ptr(at(5))
		})},
		"the next attempt clears retryAfter": {
			[]Request{step("step_started"), retrying, step("step_started")},
			with(func(s *entities.Step) {
				s.Status, s.UpdatedAt, s.Attempt, s.StartedAt, s.ResultSeq = "running", at(5), 2, ptr(at(3)), 4
			}),
		},
		"completed": {[]Request{step("step_started"), step("step_completed")}, with(func(s *entities.Step) {
			s.Status, s.UpdatedAt, s.Attempt, s.StartedAt = "completed", at(4), 1, ptr(at(3))
			s.ResultSeq, s.CompletedAt = 4, ptr(at(4))
		})},
		"failed": {[]Request{step("step_started"), step("step_failed")}, with(func(s *entities.Step) {
			s.Status, s.UpdatedAt, s.Attempt, s.StartedAt = "failed", at(4), 1, ptr(at(3))
			s.ResultSeq, s.CompletedAt = 4, ptr(at(4))
		})},
		"completed without a start": {[]Request{step("step_completed")}, with(func(s *entities.Step) {
			s.Status, s.UpdatedAt, s.ResultSeq, s.CompletedAt = "completed", at(3), 3, ptr(at(3))
		})},
		"the end of the run does not change it": {[]Request{step("step_started"), cancelled}, with(func(s *entities.Step) {
			s.Status, s.UpdatedAt, s.Attempt, s.StartedAt = "running", at(3), 1, ptr(at(3))
		})},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newMemoryRun(t, append([]Request{created, step("step_created")}, test.before...)...)
			want := map[entities.StepID]entities.Step{"step_1": test.want}
			if diff := cmp.Diff(want, s.snapshot.Steps); diff != "" {
				t.Errorf("steps differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestApplyFoldsHooks(t *testing.T) {
	t.Parallel()
	webhook := hookCreated(theRun, "hook_1", "T")
	webhook.Data.IsWebhook = ptr(true)
	plain := hookCreated(theRun, "hook_1", "T")
	plain.Data.IsWebhook = ptr(false)
	base := entities.Hook{
		RunID: theRun, ID: "hook_1", Project: home, Token: "T", SpecVersion: 3, CreatedSeq: 2, CreatedAt: at(2),
	}
	public := base
	public.IsWebhook = true
	tests := map[string]struct {
		before []Request // after created
		want   []entities.Hook
	}{
		"created, a webhook":                {[]Request{webhook}, []entities.Hook{public}},
		"created, no webhook":               {[]Request{plain}, []entities.Hook{base}},
		"no webhook by default (3.8)":       {[]Request{hookCreated(theRun, "hook_1", "T")}, []entities.Hook{base}},
		"received changes nothing":          {[]Request{plain, hook("hook_received")}, []entities.Hook{base}},
		"disposed":                          {[]Request{plain, hook("hook_disposed")}, nil},
		"a hook that did not get its token": {[]Request{plain, hookCreated(theRun, "hook_2", "T")}, []entities.Hook{base}},
		"released by the run's end":         {[]Request{plain, failed}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := map[entities.HookID]entities.Hook{}
			for _, hook := range test.want {
				want[hook.ID] = hook
			}
			s := newMemoryRun(t, append([]Request{created}, test.before...)...)
			if diff := cmp.Diff(want, s.snapshot.Hooks); diff != "" {
				t.Errorf("hooks differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestApplyFoldsWaits(t *testing.T) {
	t.Parallel()
	waiting := entities.Wait{
		RunID: theRun, ID: "wait_1", Project: home, Status: "waiting", SpecVersion: 3, ResumeAt: ptr(day.Add(time.Hour)),
		CreatedAt: at(2), UpdatedAt: at(2),
	}
	over := waiting
	over.Status, over.UpdatedAt, over.CompletedAt = "completed", at(3), ptr(at(3))
	tests := map[string]struct {
		before []Request // after created
		want   map[entities.WaitID]entities.Wait
	}{
		"created": {[]Request{sleep("wait_created")}, map[entities.WaitID]entities.Wait{"wait_1": waiting}},
		"completed": {
			[]Request{sleep("wait_created"), sleep("wait_completed")}, map[entities.WaitID]entities.Wait{"wait_1": over},
		},
		"released by the run's end": {
			[]Request{sleep("wait_created"), sleep("wait_completed"), completed}, map[entities.WaitID]entities.Wait{},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newMemoryRun(t, append([]Request{created}, test.before...)...)
			if diff := cmp.Diff(test.want, s.snapshot.Waits); diff != "" {
				t.Errorf("waits differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestApplyToCloneKeepsSnapshot(t *testing.T) {
	t.Parallel()
	before := []Request{
		created, started, step("step_created"), step("step_started"), hook("hook_created"), sleep("wait_created"),
		on(theRun, entities.EventAttrSet, "attr_1"),
	}
	overwrite := on(theRun, entities.EventAttrSet, "attr_2")
	overwrite.Data.Changes = []entities.AttributeChange{{Key: "k", Value: ptr("new")}}
	after := []Request{
		step("step_completed"), hook("hook_disposed"), sleep("wait_completed"), overwrite,
		on(theRun, entities.EventStepCreated, "step_2"), completed,
	}
	s, twin := newMemoryRun(t, before...), newMemoryRun(t, before...)
	twin.snapshot = s.snapshot.clone()
	for _, r := range after {
		if _, err := twin.append(r); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(newMemoryRun(t, before...).snapshot, s.snapshot); diff != "" {
		t.Errorf("the original changed (-want +got):\n%s", diff)
	}
	if twin.snapshot.Run.Status != entities.RunCompleted || len(twin.snapshot.Hooks) != 0 {
		t.Error("the clone did not change")
	}
}

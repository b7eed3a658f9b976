package triggers_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/starts/trigger"
)

func TestPutKeepsAWebhooksURL(t *testing.T) {
	t.Parallel()
	s := newApp(t)
	spec := trigger.Spec{Kind: trigger.KindWebhook, Workflow: "report"}
	first, created, err := s.Put(t.Context(), project, "t", spec)
	if err != nil || !created || !strings.HasPrefix(first.Source, "trg_") {
		t.Fatalf("got %+v, created %v, %v", first, created, err)
	}
	same, created, err := s.Put(t.Context(), project, "t", spec)
	if err != nil || created || same.Revision != first.Revision {
		t.Errorf("the same again: got %+v, created %v, %v", same, created, err)
	}
	spec.Verify, spec.Secret = "github", "hub"
	changed, created, err := s.Put(t.Context(), project, "t", spec)
	if err != nil || created || changed.Source != first.Source || changed.Revision == first.Revision {
		t.Errorf("changed: got %+v, created %v, %v", changed, created, err)
	}
	if s.put(t, onSignal("")); s.put(t, spec).Source == first.Source {
		t.Error("a webhook has the token of an earlier one")
	}
	if n := s.Count(t, `SELECT count(*) FROM audit WHERE action = 'trigger.put' AND subject = 't'`); n != 4 {
		t.Errorf("the audit has %d changes, want 4", n)
	}
}

func TestPutRefusesWhatCannotBe(t *testing.T) {
	t.Parallel()
	s := newServer(t, testdb.New(t))
	s.Register(t, "report")
	long := strings.Repeat("x", 257)
	for what, tt := range map[string]struct {
		edit  func(*trigger.Spec)
		field string
	}{
		"no kind":         {func(s *trigger.Spec) { s.Kind = "" }, "on"},
		"no signal":       {func(s *trigger.Spec) { s.Source = "" }, "on.signal.name"},
		"bad condition":   {func(s *trigger.Spec) { s.Condition = "data >" }, "on.signal.condition"},
		"no bool":         {func(s *trigger.Spec) { s.Condition = "1" }, "on.signal.condition"},
		"no secret":       {func(s *trigger.Spec) { s.Kind, s.Verify = trigger.KindWebhook, "github" }, "on.webhook"},
		"no status":       {func(s *trigger.Spec) { s.Kind = trigger.KindRunEnded }, "on.runEnded.statuses"},
		"status of life":  {func(s *trigger.Spec) { *s = onEnd(""); s.Statuses[0] = "running" }, "on.runEnded.statuses"},
		"status twice":    {func(s *trigger.Spec) { *s = onEnd(""); s.Statuses[0] = s.Statuses[1] }, "on.runEnded.statuses"},
		"no workflow":     {func(s *trigger.Spec) { s.Workflow = "" }, "start.workflow"},
		"join for no key": {func(s *trigger.Spec) { s.Joins = true }, "start.onConflict"},
		"input":           {func(s *trigger.Spec) { s.Input = []byte(`{`) }, "start.input"},
		"attribute":       {func(s *trigger.Spec) { s.Attributes = map[string]string{"k": long} }, "start.attributes"},
		"reserved":        {func(s *trigger.Spec) { s.Attributes = map[string]string{"$trigger": "x"} }, "start.attributes"},
		"timeout":         {func(s *trigger.Spec) { s.Timeout = -1 }, "start.timeout"},
	} {
		spec := onSignal("")
		tt.edit(&spec)
		_, _, err := s.Put(t.Context(), project, "t", spec)
		field, ok := errors.AsType[*entities.FieldError](err)
		if !ok || field.Field != tt.field || !errors.Is(err, entities.ErrInvalid) {
			t.Errorf("%s: got %v, want an error about %s", what, err, tt.field)
		}
	}
	if _, _, err := s.Put(t.Context(), project, long, onSignal("")); !errors.Is(err, entities.ErrInvalid) {
		t.Errorf("long name: got %v", err)
	}
	spec := onSignal("")
	spec.Workflow = "other"
	if _, _, err := s.Put(t.Context(), project, "t", spec); !errors.Is(err, message.ErrDeploymentNotFound) {
		t.Errorf("unknown workflow: got %v", err)
	}
	if n := s.Count(t, `SELECT count(*) FROM triggers`); n != 0 {
		t.Errorf("%d triggers were stored", n)
	}
}

func TestProjectsAreIsolated(t *testing.T) {
	t.Parallel()
	s := newApp(t)
	s.put(t, onSignal(""))
	if _, err := s.Queue.PutDeployment(t.Context(), "away", "dpl", "http://127.0.0.1:1"); err != nil {
		t.Fatal(err)
	}
	if _, created, err := s.Put(t.Context(), "away", "t", onSignal("")); err != nil || !created {
		t.Errorf("the same name in another project: created %v, %v", created, err)
	}
	s.post(t, `1`)
	s.settle(t)
	s.wantHistory(t, trigger.Started)
	if err := s.Delete(t.Context(), "away", "t"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Pause(t.Context(), "away", "t", ""); !errors.Is(err, trigger.ErrNotFound) {
		t.Errorf("pause in another project: %v", err)
	}
	s.post(t, `1`)
	s.settle(t)
	s.wantHistory(t, trigger.Started, trigger.Started)
}

// TestHistoryIsPruned: of 150 events that were skipped and 1,100 others, each kind's newest are kept.
func TestHistoryIsPruned(t *testing.T) {
	t.Parallel()
	s := newApp(t)
	trg := s.put(t, onSignal(""))
	s.Exec(t, `
		INSERT INTO trigger_events (trigger_id, event, project, decision, run_id, reason, decided_at)
		SELECT $1, 'e' || i, 'default', CASE WHEN i % 10 = 0 THEN 'skipped' ELSE 'refused' END, '', '', now()
		FROM generate_series(1, 1250) i`, trg.ID)
	if err := trigger.Prune(t.Context(), pg.NewPool(s.Pool)); err != nil {
		t.Fatal(err)
	}
	// 10 of the last 100 were skipped; the others are the newest 1,000 of the 1,125.
	if n := s.Count(t, `SELECT count(*) FROM trigger_events WHERE decision = 'skipped'`); n != 10 {
		t.Errorf("%d skipped events are left", n)
	}
	if n := s.Count(t, `SELECT count(*) FROM trigger_events WHERE decision = 'refused'`); n != 1000 {
		t.Errorf("%d other events are left", n)
	}
	if n := s.Count(t, `SELECT count(*) FROM trigger_events WHERE event IN ('e1250', 'e1249')`); n != 2 {
		t.Error("the newest events are gone")
	}
}

package collector

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/capacity/limit"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/starts/collection"
)

// limited gives a start a use of the limit "one".
func limited(s *collection.Start) { s.Data.Limits = []entities.LimitUse{{Name: "one", Key: "k"}} }

// limit makes a limit with one slot.
func (s *server) limit(t *testing.T, onFull limit.OnFull) {
	t.Helper()
	if _, err := s.limits.Put(t.Context(), project, "one", limit.Spec{PerKey: 1, OnFull: onFull}); err != nil {
		t.Fatal(err)
	}
}

// TestFullLimitIsTriedAgain without counting as a failed delivery.
func TestFullLimitIsTriedAgain(t *testing.T) {
	t.Parallel()
	s := registered(t)
	last := debounced(collection.KeepLast)
	if _, err := s.Add(t.Context(), project, last, start("0", limited)); !errors.Is(err, limit.ErrNotFound) {
		t.Errorf("a start with an unknown limit: got %v", err)
	}
	s.want(t, "")
	s.limit(t, limit.Reject)
	s.add(t, last, start("1", limited))
	holder := s.flush(t)
	s.At(time.Second)
	id := s.add(t, last, start("2", limited))
	s.At(time.Minute)
	s.deliver(t, id)
	c, err := collection.ByID(t.Context(), pg.NewPool(s.pool), project, id)
	if err != nil || c.Refusal == "" {
		t.Errorf("got %+v, %v, want a refusal", c, err)
	}
	s.add(t, last, start("3", limited))
	if c, err = collection.ByID(t.Context(), pg.NewPool(s.pool), project, id); err != nil || c.Refusal != "" {
		t.Errorf("got %+v, %v, want no refusal once the run is due later", c, err)
	}
	if _, err := s.log.Append(t.Context(), project, eventlog.Request{
		RunID: holder, Type: entities.EventRunCancelled, SpecVersion: entities.SpecDriven,
	}); err != nil {
		t.Fatal(err)
	}
	s.At(2 * time.Minute)
	s.deliver(t, id)
	if got := s.state(t); got != "run 1, run 3" {
		t.Errorf("got %s", got)
	}
}

// TestRepeatedTryCompletesItsRequestsAnew has a deadlock in the first try to start a run with a limit.
func TestRepeatedTryCompletesItsRequestsAnew(t *testing.T) {
	t.Parallel()
	s := registered(t)
	s.limit(t, limit.Wait)
	s.Exec(t, `
		CREATE SEQUENCE tries;
		CREATE FUNCTION deadlock() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN
			IF nextval(''tries'') = 1 THEN RAISE EXCEPTION ''deadlock'' USING ERRCODE = ''40P01''; END IF;
			RETURN NEW;
		END';
		CREATE TRIGGER deadlock BEFORE INSERT ON runs FOR EACH ROW EXECUTE FUNCTION deadlock()`)
	id, try := entities.NewRunID(noon), 0
	_, created, err := s.log.StartWith(t.Context(), project, eventlog.Request{
		RunID: id, Type: entities.EventRunCreated, SpecVersion: entities.SpecDriven, Data: entities.EventData{
			Driver: entities.DriverServer, WorkflowName: "w", DeploymentID: "dpl",
			Limits: []entities.LimitUse{{Name: "one", Key: "k"}},
		},
	}, eventlog.AppendOptions{With: eventlog.UnderLock{Guard: func(*pgx.Batch) func([]eventlog.Request) error {
		return func(requests []eventlog.Request) error {
			try++
			requests[0].Payload = fmt.Append(nil, try)
			return nil
		}
	}}})
	if err != nil || !created || try != 2 {
		t.Fatalf("got %v, %v in %d tries", created, err, try)
	}
	if got := s.state(t); got != "run 2" {
		t.Errorf("got %s, want what the second try has read", got)
	}
}

// TestStartRevivesTheWorkOfAnOverdueCollection that is parked, or missing.
func TestStartRevivesTheWorkOfAnOverdueCollection(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{
		"parked": `UPDATE messages SET parked_at = now() WHERE work = 'collection'`, "missing": `DELETE FROM messages`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := registered(t)
			id := s.add(t, batches(3), start("1"))
			message, err := pg.CollectValue[string](pg.NewPool(s.pool).Query(t.Context(), `SELECT id FROM messages`))
			if err != nil {
				t.Fatal(err)
			}
			if err := s.queue.Discard(t.Context(), project, message); !errors.Is(err, entities.ErrConflict) {
				t.Errorf("discard: got %v", err)
			}
			s.Exec(t, sql)
			s.At(2 * time.Minute)
			s.add(t, batches(3), start("2"))
			if n := s.Count(t, `SELECT count(*) FROM messages WHERE subject = $1 AND parked_at IS NULL
				AND due_at <= now() + interval '1 s'`, id); n != 1 {
				t.Errorf("%d pieces of work are due, want 1", n)
			}
			s.deliver(t, id)
			s.want(t, "run [1,2]")
		})
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync/atomic"
	"time"
)

// The cases of the part limits.
const (
	caseFree  = "no limits"
	caseOther = "limits of other workflows"
	caseRoom  = "1,000 keys with room"
	caseFull  = "saturated"
	caseSlots = "no limits, as many in flight as slots"
	caseKey   = "no limits, with the foreign key"
	caseNoKey = "no limits, without the foreign key"

	caseHot     = "starts"
	caseWaiting = "queue of waiting runs"
)

// The variants of starts.
const (
	startsFree = "no limit"
	startsRoom = "one key with room"
	startsFull = "one key without room"
)

// limitedShape is the workflow whose runs are limited, and limitedKeys how many keys they have, unless they have one.
const (
	limitedShape = "seq-1"
	limitedKeys  = 1000
	// fewSlots is how many slots a saturated limit has.
	fewSlots = 8
)

// measureLimits measures what limits cost: whole runs, starts, many that wait, and a server with nothing to do.
func measureLimits(ctx context.Context, b *bench) (rows []row, err error) {
	for _, m := range []struct {
		name string
		does func(context.Context) ([]row, error)
	}{
		{"runs", b.limitedRuns}, {"key", b.foreignKeyRuns}, {"starts", b.limitedStarts}, {"waiting", b.waitingRuns},
		{"idle", b.limitedIdles},
	} {
		if len(b.limits) > 0 && !slices.Contains(b.limits, m.name) {
			continue
		}
		more, err := m.does(ctx)
		if err != nil {
			return nil, err
		}
		rows = append(rows, more...)
	}
	return rows, nil
}

// put sets a limit, and the policy that has runs of the shape need it, with an attribute as the key.
func (s *testbed) putLimit(ctx context.Context, name, shape string, settings map[string]any) error {
	if err := s.client.json(ctx, http.MethodPut, "/v1/limits/"+name, settings, nil); err != nil {
		return err
	}
	return s.client.json(ctx, http.MethodPut, "/v1/policies/"+url.PathEscape(workflowPrefix+shape), map[string]any{
		"limits": []map[string]any{{"name": name, "key": "attributes.key"}},
	}, nil)
}

// removeLimit removes what putLimit set.
func (s *testbed) removeLimit(ctx context.Context, name, shape string) error {
	if err := s.client.json(ctx, http.MethodDelete, "/v1/policies/"+url.PathEscape(workflowPrefix+shape), nil, nil); err != nil {
		return err
	}
	return s.client.json(ctx, http.MethodDelete, "/v1/limits/"+name+"?force=true", nil, nil)
}

// startLimited starts a run with the attribute that is its key.
func (s *testbed) startLimited(ctx context.Context, workflow, key string) (string, error) {
	return s.client.startWith(ctx, map[string]any{
		"workflow": workflow, "deployment": contractDeployment, "input": []int{1, 2}, "attributes": map[string]any{"key": key},
	})
}

// byKeys returns a driver of runs with so many keys.
func byKeys(keys int64) driver {
	var started atomic.Int64
	return driver{"contract", func(ctx context.Context, s *testbed, workflow string) (time.Time, report, error) {
		run, err := s.startLimited(ctx, workflow, strconv.FormatInt(started.Add(1)%keys, 10))
		if err != nil {
			return time.Time{}, report{}, err
		}
		return s.ended(ctx, run)
	}}
}

// limitedRuns measures whole runs with and without limits, alternately: A B C D E A B C D E.
func (b *bench) limitedRuns(ctx context.Context) (rows []row, err error) {
	s, err := b.newTestbed(ctx, "all")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.clear()) }()
	most := b.inFlight[len(b.inFlight)-1]
	for round := range b.rounds {
		for _, c := range []struct {
			what     string
			keys     int64
			inFlight int
			limit    map[string]any
			of       string
		}{
			{caseFree, limitedKeys, most, nil, ""},
			{caseOther, limitedKeys, most, map[string]any{"perKey": 10}, "seq-9"},
			{caseRoom, limitedKeys, most, map[string]any{"perKey": 10}, limitedShape},
			{caseFull, 1, most, map[string]any{"perKey": fewSlots}, limitedShape},
			{caseSlots, 1, fewSlots, nil, ""},
		} {
			if c.limit != nil {
				if err := s.putLimit(ctx, "l", c.of, c.limit); err != nil {
					return nil, err
				}
			}
			r, err := b.engineRow(ctx, s, byKeys(c.keys), row{Case: limitedShape, Variant: "contract", Clients: c.inFlight, Round: round + 1})
			if err != nil {
				return nil, err
			}
			if c.limit != nil {
				if err := s.removeLimit(ctx, "l", c.of); err != nil {
					return nil, err
				}
			}
			r.Case = c.what
			say("limits, %s: %.0f/s, CPU ms per run: %.2f server, %.2f Postgres; %.1f statements", r.Case, r.perSecond(),
				r.per(r.ServerCPU*1e3), r.per(r.PostgresCPU*1e3), r.per(float64(r.Statements)))
			rows = append(rows, r)
		}
	}
	return rows, nil
}

// foreignKeyRuns measures runs without limits, with and without the foreign key by which each deletion of a message looks
// for its permits, alternately: A B A B.
func (b *bench) foreignKeyRuns(ctx context.Context) (rows []row, err error) {
	s, err := b.newTestbed(ctx, "all")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.clear()) }()
	const key = `permits_message_id_fkey`
	for round := range b.rounds {
		for _, c := range []struct{ what, add string }{
			{caseKey, `, ADD CONSTRAINT ` + key + ` FOREIGN KEY (message_id) REFERENCES messages (id) ON DELETE CASCADE`},
			{caseNoKey, ``},
		} {
			if err := s.alter(ctx, `ALTER TABLE permits DROP CONSTRAINT IF EXISTS `+key+c.add); err != nil {
				return nil, err
			}
			r, err := b.engineRow(ctx, s, byKeys(limitedKeys),
				row{Case: limitedShape, Variant: "contract", Clients: b.inFlight[len(b.inFlight)-1], Round: round + 1})
			if err != nil {
				return nil, err
			}
			r.Case = c.what
			rows = append(rows, r)
		}
	}
	return rows, nil
}

// alter executes a statement in the testbed's database.
func (s *testbed) alter(ctx context.Context, sql string) error {
	conn, err := s.cluster.open(ctx, s.database)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, sql); err != nil {
		return fmt.Errorf("alter a table: %w", err)
	}
	return nil
}

// pulledDeployment is a deployment whose app would ask for its deliveries, but there is none.
const pulledDeployment = "bench-pulled"

// limitedStarts measures starts alone, without the execution of the runs: nobody asks for them.
func (b *bench) limitedStarts(ctx context.Context) (rows []row, err error) {
	for round := range b.rounds {
		for _, c := range []struct {
			what  string
			limit map[string]any
		}{
			{startsFree, nil},
			{startsRoom, map[string]any{"perKey": 10_000}},
			{startsFull, map[string]any{"perKey": 1}},
		} {
			r, err := b.startsRow(ctx, row{Case: caseHot, Variant: c.what, Clients: b.clients[len(b.clients)-1], Round: round + 1}, c.limit)
			if err != nil {
				return nil, err
			}
			rows = append(rows, r)
		}
	}
	return rows, nil
}

// startsRow measures starts on a new database, with one key. It also counts how many have got slots at the end.
func (b *bench) startsRow(ctx context.Context, r row, limit map[string]any) (_ row, err error) {
	s, err := b.newTestbed(ctx, "all")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.clear()) }()
	if limit != nil {
		if err := s.putLimit(ctx, "l", limitedShape, limit); err != nil {
			return r, err
		}
	}
	if err := s.client.deploy(ctx, pulledDeployment, "pull:"); err != nil {
		return r, err
	}
	lean := *s
	lean.client = s.client.lean()
	start := func(ctx context.Context, _ int, _ time.Time) (time.Time, error) {
		_, err := lean.client.startWith(ctx, map[string]any{
			"workflow": workflowPrefix + limitedShape, "deployment": pulledDeployment, "input": []int{1, 2},
			"attributes": map[string]any{"key": "hot"},
		})
		return time.Now(), err
	}
	closedLoop(ctx, r.Clients, b.warm, start)
	if err := s.cluster.checkpoint(ctx); err != nil {
		return r, err
	}
	if err := s.cluster.resetStatements(ctx); err != nil {
		return r, err
	}
	var got *sample
	u, err := s.during(ctx, func() error {
		got = closedLoop(ctx, r.Clients, b.window, start)
		return nil
	})
	if err != nil {
		return r, err
	}
	waiting, err := s.waiting(ctx)
	if err != nil {
		return r, err
	}
	if r.Profile, err = s.cluster.topStatements(ctx); err != nil {
		return r, err
	}
	r = r.with(got).using(u)
	r.Counts = map[string]float64{countWaiting: float64(waiting)}
	say("limits, starts, %s: %.0f/s, p50 %.1f ms, %d wait; CPU ms per start: %.2f server, %.2f Postgres; %.1f statements",
		r.Variant, r.perSecond(), r.Latency.P50, waiting, r.per(r.ServerCPU*1e3), r.per(r.PostgresCPU*1e3),
		r.per(float64(r.Statements)))
	return r, nil
}

// countWaiting is how many runs wait for a slot when a measurement ends.
const countWaiting = "waiting"

// waiting counts the runs that wait for a slot.
func (s *testbed) waiting(ctx context.Context) (n int, err error) {
	conn, err := s.cluster.open(ctx, s.database)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close(ctx) }()
	if err := conn.QueryRow(ctx, `SELECT count(*) FROM permits WHERE granted_at IS NULL`).Scan(&n); err != nil {
		return 0, fmt.Errorf("count who waits: %w", err)
	}
	return n, nil
}

// waitingRuns measures runs that have waited, with few and with many that wait: A B A B.
func (b *bench) waitingRuns(ctx context.Context) (rows []row, err error) {
	beds := make([]*testbed, len(b.waiting))
	for i, n := range b.waiting {
		s, err := b.newTestbed(ctx, "all")
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, s.clear()) }()
		beds[i] = s
		if err := s.putLimit(ctx, "l", limitedShape, map[string]any{"perKey": fewSlots, "paused": true}); err != nil {
			return nil, err
		}
		took, err := b.fillWaiting(ctx, s, n)
		if err != nil {
			return nil, fmt.Errorf("have %d runs wait: %w", n, err)
		}
		say("%d runs wait, after %s", n, took.Round(time.Second))
	}
	for round := range b.rounds {
		for i, s := range beds {
			r, err := b.waitingRow(ctx, s, row{Case: caseWaiting, Variant: "contract", Size: b.waiting[i], Round: round + 1})
			if err != nil {
				return nil, err
			}
			rows = append(rows, r)
		}
	}
	return rows, nil
}

// fillWaiting has so many runs wait for slots of a limit with one key. All but one are copies.
func (b *bench) fillWaiting(ctx context.Context, s *testbed, runs int) (time.Duration, error) {
	run, err := s.startLimited(ctx, workflowPrefix+limitedShape, "hot")
	if err != nil {
		return 0, err
	}
	return b.multiply(ctx, s, run, runs-1, []copies{
		{"runs", "id", map[string]string{"id": copyOfRun}},
		{"events", "run_id", map[string]string{"run_id": copyOfRun}},
		{"messages", "run_id", map[string]string{"id": copyOfMessage, "run_id": copyOfRun, "due_at": "due_at"}},
		{"permits", "run_id", map[string]string{"holder": copyOfRun, "run_id": copyOfRun}},
	})
}

// waitingRow measures how fast waiting runs get slots and end, while as many start as end, so that as many wait at the
// end as at the beginning.
func (b *bench) waitingRow(ctx context.Context, s *testbed, r row) (row, error) {
	if err := s.putLimit(ctx, "l", limitedShape, map[string]any{"perKey": fewSlots}); err != nil {
		return r, err
	}
	time.Sleep(b.warm)
	if err := s.cluster.checkpoint(ctx); err != nil {
		return r, err
	}
	if err := s.cluster.resetStatements(ctx); err != nil {
		return r, err
	}
	var started atomic.Int64
	before := s.reports.ended.Load()
	var got *sample
	u, err := s.during(ctx, func() error {
		end := time.Now().Add(b.engine)
		got = closedLoop(ctx, fewSlots, b.engine, func(ctx context.Context, _ int, _ time.Time) (time.Time, error) {
			for started.Load() >= s.reports.ended.Load()-before && time.Now().Before(end) {
				time.Sleep(time.Millisecond)
			}
			started.Add(1)
			_, err := s.startLimited(ctx, workflowPrefix+limitedShape, "hot")
			return time.Now(), err
		})
		return nil
	})
	ended := s.reports.ended.Load() - before
	if err != nil {
		return r, err
	}
	if err := s.putLimit(ctx, "l", limitedShape, map[string]any{"perKey": fewSlots, "paused": true}); err != nil {
		return r, err
	}
	if r.Profile, err = s.cluster.topStatements(ctx); err != nil {
		return r, err
	}
	waiting, err := s.waiting(ctx)
	if err != nil {
		return r, err
	}
	r = r.with(got).using(u)
	r.Counts = map[string]float64{"starts": float64(r.Ops), countWaiting: float64(waiting)}
	r.Ops = ended
	say("limits, %d wait: %.0f runs/s, CPU ms per run: %.2f server, %.2f Postgres; %.1f statements", r.Size, r.perSecond(),
		r.per(r.ServerCPU*1e3), r.per(r.PostgresCPU*1e3), r.per(float64(r.Statements)))
	return r, nil
}

// limitedIdles measures a server with nothing to do: without limits, with them, and while runs wait for a slot.
func (b *bench) limitedIdles(ctx context.Context) (rows []row, err error) {
	s, err := b.newTestbed(ctx, "all")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.clear()) }()
	for _, c := range []struct {
		what    string
		prepare func() error
	}{
		{idleFree, func() error { return nil }},
		{idleLimited, func() error {
			return s.putLimit(ctx, "l", limitedShape, map[string]any{"perKey": fewSlots, "paused": true})
		}},
		{idleWaiting, func() error {
			_, err := b.fillWaiting(ctx, s, b.waiting[0])
			return err
		}},
	} {
		if err := c.prepare(); err != nil {
			return nil, err
		}
		window := *b
		window.idle = 2 * b.idle / 3 // two passes of the sweeper, as long as that makes one every ten seconds
		r, err := window.idleRow(ctx, s)
		if err != nil {
			return nil, err
		}
		r.Case, r.Variant = caseIdle, c.what
		rows = append(rows, r)
	}
	return rows, nil
}

// The case of a server with nothing to do, and its variants.
const (
	caseIdle    = "nothing happens"
	idleFree    = "no limits"
	idleLimited = "limits"
	idleWaiting = "runs wait"
)

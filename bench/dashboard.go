package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// measureDashboard measures what the dashboard's pages read beside many stored runs, and what its viewers cost.
func measureDashboard(ctx context.Context, b *bench) (rows []row, err error) {
	s, err := b.newTestbed(ctx, "all")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.clear()) }()
	if rows, err = b.viewerRows(ctx, s); err != nil {
		return nil, err
	}
	took, err := b.fill(ctx, s, b.stored)
	if err != nil {
		return nil, fmt.Errorf("store %d runs: %w", b.stored, err)
	}
	say("stored %d runs in %s", b.stored, took.Round(time.Second))
	pages, err := b.pageRows(ctx, s)
	return append(rows, pages...), err
}

// pageRows measures the requests of the dashboard's pages one after the other.
func (b *bench) pageRows(ctx context.Context, s *testbed) (rows []row, err error) {
	if err := s.fillStats(ctx, b.workflows); err != nil {
		return nil, err
	}
	long, err := s.longRun(ctx, b.logSizes[len(b.logSizes)-1])
	if err != nil {
		return nil, err
	}
	for _, page := range pageRequests(long, time.Now()) {
		r, err := b.timed(ctx, s, row{Case: page.what, Size: b.stored}, b.pageReads,
			func(ctx context.Context, _ int, _ time.Time) (time.Time, error) {
				_, err := s.client.call(ctx, http.MethodGet, page.path, nil, nil)
				return time.Now(), err
			})
		if err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// pageRequest is a request that a page makes.
type pageRequest struct{ what, path string }

// pageRequests returns requests of all pages. The run is one that has not ended.
func pageRequests(run string, now time.Time) []pageRequest {
	since := func(d time.Duration) string {
		return url.Values{"from": {now.Add(-d).UTC().Format(time.RFC3339)}, "to": {now.UTC().Format(time.RFC3339)}}.Encode()
	}
	const day = 24 * time.Hour
	of := "/v1/runs/" + run
	return []pageRequest{
		{"runs", "/v1/runs?limit=100"},
		{"runs of a workflow that failed", "/v1/runs?limit=100&status=failed&workflow=" + workflowPrefix + "seq-1"},
		{"count of completed runs", "/v1/runs/count?status=completed"},
		{"run", of + "?payloads=false"},
		{"why", of + "/why"},
		{"timeline", of + "/timeline?limit=200"},
		{"timeline by name", of + "/timeline/names"},
		{"200 events in the middle of the log", of + "/events?payloads=false&limit=200&after=5000"},
		{"runs of an hour by minute", "/v1/stats/runs?step=1m&" + since(time.Hour)},
		{"runs of a day by hour", "/v1/stats/runs?step=1h&" + since(day)},
		{"runs of a week by 6 hours, by workflow", "/v1/stats/runs?step=6h&by=workflow&" + since(7*day)},
		{"steps of a day", "/v1/stats/steps?" + since(day)},
		{"failures of a week", "/v1/stats/failures?" + since(7*day)},
		{"what wants a person", "/v1/attention"},
		{"gauges", "/v1/stats/now"},
		{"messages", "/v1/messages?limit=100"},
		{"hooks", "/v1/hooks?limit=100"},
		{"deployments", "/v1/deployments"},
	}
}

// fillStats stores the statistics of workflows of 3 steps that were busy for a week: 10 classes of durations in each
// interval that is kept.
func (s *testbed) fillStats(ctx context.Context, workflows int) error {
	conn, err := s.cluster.open(ctx, s.database)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, `
		INSERT INTO stats (project, width, at, metric, workflow, label, took, count)
		SELECT 'default', width, at, metric, 'workflow-' || w, label, took, 1 + (w * took) % 7
		FROM (VALUES (1, interval '2 days'), (60, '7 days'), (360, '7 days'), (1440, '90 days')) AS widths (width, keep),
			LATERAL generate_series(date_bin(make_interval(mins => width), now() - keep, 'epoch'), now(),
				make_interval(mins => width)) AS at,
			generate_series(1, $1) AS w, (VALUES
			('run_created', 'shop', 0, 0), ('run_started', 'shop', 1, 6), ('run_completed', 'shop', 10, 19),
			('run_failed', 'shop', 10, 13), ('run_error', 'declined', 0, 0),
			('step_completed', 'reserve', 5, 14), ('step_completed', 'charge', 5, 14), ('step_completed', 'ship', 5, 14),
			('step_retrying', 'charge', 0, 0)
		) AS m (metric, label, first, last), LATERAL generate_series(m.first, m.last) AS took
		ON CONFLICT DO NOTHING`, workflows)
	if err != nil {
		return fmt.Errorf("store statistics: %w", err)
	}
	if _, err = conn.Exec(ctx, `VACUUM (ANALYZE) stats`); err != nil {
		return fmt.Errorf("vacuum statistics: %w", err)
	}
	return s.cluster.checkpoint(ctx)
}

// viewers is how many dashboards are open at the same time. A key may open eight.
const (
	viewers       = 30
	viewersPerKey = 8
)

// The cases that have the number of viewers as their size.
const (
	caseRuns = "runs/s"
	caseIdle = "nothing happens"
)

// viewerRows measures runs, and a server with nothing to do, with and without viewers, alternately: A B A B.
func (b *bench) viewerRows(ctx context.Context, s *testbed) (rows []row, err error) {
	for round := range b.rounds {
		for _, n := range []int{0, viewers} {
			cell, err := b.viewerCell(ctx, s, n, round+1)
			if err != nil {
				return nil, fmt.Errorf("%d viewers: %w", n, err)
			}
			rows = append(rows, cell...)
		}
	}
	return rows, nil
}

// viewerCell has the size of the audience in Size.
func (b *bench) viewerCell(ctx context.Context, s *testbed, n, round int) (rows []row, err error) {
	watching, err := s.watch(ctx, n)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, watching.end()) }()
	clients := b.inFlight[len(b.inFlight)-1]
	r, err := b.engineRow(ctx, s, drivers[len(drivers)-1], row{Case: "seq-3", Clients: clients, Round: round})
	if err != nil {
		return nil, err
	}
	r.Case, r.Size = caseRuns, n
	idle, err := b.idleRow(ctx, s)
	idle.Case, idle.Size, idle.Round = caseIdle, n, round
	return []row{r, idle}, err
}

// audience are open connections of viewers.
type audience struct {
	cancel  context.CancelFunc
	reading sync.WaitGroup
	mu      sync.Mutex
	failed  error
}

// watch opens the list of runs in a number of dashboards.
func (s *testbed) watch(ctx context.Context, n int) (*audience, error) {
	ctx, cancel := context.WithCancel(ctx)
	a := &audience{cancel: cancel}
	var key struct{ Key string }
	for i := range n {
		if i%viewersPerKey == 0 {
			if err := s.client.json(ctx, http.MethodPost, "/v1/keys", map[string]any{"name": "viewer", "role": "metadata"}, &key); err != nil {
				return nil, errors.Join(err, a.end())
			}
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.client.url+"/v1/live?runs=true&counts=true", nil)
		if err != nil {
			return nil, errors.Join(err, a.end())
		}
		r.Header.Set("Authorization", "Bearer "+key.Key)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return nil, errors.Join(err, a.end())
		}
		if resp.StatusCode != http.StatusOK {
			_ = resp.Body.Close()
			return nil, errors.Join(fmt.Errorf("GET /v1/live: status %d", resp.StatusCode), a.end())
		}
		a.reading.Go(func() {
			_, err := io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			if ctx.Err() == nil {
				a.mu.Lock()
				defer a.mu.Unlock()
				a.failed = errors.Join(a.failed, errors.New("a viewer's connection ended"), err)
			}
		})
	}
	return a, nil
}

// end closes the connections. It fails if one of them has ended before.
func (a *audience) end() error {
	a.cancel()
	a.reading.Wait()
	return a.failed
}

package cluster

import (
	"context"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

// These limit what [ListServers] reads of each kind.
const (
	MaxServers  = 1000
	MaxStranded = 100
	MaxUnderWay = 10_000
)

// Program is what a process runs.
type Program struct {
	// Version, Commit and Role are those of the server; empty if unknown.
	Version, Commit, Role string
	// Cell is that of the server; empty for none.
	Cell entities.Cell
}

// Server is a process that delivers, as the database knows it.
type Server struct {
	ID, Host string

	Program

	StartedAt, BeatAt time.Time
	// Deliveries counts those under way.
	Deliveries int
}

// Servers are the processes that deliver, and what they watch.
type Servers struct {
	// Now is the time of the database, from which the times of servers come.
	Now time.Time
	// List has the servers, those that started first at its beginning; at most [MaxServers].
	List []Server
	// Extended counts the deliveries whose functions have extended the lease: no server holds them.
	Extended int
	// Capped tells that there are more than [MaxUnderWay] deliveries, which are not all counted.
	Capped bool
	// Stranded has the runs that are stranded according to the last sweep over them, and MoreStranded tells that there are
	// more than [MaxStranded].
	Stranded     []StrandedRun
	MoreStranded bool
}

// StrandedRun is a run without a way to move.
type StrandedRun struct {
	ID           entities.RunID
	Project      entities.Project
	WorkflowName string
	Reason       string
	StrandedAt   time.Time
	// Repairs is how often it was woken since its last event.
	Repairs int
}

// ListServers reads the servers. Each of its statements reads a limited number of rows.
func ListServers(ctx context.Context, q pg.Querier) (s Servers, err error) {
	list, err := pg.CollectAll[Server](q.Query(ctx, `
		SELECT id, host, version, commit, role, cell, started_at, beat_at, 0 AS deliveries FROM processes
		ORDER BY id LIMIT $1`, MaxServers)) // the IDs are in the order of the starts
	if err != nil {
		return Servers{}, pg.Wrap(err, "list servers")
	}
	s.List = list
	if err := s.countDeliveries(ctx, q); err != nil {
		return Servers{}, err
	}
	s.Stranded, err = pg.CollectAll[StrandedRun](q.Query(ctx, `
		SELECT r.id, r.project, r.workflow_name, w.reason, w.stranded_at, w.repairs
		FROM run_wakes w JOIN runs r ON r.id = w.run_id
		WHERE w.stranded_at IS NOT NULL ORDER BY w.run_id LIMIT $1`, MaxStranded+1))
	if err != nil {
		return Servers{}, pg.Wrap(err, "list stranded runs")
	}
	if len(s.Stranded) > MaxStranded {
		s.Stranded, s.MoreStranded = s.Stranded[:MaxStranded], true
	}
	return s, nil
}

// countDeliveries counts the deliveries under way, which have an index of their own.
func (s *Servers) countDeliveries(ctx context.Context, q pg.Querier) error {
	type count struct {
		Holder string
		Count  int
		Now    time.Time
	}
	counts, err := pg.CollectAll[count](q.Query(ctx, `
		SELECT coalesce(holder, '') AS holder, count(holder)::int, now() AS now FROM (
			SELECT holder FROM messages WHERE lease LIKE '_%' LIMIT $1) under_way
		GROUP BY ROLLUP (holder) ORDER BY GROUPING(holder)`, MaxUnderWay+1))
	if err != nil {
		return pg.Wrap(err, "count deliveries")
	}
	total := counts[len(counts)-1] // of all holders; it is there without any
	s.Now, s.Capped = total.Now, total.Count > MaxUnderWay
	held := map[string]int{}
	for _, c := range counts[:len(counts)-1] {
		held[c.Holder] = c.Count
	}
	s.Extended = held[""]
	for i := range s.List {
		s.List[i].Deliveries = held[s.List[i].ID]
	}
	return nil
}

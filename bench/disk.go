package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// wholeDatabase is the row with the sum of all relations, and wholeArchive the one with the sum of those that have
// archived runs.
const (
	wholeDatabase = "all"
	wholeArchive  = "archived: all"
)

// leastBytes is what a relation must take of a run to have a row.
const leastBytes = 5

// measureDisk measures what ended runs of three steps leave in each table and index after a vacuum, by run, and
// then what they take when they are archived in the database. Each driver has a database of its own.
func measureDisk(ctx context.Context, b *bench) ([]row, error) {
	byRelation := map[string]map[string]float64{}
	for _, d := range driversOf(openCase) {
		sizes, runs, err := b.diskOf(ctx, d)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", d.name, err)
		}
		for relation, bytes := range sizes {
			if byRelation[relation] == nil {
				byRelation[relation] = map[string]float64{}
			}
			byRelation[relation][d.name] = bytes / float64(runs)
		}
		say("disk: %s leaves %.0f B a run in %d runs, and %.0f B once they are archived", d.name,
			byRelation[wholeDatabase][d.name], runs, byRelation[wholeArchive][d.name])
	}
	var rows []row
	for _, relation := range slices.Sorted(maps.Keys(byRelation)) {
		counts := byRelation[relation]
		maps.DeleteFunc(counts, func(_ string, bytes float64) bool { return bytes < leastBytes })
		if len(counts) > 0 {
			rows = append(rows, row{Case: relation, Counts: counts})
		}
	}
	return rows, nil
}

// diskOf returns by how many bytes each relation has grown when so many runs have ended as the plan wants.
func (b *bench) diskOf(ctx context.Context, d driver) (grown map[string]float64, runs int64, err error) {
	s, err := b.newTestbed(ctx, "all")
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, s.clear()) }()
	before, err := s.relationSizes(ctx)
	if err != nil {
		return nil, 0, err
	}
	if runs, err = s.endRuns(ctx, d, b.plan); err != nil {
		return nil, 0, err
	}
	if grown, err = s.relationSizes(ctx); err != nil {
		return nil, 0, err
	}
	for relation, bytes := range before {
		grown[relation] -= bytes
	}
	archived, err := s.archivedSizes(ctx, b)
	maps.Copy(grown, archived)
	return grown, runs, err
}

// archivedSizes has retention archive all runs in the database, and returns the bytes of the archive's tables and
// indexes, and their sum. The space that other tables had for the runs is free for the next ones.
func (s *testbed) archivedSizes(ctx context.Context, b *bench) (map[string]float64, error) {
	began := time.Now()
	worker, _, err := b.startServer(ctx, s.database, "worker", "STEPWELL_RETENTION=1ms", "STEPWELL_ARCHIVE=postgres")
	if err != nil {
		return nil, err
	}
	err = s.cluster.awaitEmpty(ctx, s.database, "runs")
	if err := errors.Join(err, worker.Terminate()); err != nil {
		return nil, fmt.Errorf("archive the runs: %w", err)
	}
	say("disk: archived in %s", time.Since(began).Round(time.Second/10))
	sizes, err := s.relationSizes(ctx)
	if err != nil {
		return nil, err
	}
	archived := map[string]float64{}
	for relation, bytes := range sizes {
		if strings.HasPrefix(relation, "archive") {
			archived["archived: "+relation] = bytes
			archived[wholeArchive] += bytes
		}
	}
	return archived, nil
}

// endRuns executes at least as many runs as planned, and waits until nothing of them is queued. It vacuums often, as
// autovacuum does compared with the number of runs that people keep: else rows that were deleted since the last time
// would count.
func (s *testbed) endRuns(ctx context.Context, d driver, p plan) (ended int64, err error) {
	once := func(ctx context.Context, _ int, _ time.Time) (time.Time, error) {
		return d.run(ctx, s, workflowPrefix+openCase)
	}
	for ended < p.ended {
		got := closedLoop(ctx, int(min(p.ended, 200)), p.endFor, once)
		if got.first != nil {
			return 0, got.first
		}
		ended += got.Ops
		if err := s.vacuum(ctx); err != nil {
			return 0, err
		}
	}
	return ended, s.awaitEmptyQueue(ctx)
}

// vacuum vacuums the database.
func (s *testbed) vacuum(ctx context.Context) error {
	conn, err := s.cluster.open(ctx, s.database)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, `VACUUM`); err != nil {
		return fmt.Errorf("vacuum: %w", err)
	}
	return nil
}

// relationSizes returns the bytes of the server's tables and indexes, and their sum, after a vacuum. Tables whose rows
// are gone when a run has ended are left out: their size depends on how many runs are open at once.
func (s *testbed) relationSizes(ctx context.Context) (map[string]float64, error) {
	if err := s.vacuum(ctx); err != nil {
		return nil, err
	}
	conn, err := s.cluster.open(ctx, s.database)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(ctx) }()
	rows, _ := conn.Query(ctx, `
		SELECT coalesce(owner.relname || ' (toast)', c.relname) AS name, sum(pg_relation_size(c.oid))::float8 AS bytes
		FROM pg_class c LEFT JOIN pg_class owner ON owner.reltoastrelid = c.oid
		WHERE c.relkind IN ('r', 't', 'i') AND c.relname !~ '^(messages|run_wakes)(_|$)'
			AND coalesce(owner.relnamespace, c.relnamespace) = 'stepwell'::regnamespace GROUP BY 1`)
	sizes := map[string]float64{}
	var name string
	var bytes float64
	_, err = pgx.ForEachRow(rows, []any{&name, &bytes}, func() error {
		sizes[name], sizes[wholeDatabase] = bytes, sizes[wholeDatabase]+bytes
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read sizes: %w", err)
	}
	return sizes, nil
}

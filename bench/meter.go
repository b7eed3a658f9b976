package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// usage is the use of resources up to a time, or between two times.
type usage struct {
	Server, Postgres, Function, Load time.Duration // CPU time
	WAL                              int64         // bytes
	Statements                       int64         // executed by Postgres, including BEGIN and COMMIT
}

func (u usage) plus(v usage) usage { return u.minus(usage{}.minus(v)) }

func (u usage) minus(v usage) usage {
	return usage{
		Server: u.Server - v.Server, Postgres: u.Postgres - v.Postgres, Function: u.Function - v.Function,
		Load: u.Load - v.Load, WAL: u.WAL - v.WAL, Statements: u.Statements - v.Statements,
	}
}

// meter reads the usage. server and function may be nil.
type meter struct {
	cluster          *cluster
	server, function *harness.Process
	database         string // counts only statements in this database; empty for all
}

func (m meter) read(ctx context.Context) (u usage, err error) {
	// The role excludes the bench's own statements.
	err = m.cluster.conn.QueryRow(ctx, `
		SELECT pg_current_wal_lsn() - '0/0'::pg_lsn, coalesce(sum(calls), 0)
		FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid
		WHERE userid = $1::regrole AND ($2 = '' OR datname = $2)`, role, m.database).Scan(&u.WAL, &u.Statements)
	if err != nil {
		return u, fmt.Errorf("read statistics of Postgres: %w", err)
	}
	if u.Postgres, err = processorTime(m.cluster.pid); err != nil {
		return u, err
	}
	for _, p := range []struct {
		process *harness.Process
		into    *time.Duration
	}{{m.server, &u.Server}, {m.function, &u.Function}} {
		if p.process == nil {
			continue
		}
		s, err := readStat(p.process.PID())
		if err != nil {
			return u, err
		}
		*p.into = own(s)
	}
	load, err := readStat(os.Getpid())
	if err != nil {
		return u, err
	}
	u.Load = own(load) + ended(load) // pgbench is a child
	return u, nil
}

// measure completes a row by what a load has done, and used.
func (m meter) measure(ctx context.Context, r row, load func() (*sample, error)) (row, error) {
	before, err := m.read(ctx)
	if err != nil {
		return r, err
	}
	got, err := load()
	if err != nil {
		return r, err
	}
	after, err := m.read(ctx)
	return r.with(got).using(after.minus(before)), err
}

// between returns the usage between two times that are yet to come.
func (m meter) between(ctx context.Context, from, to time.Time) (usage, error) {
	time.Sleep(time.Until(from))
	before, err := m.read(ctx)
	if err != nil {
		return usage{}, err
	}
	time.Sleep(time.Until(to))
	after, err := m.read(ctx)
	return after.minus(before), err
}

package main

import (
	"context"
	"fmt"
	"os"
	"time"
)

// usage is what has been used up to a moment, or between two.
type usage struct {
	Server, Postgres, Function, Load time.Duration // of the processors
	WAL                              int64         // bytes
	Statements                       int64         // that Postgres executed, BEGIN and COMMIT included
}

func (u usage) minus(v usage) usage {
	return usage{
		Server: u.Server - v.Server, Postgres: u.Postgres - v.Postgres, Function: u.Function - v.Function,
		Load: u.Load - v.Load, WAL: u.WAL - v.WAL, Statements: u.Statements - v.Statements,
	}
}

// meter reads what is used. Server and function may be missing.
type meter struct {
	cluster          *cluster
	server, function *process
	database         string // whose statements count; with none, those of all
}

func (m meter) read(ctx context.Context) (u usage, err error) {
	// What pgbench and the server do is told from what the bench does itself by the role.
	err = m.cluster.looks.QueryRow(ctx, `
		SELECT pg_current_wal_lsn() - '0/0'::pg_lsn, coalesce(sum(calls), 0)
		FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid
		WHERE userid = $1::regrole AND ($2 = '' OR datname = $2)`, role, m.database).Scan(&u.WAL, &u.Statements)
	if err != nil {
		return u, fmt.Errorf("read what Postgres did: %w", err)
	}
	if u.Postgres, err = processorTime(m.cluster.postgres.pid()); err != nil {
		return u, err
	}
	for _, p := range []struct {
		process *process
		into    *time.Duration
	}{{m.server, &u.Server}, {m.function, &u.Function}} {
		if p.process == nil {
			continue
		}
		s, err := readStat(p.process.pid())
		if err != nil {
			return u, err
		}
		*p.into = s.Own
	}
	load, err := readStat(os.Getpid())
	if err != nil {
		return u, err
	}
	u.Load = load.Own + load.Children // pgbench is a child
	return u, nil
}

// during is what is used while something happens.
func (m meter) during(ctx context.Context, do func() error) (usage, error) {
	before, err := m.read(ctx)
	if err != nil {
		return usage{}, err
	}
	if err := do(); err != nil {
		return usage{}, err
	}
	after, err := m.read(ctx)
	return after.minus(before), err
}
